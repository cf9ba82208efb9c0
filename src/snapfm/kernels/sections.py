"""Many arrays in one: sections of a flat array, cut by a table of where each begins.

Compiled functions take a few arrays instead of dozens. Passed as tuples of arrays the same kernels took minutes to
compile and each call 16 µs to unpack. Imports nothing of snapfm.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from numba import njit

Index = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


def packed_index(sections: Sequence[npt.ArrayLike]) -> tuple[Index, Index]:
    """Join integer arrays; give the whole and where each begins (with the end at the end)."""
    parts = [np.asarray(section, np.int64).ravel() for section in sections]
    return np.concatenate([np.zeros(0, np.int64), *parts]), starts([len(part) for part in parts])


def packed_values(sections: Sequence[npt.ArrayLike]) -> tuple[Values, Index]:
    """Join arrays of numbers likewise."""
    parts = [np.asarray(section, np.float64).ravel() for section in sections]
    return np.concatenate([np.zeros(0), *parts]), starts([len(part) for part in parts])


def starts(lengths: Sequence[int]) -> Index:
    """Say where sections of these lengths begin, and where the last ends."""
    return np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))]).astype(np.int64)


@njit(cache=True, nogil=True)
def section(whole, at, number):  # read: all; a view, not a copy
    """Give section `number` of a whole."""
    return whole[at[number] : at[number + 1]]
