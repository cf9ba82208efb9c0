"""Partial distance-2 coloring: group columns (or rows) of a sparse matrix that share no row (or column).

Greedy over a given order, first color that fits. Numpy in, numpy out.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Index
from snapfm.kernels.numba.compiling import compiled

# Neighbors of a column per entry of the pattern up to which they are looked at one by one: rows of whole planes have thousands.
_SCANNED = 200


def color_columns(indptr: Index, indices: Index, columns: int) -> tuple[Index, int]:
    """Color the columns of a CSR pattern so that columns of one color share no row; return the colors and their number.

    Columns without entries get color -1: no pass has to serve them. Three orders are tried and the fewest colors win;
    a row with k entries needs k colors, so the search stops at that bound.
    """
    matrix = csr_array((np.ones(len(indices), bool), indices, indptr), shape=(len(indptr) - 1, columns))
    by_column = matrix.tocsc()
    column_ptr, column_rows = by_column.indptr.astype(np.int64), by_column.indices.astype(np.int64)
    bound = int(np.diff(indptr).max(initial=0))
    occupied = np.flatnonzero(np.diff(column_ptr))
    if bound == len(
        occupied
    ):  # one row holds every column: each needs its own color, and the search would be quadratic
        colors = np.full(columns, -1, np.int64)
        colors[occupied] = np.arange(bound)
        return colors, bound
    best: tuple[Index, int] | None = None
    for order in _orders(indptr, column_ptr, column_rows):
        colors = np.full(columns, -1, np.int64)
        count = _first_fit(indptr, indices, column_ptr, column_rows, order, colors)
        if best is None or count < best[1]:
            best = (colors, count)
        if count <= bound:
            break
    assert best is not None
    return best


def _first_fit(
    indptr: Index, indices: Index, column_ptr: Index, column_rows: Index, order: Index, colors: Index
) -> int:
    """Give each column the first color that no neighbor has; return the number of colors. Written: colors."""
    counts = np.diff(indptr)
    if int((counts**2).sum()) <= _SCANNED * len(indices):
        return int(_greedy(indptr, indices, column_ptr, column_rows, order, colors))
    room = 2 * int(counts.max())  # colors that the table has lines for
    while True:
        count = int(_by_table(column_ptr, column_rows, order, np.zeros((room, len(counts)), bool), colors))
        if count >= 0:
            return count
        colors[:], room = -1, 2 * room


def _orders(indptr: Index, column_ptr: Index, column_rows: Index):
    """Yield visiting orders from cheap to expensive: as given, most conflicts first, reversed."""
    occupied = np.flatnonzero(np.diff(column_ptr))
    yield occupied
    weight = np.concatenate([[0], np.cumsum(np.diff(indptr)[column_rows])])
    degree = (weight[column_ptr[1:]] - weight[column_ptr[:-1]])[occupied]
    yield occupied[np.argsort(-degree, kind="stable")]
    yield occupied[::-1]


@compiled()
def _greedy(indptr, indices, column_ptr, column_rows, order, colors):  # written: colors
    used = np.full(len(colors) + 1, -1, np.int64)  # used[c] == j: color c is taken by a neighbor of column j
    count = 0
    for j in order:
        for p in range(column_ptr[j], column_ptr[j + 1]):
            row = column_rows[p]
            for q in range(indptr[row], indptr[row + 1]):
                c = colors[indices[q]]
                if c >= 0:
                    used[c] = j
        c = 0
        while used[c] == j:
            c += 1
        colors[j] = c
        count = max(count, c + 1)
    return count


@compiled()
def _by_table(column_ptr, column_rows, order, taken, colors):  # written: taken, colors
    """Find the same colors with a table, colors by rows: a color that is taken shows in the first rows of a column.

    Returns the number of colors, -1 if the table has too few lines.
    """
    count = 0
    for j in order:
        c = 0
        while c < count:
            free = True
            for p in range(column_ptr[j], column_ptr[j + 1]):
                if taken[c, column_rows[p]]:
                    free = False
                    break
            if free:
                break
            c += 1
        if c == len(taken):
            return -1
        for p in range(column_ptr[j], column_ptr[j + 1]):
            taken[c, column_rows[p]] = True
        colors[j] = c
        count = max(count, c + 1)
    return count
