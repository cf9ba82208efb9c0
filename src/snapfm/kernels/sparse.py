"""Products of a batch of fields with one shared sparse matrix, sample by sample.

Every sample is worked on alone and in one fixed order, so its bits do not depend on the batch it rides in; samples are
spread over the cores. Fields are (b, n), rows (b, m).
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(cache=True, parallel=True, nogil=True)
def multiply(indptr, indices, values, field, out):  # read: the rest; written: out (b, rows)
    """out = A field, for A in CSR."""
    for number in prange(field.shape[0]):
        b = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        for r in range(len(indptr) - 1):
            total = 0.0
            for p in range(indptr[r], indptr[r + 1]):
                total += values[p] * field[b, indices[p]]
            out[b, r] = total


@njit(cache=True, parallel=True, nogil=True)
def step_back(columns, rows, values, field, weight, out):  # read: the rest; written: out (b, n)
    """out = field − Aᵀ weight, for A in CSC (columns, rows, values)."""
    for number in prange(field.shape[0]):
        b = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        for j in range(len(columns) - 1):
            total = field[b, j]
            for p in range(columns[j], columns[j + 1]):
                total -= values[p] * weight[b, rows[p]]
            out[b, j] = total


@njit(cache=True, parallel=True, nogil=True)
def nearness(columns, rows, values, start, weight, field, gap, distance):  # written: gap (b,), distance (b,)
    """gap = ‖field − start + Aᵀ weight‖∞ and distance = ‖field − start‖₂, NaN if anything is not finite."""
    for number in prange(field.shape[0]):
        b = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        largest, squares = 0.0, 0.0
        for j in range(len(columns) - 1):
            moved = field[b, j] - start[b, j]
            squares += moved * moved
            for p in range(columns[j], columns[j + 1]):
                moved += values[p] * weight[b, rows[p]]
            largest = max(largest, abs(moved))
        gap[b] = largest if np.isfinite(squares) else np.nan
        distance[b] = np.sqrt(squares) if np.isfinite(squares) else np.nan
