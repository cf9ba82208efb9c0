"""Index sets along sparse rows: which unknowns a row of cells reaches, and through which entries of the cells' sets.

Sets are compressed rows with ascending indices. A mark per index makes every merge linear in what it reads: no product of sparse
matrices, no search.

Terms of a Hessian: which operations join each pair of unknowns, and through which slots. Pairs are counted before they are
listed, and lists are sorted where they stand: there may be millions. Numpy in, numpy out; imports kernels.numba.compiling only.
"""

from __future__ import annotations

import numpy as np

from snapfm.kernels.numba.compiling import compiled

MIXED = 1  # the kind of terms that join unknowns of two different operands


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


@compiled(nogil=True)
def count_pairs(left_ptr, left, right_ptr, right, kind, counts):  # written: counts
    """Count the terms of one block of operations for each row of the lower triangle.

    A mixed term adds f_ab (a_i b_j + b_i a_j) at (i, j): each ordered pair of a_i b_j serves the lower entry it falls on, and one
    on the diagonal counts twice. Of other kinds each unordered pair counts once.
    """
    for e in range(len(left_ptr) - 1):
        for p in range(left_ptr[e], left_ptr[e + 1]):
            for q in range(right_ptr[e], right_ptr[e + 1]):
                i, j = left[p], right[q]
                if kind == MIXED:
                    counts[max(i, j)] += 2 if i == j else 1
                elif i >= j:
                    counts[i] += 1


@compiled(nogil=True)
def list_pairs(left_ptr, left, right_ptr, right, kind, out_ptr, out, operation, slot, place, end, columns, terms):
    """List the terms that `count_pairs` counted, those that count twice once more at the end of the block.

    Read: sets, the first operation and slot of the block; written: place (width), end (of each row's list), columns, terms
    (operation, kind, left slot, right slot).
    """
    for twice in range(2 if kind == MIXED else 1):
        for e in range(len(left_ptr) - 1):
            for p in range(out_ptr[e], out_ptr[e + 1]):
                place[out[p]] = slot + p
            for p in range(left_ptr[e], left_ptr[e + 1]):
                for q in range(right_ptr[e], right_ptr[e + 1]):
                    i, j = left[p], right[q]
                    if (twice == 1 and i != j) or (kind != MIXED and i < j):
                        continue
                    row = max(i, j)
                    at = end[row]
                    columns[at] = min(i, j)
                    terms[0, at], terms[1, at] = operation + e, kind
                    terms[2, at], terms[3, at] = place[i], place[j]
                    end[row] = at + 1


@compiled(nogil=True)
def sort_terms(row_ptr, columns, terms, indptr, counts):
    """Sort each row's terms by column, in their order for each; return the number of entries.

    Written: columns (those of the entries come first), terms, indptr of the pattern, counts (terms of each entry).
    """
    longest = 0
    for r in range(len(row_ptr) - 1):
        longest = max(longest, row_ptr[r + 1] - row_ptr[r])
    room = np.empty(longest, terms.dtype)
    entries = 0
    for r in range(len(row_ptr) - 1):
        first, last = row_ptr[r], row_ptr[r + 1]
        if last > first:
            order = np.argsort(columns[first:last], kind="mergesort")
            for t in range(len(terms)):
                for p in range(last - first):
                    room[p] = terms[t, first + order[p]]
                terms[t, first:last] = room[: last - first]
            for p in range(last - first):
                room[p] = columns[first + order[p]]
            for p in range(last - first):
                if p == 0 or room[p] != columns[entries - 1]:
                    columns[entries] = room[p]
                    counts[entries] = 0
                    entries += 1
                counts[entries - 1] += 1
        indptr[r + 1] = entries
    return entries
