"""Memory for factors: on a cache line, because a pack that straddles two lines costs two loads."""

from __future__ import annotations

import math

import numpy as np

from snapfm.arrays import Values

_LINE = 64  # bytes of a cache line


def aligned(*shape: int) -> Values:
    """Allocate float64 on a cache line."""
    size, item = math.prod(shape), np.dtype(np.float64).itemsize
    room = np.empty(size + _LINE // item)
    skip = (-room.ctypes.data % _LINE) // item
    return room[skip : skip + size].reshape(shape)
