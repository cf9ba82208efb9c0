"""Teams: how the threads that work on one tile share its loops. On the CPU a tile has one thread, and all of this is nothing.

Kernels are compiled twice from the same files: for the CPU, where a tile is eight samples, and for CUDA (device.build), where it
is one sample and a team of threads works on it. There `team` deals the passes of a loop out to the threads. Three rules keep
the threads from disturbing each other:

- Memory of a tile is shared. What one thread writes there is read or overwritten by others after `join` only. `team(n)` deals out
  passes by their number: what is written and read in the pass of one number stays with one thread.
- Numbers per lane (layout.Lanes, arguments, local variables) are each thread's own, and equal in all of them: what differs
  goes through `added` or `greatest` first. So all threads take the same branches, and meet at the same joins.
- What cannot be dealt out is done by the thread that `leads`.

On the CPU they are builtins and intrinsics that emit no instruction: as functions, which LLVM was left to inline, they took
up to half of the time of small systems. Imports nothing of snapfm.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

_shared: Any = intrinsic  # a kernel passes all arguments but the first, which is numba's own

team = range  # team(n): the passes 0 … n − 1 that are this thread's
team_between = range  # team_between(first, last): the passes first … last − 1 that are this thread's


@_shared
def join(_: Any) -> tuple[Any, Any]:
    """Wait for the whole team: what its threads wrote before is there for all of them afterwards."""
    return types.none(), lambda context, builder, signature, given: context.get_dummy_value()


@_shared
def leads(_: Any) -> tuple[Any, Any]:
    """Whether this thread does what cannot be dealt out."""
    return types.boolean(), lambda context, builder, signature, given: context.get_constant(types.boolean, True)


@_shared
def added(_: Any, value: Any) -> tuple[Any, Any]:
    """Return the sum of all threads' values, a number or a pack, the same in all of them."""
    return value(value), lambda context, builder, signature, given: given[0]


@_shared
def greatest(_: Any, value: Any) -> tuple[Any, Any]:
    """Return the largest of all threads' values, NaN if one is; see added."""
    return value(value), lambda context, builder, signature, given: given[0]
