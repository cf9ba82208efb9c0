"""Index sets along sparse rows: which unknowns a row of cells reaches, and through which entries of the cells' sets.

Sets are compressed rows with ascending indices. A mark per index makes every merge linear in what it reads: no product of sparse
matrices, no search. Numpy in, numpy out; imports kernels.numba.compiling only.
"""

from __future__ import annotations

import numpy as np

from snapfm.kernels.numba.compiling import compiled


@compiled(nogil=True)
def merged(row_ptr, cells, ptr, indices, width):
    """Merge, for each row of cells, the sets of its cells: pointers and ascending indices. Cells may come in any order."""
    rows = len(row_ptr) - 1
    mark = np.full(width, -1, np.int64)
    out_ptr = np.zeros(rows + 1, np.int64)
    count = 0
    for r in range(rows):
        for q in range(row_ptr[r], row_ptr[r + 1]):
            for p in range(ptr[cells[q]], ptr[cells[q] + 1]):
                if mark[indices[p]] != r:
                    mark[indices[p]] = r
                    count += 1
        out_ptr[r + 1] = count
    out = np.empty(count, np.int64)
    mark[:] = -1
    count = 0
    for r in range(rows):
        ascending = True
        for q in range(row_ptr[r], row_ptr[r + 1]):
            for p in range(ptr[cells[q]], ptr[cells[q] + 1]):
                i = indices[p]
                if mark[i] != r:
                    mark[i] = r
                    out[count] = i
                    ascending = ascending and (count == out_ptr[r] or out[count - 1] < i)
                    count += 1
        if not ascending:
            out[out_ptr[r] : count].sort()
    return out_ptr, out


@compiled(nogil=True)
def followed(row_ptr, cells, weights, ptr, indices, out_ptr, out, width):
    """List, for each entry of merged rows, the entries of the cells' sets it comes from, and the cells' weights.

    An index that a merged row does not have is left out. Returns the number of terms of each entry, then their places among
    `indices` and their weights, entry by entry, in the order of the cells.
    """
    place = np.full(width, -1, np.int64)
    counts = np.zeros(len(out), np.int64)
    total = 0
    for r in range(len(row_ptr) - 1):
        for p in range(out_ptr[r], out_ptr[r + 1]):
            place[out[p]] = p
        for q in range(row_ptr[r], row_ptr[r + 1]):
            for p in range(ptr[cells[q]], ptr[cells[q] + 1]):
                at = place[indices[p]]
                if at >= out_ptr[r]:
                    counts[at] += 1
                    total += 1
    end = np.empty(len(out), np.int64)
    start = 0
    for p in range(len(out)):
        end[p] = start
        start += counts[p]
    source = np.empty(total, np.int64)
    weight = np.empty(total, np.float64)
    place[:] = -1
    for r in range(len(row_ptr) - 1):
        for p in range(out_ptr[r], out_ptr[r + 1]):
            place[out[p]] = p
        for q in range(row_ptr[r], row_ptr[r + 1]):
            for p in range(ptr[cells[q]], ptr[cells[q] + 1]):
                at = place[indices[p]]
                if at >= out_ptr[r]:
                    source[end[at]] = p
                    weight[end[at]] = weights[q]
                    end[at] += 1
    return counts, source, weight
