"""Products of a batch of fields with one shared sparse matrix, sample by sample.

Every sample is worked on alone and in one fixed order, so its bits do not depend on the batch it rides in; samples are
spread over the cores. Fields are (b, n), rows (b, m). `prange` counts unsigned; its index is made signed so that
nothing is compiled twice.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(cache=True, parallel=True, nogil=True)
def multiply(indptr, indices, values, field, out):  # read: the rest; written: out (b, rows)
    """out = A field, for A in CSR."""
    for number in prange(field.shape[0]):
        b = np.int64(number)
        for r in range(len(indptr) - 1):
            total = 0.0
            for p in range(indptr[r], indptr[r + 1]):
                total += values[p] * field[b, indices[p]]
            out[b, r] = total


@njit(cache=True, parallel=True, nogil=True)
def add_product(indptr, indices, values, field, offset, out):  # read: the rest; written: out (b, rows)
    """out = A field + offset, for A in CSR."""
    for number in prange(field.shape[0]):
        b = np.int64(number)
        for r in range(len(indptr) - 1):
            total = offset[b, r]
            for p in range(indptr[r], indptr[r + 1]):
                total += values[p] * field[b, indices[p]]
            out[b, r] = total


@njit(cache=True, parallel=True, nogil=True)
def step_back(columns, rows, values, field, weight, out, gap, distance):  # written: out (b, n), gap (b,), distance (b,)
    """out = field − Aᵀ weight, for A in CSC; with it gap = ‖out − field + Aᵀ weight‖∞ and distance = ‖out − field‖₂.

    Both are NaN if anything is not finite.
    """
    for number in prange(field.shape[0]):
        b = np.int64(number)
        largest, squares = 0.0, 0.0
        for j in range(len(columns) - 1):
            pull = 0.0
            for p in range(columns[j], columns[j + 1]):
                pull += values[p] * weight[b, rows[p]]
            moved = field[b, j] - pull
            out[b, j] = moved
            moved -= field[b, j]
            squares += moved * moved
            largest = max(largest, abs(moved + pull))
        gap[b] = largest if np.isfinite(squares) else np.nan
        distance[b] = np.sqrt(squares) if np.isfinite(squares) else np.nan
