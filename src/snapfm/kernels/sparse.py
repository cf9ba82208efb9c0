"""Products of a batch of fields with one shared sparse matrix, sample by sample.

Every sample is worked on alone and in one fixed order, so its bits do not depend on the batch it rides in. Fields are
(b, n), rows (b, m). One thread each: callers share samples out among threads.
"""

from __future__ import annotations

import numpy as np

from snapfm.kernels.compiling import compiled


@compiled(nogil=True)
def multiply(indptr, indices, values, field, out):  # read: the rest; written: out (b, rows)
    """out = A field, for A in CSR."""
    for b in range(field.shape[0]):
        for r in range(len(indptr) - 1):
            total = 0.0
            for p in range(indptr[r], indptr[r + 1]):
                total += values[p] * field[b, indices[p]]
            out[b, r] = total


@compiled(nogil=True)
def add_product(indptr, indices, values, field, offset, out):  # read: the rest; written: out (b, rows)
    """out = A field + offset, for A in CSR."""
    for b in range(field.shape[0]):
        for r in range(len(indptr) - 1):
            total = offset[b, r]
            for p in range(indptr[r], indptr[r + 1]):
                total += values[p] * field[b, indices[p]]
            out[b, r] = total


@compiled(nogil=True, fastmath={"reassoc", "contract"})
def step_back(row, value, more_column, more_row, more_value, field, weight, out, gap, distance):
    """out = field − Aᵀ weight; with it gap = ‖out − field + Aᵀ weight‖∞ and distance = ‖out − field‖₂.

    A by unknown: one entry each (row, value; zero where there is none), further ones in a list. Most unknowns enter one
    law, and this loop over them has no branch. Both norms are NaN if anything is not finite. Sums may be reordered by
    the compiler, the same way for every sample. Written: out (b, n), gap (b,), distance (b,).
    """
    for b in range(field.shape[0]):
        pulls, weights, fields = out[b], weight[b], field[b]
        for j in range(len(row)):
            pulls[j] = value[j] * weights[row[j]]
        for p in range(len(more_column)):
            pulls[more_column[p]] += more_value[p] * weights[more_row[p]]
        largest, squares = 0.0, 0.0
        for j in range(len(row)):
            pull = pulls[j]
            moved = fields[j] - pull
            pulls[j] = moved
            moved -= fields[j]
            squares += moved * moved
            off = abs(moved + pull)
            largest = off if off > largest else largest
        gap[b] = largest if np.isfinite(squares) else np.nan
        distance[b] = np.sqrt(squares) if np.isfinite(squares) else np.nan


@compiled(nogil=True, error_model="numpy")
def lanes_product(
    indptr, indices, values, x, out
):  # read: values (nnz, lanes), x (columns, lanes); written: out (rows, lanes)
    """out = A x, every lane with a matrix of its own on one pattern."""
    for r in range(len(indptr) - 1):
        out[r, :] = 0.0
        for p in range(indptr[r], indptr[r + 1]):
            for lane in range(x.shape[1]):
                out[r, lane] += values[p, lane] * x[indices[p], lane]


@compiled(nogil=True, error_model="numpy")
def lanes_transposed(indptr, indices, values, x, out):  # read: values (nnz, lanes), x (rows, lanes); written: out
    """out (columns, lanes) = Aᵀ x likewise."""
    out[:, :] = 0.0
    for r in range(len(indptr) - 1):
        for p in range(indptr[r], indptr[r + 1]):
            for lane in range(x.shape[1]):
                out[indices[p], lane] += values[p, lane] * x[r, lane]
