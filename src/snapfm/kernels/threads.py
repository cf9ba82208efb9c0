"""Share the tiles of a kernel among threads.

For kernels too large to be compiled a second time inside a parallel loop: they release the interpreter's lock, so that
plain threads keep all cores busy. Results do not depend on who works on which tile.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numba

_POOL: list[ThreadPoolExecutor] = []  # made at first use, so that importing starts no thread


def shared(work: Callable[[int, int], None], tiles: int) -> None:
    """Call work(first, last) on consecutive ranges of tiles, one per thread."""
    threads = min(numba.get_num_threads(), tiles)
    if threads <= 1:
        work(0, tiles)
        return
    if not _POOL:
        _POOL.append(ThreadPoolExecutor(numba.get_num_threads(), thread_name_prefix="snapfm"))
    edges = [tiles * k // threads for k in range(threads + 1)]
    for done in [_POOL[0].submit(work, first, last) for first, last in pairwise(edges)]:
        done.result()
