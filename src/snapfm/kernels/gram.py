"""Gram matrices: the lower triangle of S = J diag(w) Jᵀ for every lane, on one pattern.

`plan` finds once which products meet in which entry; `gram` computes them, eight lanes at once, tile by tile.
J is by rows (CSR), S is the lower triangle by rows with every diagonal entry present and last in its row.
Numpy in, numpy out; may import kernels.packs only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array, eye_array, tril

from snapfm.kernels.compiling import compiled
from snapfm.kernels.packs import WIDTH, add, fma, full, mul, put, take

Index = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


class GramPlan(NamedTuple):
    """The pattern of S and, for each entry, what is constant and which products J[left] w[column] J[right] to add."""

    indptr: Index
    indices: Index
    constant: Values  # (nnz(S),)
    pointers: Index  # (nnz(S) + 1,)
    left: Index
    right: Index
    column: Index


def plan(
    indptr: Index, indices: Index, columns: int, known: Values | None = None, unit: npt.NDArray[np.bool_] | None = None
) -> GramPlan:
    """Plan S = J diag(w) Jᵀ for a J with the given rows and `columns` columns.

    `known` holds the entries of J that are the same in every lane and call, NaN elsewhere; `unit` marks the columns
    whose weight is always 1. Products of known entries in such columns are added up here, once: rows that span a slice,
    such as total mass, then cost next to nothing per lane.
    """
    rows = len(indptr) - 1
    jacobian = csr_array((np.ones(len(indices)), indices, indptr), shape=(rows, columns))
    lower = csr_array(tril(jacobian @ jacobian.T + eye_array(rows)))
    lower.sort_indices()
    places = csc_array(csr_array((np.arange(1, len(indices) + 1), indices, indptr), shape=(rows, columns)))
    column_ptr, column_rows = places.indptr.astype(np.int64), places.indices.astype(np.int64)
    s_ptr, s_indices = lower.indptr.astype(np.int64), lower.indices.astype(np.int64)
    meeting = _meet(indptr, indices, column_ptr, column_rows, places.data - 1, s_ptr, s_indices)
    pointers, left, right, column = meeting
    constant = np.zeros(len(s_indices))
    if known is not None and unit is not None:
        product = np.where(unit[column], known[left] * known[right], np.nan)
        entry = np.repeat(np.arange(len(s_indices)), np.diff(pointers))
        fixed = ~np.isnan(product)
        np.add.at(constant, entry[fixed], product[fixed])
        left, right, column = left[~fixed], right[~fixed], column[~fixed]
        pointers = np.concatenate([[0], np.cumsum(np.bincount(entry[~fixed], minlength=len(s_indices)))])
    return GramPlan(s_ptr, s_indices, constant, pointers, left, right, column)


@compiled(nogil=True, error_model="numpy")
def gram(plan, values, weights, lanes, out):
    """Fill S. Read: plan, values (nnz(J) * lanes), weights (columns * lanes); written: out (nnz(S) * lanes)."""
    tiles = (lanes + WIDTH - 1) // WIDTH
    for tile in range(tiles):
        _tile(plan, values, weights, lanes, tile, out)


@compiled(nogil=True, error_model="numpy")
def _tile(plan, values, weights, lanes, tile, out):  # written: out
    """One tile of S. Two sums take turns, because in a long row each addition would otherwise wait for the last."""
    start = tile * WIDTH
    count = min(WIDTH, lanes - start)
    for s in range(len(plan.constant)):
        even, odd = full(plan.constant[s]), full(0.0)
        for p in range(plan.pointers[s], plan.pointers[s + 1]):
            weight = take(weights, plan.column[p] * lanes + start, count)
            scaled = mul(take(values, plan.left[p] * lanes + start, count), weight)
            even, odd = odd, fma(scaled, take(values, plan.right[p] * lanes + start, count), even)
        put(out, s * lanes + start, count, add(even, odd))


@compiled(nogil=True)
def _meet(indptr, indices, column_ptr, column_rows, column_places, s_ptr, s_indices):
    """For row i of S in turn: walk the columns of row i of J and every row j <= i that has them too."""
    pointers = np.zeros(len(s_indices) + 1, np.int64)
    place = np.empty(len(indptr), np.int64)
    left, right, column = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    end = pointers[:-1].copy()
    for fill in (False, True):  # count, then fill
        for i in range(len(indptr) - 1):
            for s in range(s_ptr[i], s_ptr[i + 1]):
                place[s_indices[s]] = s
            for p in range(indptr[i], indptr[i + 1]):
                c = indices[p]
                for k in range(column_ptr[c], column_ptr[c + 1]):
                    if column_rows[k] <= i:
                        s = place[column_rows[k]]
                        if fill:
                            left[end[s]], right[end[s]], column[end[s]] = p, column_places[k], c
                            end[s] += 1
                        else:
                            pointers[s + 1] += 1
        if not fill:
            pointers = np.cumsum(pointers)
            end = pointers[:-1].copy()
            left = np.empty(pointers[-1], np.int64)
            right, column = left.copy(), left.copy()
    return pointers, left, right, column
