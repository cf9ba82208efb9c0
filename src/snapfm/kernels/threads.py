"""Share pieces of work among threads.

Compiled kernels release the interpreter's lock, so plain threads keep all cores busy: one thread takes a piece of a batch
through all kernels. Parallel loops inside the kernels lost against this by far when another program, or torch's own
threads, wanted a core too. Results do not depend on who works on which piece.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numba

_POOL: list[ThreadPoolExecutor] = []  # made at first use, so that importing starts no thread


def shared(work: Callable[[slice], None], pieces: list[slice]) -> None:
    """Call work on every piece; the first exception is raised once all are done."""
    if len(pieces) <= 1 or workers() <= 1:
        for piece in pieces:
            work(piece)
        return
    if not _POOL:
        _POOL.append(ThreadPoolExecutor(workers(), thread_name_prefix="snapfm"))
    waiting = [_POOL[0].submit(work, piece) for piece in pieces]
    for done in waiting:
        done.exception()
    for done in waiting:
        done.result()


def workers() -> int:
    """Number of threads that work at once: NUMBA_NUM_THREADS or the number of cores."""
    return int(numba.get_num_threads())
