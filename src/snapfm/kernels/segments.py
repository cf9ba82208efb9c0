"""Cut the operations of a program into segments that do not read each other. Imports kernels.numba.compiling only."""

from __future__ import annotations

import numpy as np

from snapfm.kernels.numba.compiling import compiled


@compiled(nogil=True)
def cut_segments(first, a_ptr, a_cell, b_ptr, b_cell, c_ptr, c_cell):
    """Return where segments begin, and where the last ends; operation e is cell first + e, its operands are compressed rows."""
    count = len(a_ptr) - 1
    starts = np.zeros(count + 1, np.int64)
    segments, begin = 0, 0
    for e in range(count):
        latest = -1
        for p in range(a_ptr[e], a_ptr[e + 1]):
            latest = max(latest, a_cell[p])
        for p in range(b_ptr[e], b_ptr[e + 1]):
            latest = max(latest, b_cell[p])
        for p in range(c_ptr[e], c_ptr[e + 1]):
            latest = max(latest, c_cell[p])
        if latest >= first + begin:
            segments += 1
            begin = e
            starts[segments] = e
    if count > 0:
        segments += 1
        starts[segments] = count
    return starts[: segments + 1].copy()
