"""What torch can do for one thread at a time only: record the operators of a function, and differentiate forward.

Both keep their state in globals of the process (torch 2.13). `make_fx` replaces methods of torch.nn.Module while it runs: two at
once leave the replacements in place for good. Modes note in a global that there is one: two that are entered and left at once
leave the note, and torch.compile compiles nothing any more. `jvp` counts its nesting in a global: two at once raise, or
return wrong slopes silently. So all of them hold one lock of the process.

A fork waits for the lock, so that no child begins with torch half-way through, and the child gets a lock of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_lock = threading.RLock()  # a law may itself record or differentiate


@contextmanager
def alone() -> Iterator[None]:
    """Let no other thread of the package do such a thing meanwhile."""
    with _lock:
        yield


def jvp(function: Callable[[Tensor], Tensor], at: Tensor, direction: Tensor) -> Tensor:
    """Differentiate a function forward: its slope at a point, along a direction."""
    with alone():
        slope: Tensor = torch.func.jvp(function, (at,), (direction,))[1]
    return slope


def _before_fork() -> None:
    _lock.acquire()


def _after_fork_in_parent() -> None:
    _lock.release()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
