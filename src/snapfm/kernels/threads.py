"""Share the work on a batch among threads.

Compiled kernels release the interpreter's lock, so plain threads keep all cores busy; small batches are better off with one,
because handing the lock to and fro costs more than it gains. Parallel loops inside the kernels lost by far when torch's own
threads, or another program, wanted a core too. Results do not depend on who works on what.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numba

_POOL: list[ThreadPoolExecutor] = []  # made at first use, so that importing starts no thread


def shared(work: Callable[[slice], None], count: int, unit: int = 1) -> None:
    """Call work on consecutive ranges of 0 .. count − 1, one per thread, cut at multiples of `unit`."""
    pieces = _cut(count, unit)
    if len(pieces) > 1 and not _POOL:
        _POOL.append(ThreadPoolExecutor(workers() - 1, thread_name_prefix="snapfm"))
    waiting = [_POOL[0].submit(work, piece) for piece in pieces[1:]]
    try:
        work(pieces[0])  # the caller's own share
    finally:
        for done in waiting:
            done.exception()
    for done in waiting:
        done.result()


def _cut(count: int, unit: int) -> list[slice]:
    units = -(-count // unit)
    threads = max(1, min(workers(), units))
    edges = [min(unit * (units * k // threads), count) for k in range(threads + 1)]
    return [slice(first, last) for first, last in pairwise(edges)]


def workers() -> int:
    """Number of threads that work at once: NUMBA_NUM_THREADS or the number of cores."""
    return int(numba.get_num_threads())
