"""Memory that a workspace of Lanes keeps: buffers on cache lines, and result arrays by number of lanes.

May import linear.base only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.linear.base import Pivots, Values

_LINE = 64  # bytes of a cache line: a pack that straddles two costs two loads


class Records:
    """Pivots for every number of lanes seen: made once, then the same arrays, as numpy and as torch."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Pivots, Pivots]] = {}

    def of(self, lanes: int) -> Pivots:
        """Give the arrays for this many lanes."""
        return self._both(lanes)[0]

    def of_kind(self, values: Values | Tensor, lanes: int) -> Pivots:
        """Give the same arrays as numpy or torch, whichever the values are."""
        return self._both(lanes)[isinstance(values, Tensor)]

    def _both(self, lanes: int) -> tuple[Pivots, Pivots]:
        found = self._made.get(lanes)
        if found is None:
            counts = np.zeros((2, lanes), np.int64)
            record = Pivots(np.zeros(lanes, np.int8), counts[0], counts[1], np.zeros(lanes))
            found = self._made[lanes] = record, record.of_kind(torch.empty(0))
        return found


def aligned(*shape: int, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Allocate on a cache line."""
    size, item = int(np.prod(shape)), np.dtype(dtype).itemsize
    room = np.empty(size + _LINE // item, dtype)
    skip = (-room.ctypes.data % _LINE) // item
    return room[skip : skip + size].reshape(shape)
