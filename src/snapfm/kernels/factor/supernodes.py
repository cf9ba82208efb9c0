"""Supernodes: columns of the factor with the same rows, in dense panels as wide as the pattern allows.

For one large matrix at a time, where the factor is far larger than the caches; kernels.factor.panels is for eight small ones.
Neighbors in the elimination tree share a panel if the predicted cycles are fewer, even though it then stores some zeros. A
panel wider than WIDEST is cut. Reads a pattern and an order; returns Supernodes, all that kernels.factor.fronts needs to know.
Never reads values. Imports kernels.numba.packs and kernels.factor.symbolic only.

The factor is a flat array of packs, panel by panel. A pack holds eight rows of one column; the packs of a group of eight
rows lie side by side, one per column of the panel. First come the pivots' rows, then the rows below, each filled up to
whole groups.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array

from snapfm.arrays import Index
from snapfm.kernels.factor.symbolic import permuted, places, postorder, tree
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import WIDTH

# Columns of a panel: 128 columns of eight rows fill a quarter of the nearest cache, and the additions to later panels are
# then a hundredth of the work.
WIDEST = 128

# Predicted cycles: of a panel, of each group of eight pivots, of each row below it, of a tile of eight by eight entries (per
# column eliminated, when they are added to a later panel, when they are eliminated), of each group of eight entries stored.
# Estimates; the last is also the price of memory. With 400 for a panel, 500 for pivots and 4 for storing, a five-point grid of
# 10⁶ unknowns took 69 million entries and 0.7 s, with these 57 million and 1.0 s; patterns with longer columns do not differ.
_PANEL, _PIVOTS, _ROW, _MULTIPLY, _ADD, _ELIMINATE, _STORE = 200.0, 300.0, 8.0, 9.0, 100.0, 60.0, 16.0


class Supernodes(NamedTuple):
    """What to do with the values of one pattern, in which sequence: structure only, shared by all lanes and calls."""

    perm: Index  # (n,) unknown at each place of the elimination
    first: Index  # (panels + 1,) first pivot of each panel
    base: Index  # (panels + 1,) first pack of each panel in the factor
    row_ptr: Index  # (panels + 1,)
    rows: Index  # places of the rows below each panel, ascending
    owner: Index  # (n,) panel of each place
    entry_to: Index  # (nnz,) where each entry of the given matrix is added in the factor
    entry_row: Index  # (nnz,) place of its row, the later one
    entry_column: Index  # (nnz,) and of its column

    @property
    def packs(self) -> int:
        """Length of the factor."""
        return int(self.base[-1])

    @property
    def longest(self) -> int:
        """Largest number of rows below a panel."""
        return int(np.diff(self.row_ptr).max())


def supernodes(indptr: Index, indices: Index, perm: Index) -> Supernodes:
    """Arrange the elimination of a lower triangle in a given order, or one with the same fill."""
    size = len(perm)
    found = tree(*permuted(indptr, indices, perm)[:2])
    post = postorder(found)
    place = np.empty(size + 1, np.int64)
    place[post], place[-1] = np.arange(size), -1
    parent, counts = place[found.parent[post]], found.counts[post]
    perm = perm[post]
    row, column = places(indptr, indices, perm)
    lower = coo_array((np.ones(len(row), np.int8), (row, column)), shape=(size, size)).tocsc()
    first = _fundamental(parent, counts)
    above = _above(first, parent)
    row_ptr = np.concatenate([[0], np.cumsum(counts[first[1:] - 1])])
    rows = np.empty(row_ptr[-1], np.int64)
    _rows(lower.indptr, lower.indices, first, above, row_ptr, rows)
    joined = _amalgamate(np.diff(first), np.diff(row_ptr), above)
    return _arranged(indptr, indices, perm, first, above, row_ptr, rows, joined)


def _fundamental(parent: Index, counts: Index) -> Index:
    """First columns of the chains whose columns have the same rows, and the end."""
    chained = (parent[:-1] == np.arange(1, len(parent))) & (counts[:-1] == counts[1:] + 1)
    return np.concatenate([[0], np.flatnonzero(~chained) + 1, [len(parent)]])


def _above(first: Index, parent: Index) -> Index:
    """Parent of every supernode, -1 above a root."""
    owner = np.repeat(np.arange(len(first) - 1), np.diff(first))
    top = parent[first[1:] - 1]
    return np.where(top >= 0, owner[top], -1)


def _arranged(
    indptr: Index, indices: Index, perm: Index, first: Index, above: Index, row_ptr: Index, rows: Index, joined: Index
) -> Supernodes:
    """Number the columns anew, so that those of joined supernodes are neighbors; then cut, place and point."""
    size, top = len(perm), joined == np.arange(len(joined))
    number = np.cumsum(top) - 1  # of the supernodes that others have joined; tops come after all that joined them
    group = number[joined]
    owner = np.repeat(group, np.diff(first))
    moved = np.argsort(owner, kind="stable")
    place = np.empty(size, np.int64)
    place[moved] = np.arange(size)
    widths = np.bincount(owner, minlength=int(top.sum()))
    first_out, ptr_out, rows_out = _cut(widths, np.flatnonzero(top), row_ptr, place[rows])
    perm = perm[moved]
    width, below = np.diff(first_out), np.diff(ptr_out)
    groups = -(-width // WIDTH) + -(-below // WIDTH)
    base = np.concatenate([[0], np.cumsum(groups * width)])
    owner = np.repeat(np.arange(len(width)), width)
    row, column = places(indptr, indices, perm)
    entry_to = np.empty(len(indices), np.int64)
    _point(row, column, first_out, base, ptr_out, rows_out, owner, entry_to)
    return Supernodes(perm, first_out, base, ptr_out, rows_out, owner, entry_to, row, column)


def _cut(widths: Index, tops: Index, row_ptr: Index, rows: Index) -> tuple[Index, Index, Index]:
    """Cut wide supernodes into panels: first pivots, row pointers and rows, ascending, of every panel."""
    pieces = -(-widths // WIDEST)
    ends = np.cumsum(widths)
    within = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = np.concatenate([np.repeat(ends - widths, pieces) + WIDEST * within, ends[-1:]])
    rest = np.repeat(ends, pieces) - first[1:]  # pivots of the same supernode in later panels
    own = (row_ptr[tops + 1] - row_ptr[tops])[np.repeat(np.arange(len(tops)), pieces)]
    ptr = np.concatenate([[0], np.cumsum(rest + own)])
    out = np.empty(ptr[-1], np.int64)
    _copy_rows(first, rest, np.repeat(row_ptr[tops], pieces), ptr, rows, out)
    return first, ptr, out


@compiled(nogil=True)
def _copy_rows(first, rest, start, ptr, rows, out):  # written: out
    for panel in range(len(rest)):
        p = ptr[panel]
        for k in range(rest[panel]):
            out[p + k] = first[panel + 1] + k
        own = ptr[panel + 1] - p - rest[panel]
        out[p + rest[panel] : ptr[panel + 1]] = np.sort(rows[start[panel] : start[panel] + own])


@compiled(nogil=True)
def _rows(indptr, indices, first, above, row_ptr, rows):  # written: rows
    """Rows below each supernode: those of its columns in the matrix, and those of its children that are not its pivots."""
    count = len(first) - 1
    child, sibling = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    mark = np.full(first[-1], -1, np.int64)
    for s in range(count):
        end, p = first[s + 1], row_ptr[s]
        for q in range(indptr[first[s]], indptr[end]):
            i = indices[q]
            if i >= end and mark[i] != s:
                mark[i] = s
                rows[p] = i
                p += 1
        c = child[s]
        while c >= 0:
            for q in range(row_ptr[c], row_ptr[c + 1]):
                i = rows[q]
                if i >= end and mark[i] != s:
                    mark[i] = s
                    rows[p] = i
                    p += 1
            c = sibling[c]
        if above[s] >= 0:
            sibling[s] = child[above[s]]
            child[above[s]] = s


@compiled(nogil=True)
def _cycles(width, below):
    """Predicted cycles of a panel; see the constants."""
    w, r = np.ceil(width / WIDTH), np.ceil(below / WIDTH)
    panel = _PANEL + _PIVOTS * w + _ROW * below
    eliminate = (r * w + 0.5 * w * w) * _ELIMINATE + _MULTIPLY * WIDTH * (0.5 * r * w * w + w * w * w / 6.0)
    update = 0.5 * r * (r + 1.0) * (_MULTIPLY * width + _ADD)
    return panel + eliminate + update + _STORE * width * (w + r)


@compiled(nogil=True)
def _amalgamate(width, below, above):
    """Supernode that each one has joined, itself if none: an ancestor, as long as this saves cycles.

    A supernode's rows lie in its parent's pivots and rows, so that together they have the rows of the parent.
    """
    count = len(width)
    joined, wide = np.arange(count), width.copy()
    child, sibling = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    for s in range(count):
        c = child[s]
        while c >= 0:
            apart = _cycles(wide[c], below[c]) + _cycles(wide[s], below[s])
            if _cycles(wide[c] + wide[s], below[s]) < apart:
                joined[c] = s
                wide[s] += wide[c]
            c = sibling[c]
        if above[s] >= 0:  # pushed in front: the nearest child, with the most rows, is tried first
            sibling[s] = child[above[s]]
            child[above[s]] = s
    for s in range(count - 1, -1, -1):
        joined[s] = joined[joined[s]]
    return joined


@compiled(nogil=True)
def _point(row, column, first, base, row_ptr, rows, owner, entry_to):  # written: entry_to
    """Where each entry lies in the factor."""
    for p in range(len(row)):
        panel = owner[column[p]]
        width = first[panel + 1] - first[panel]
        at = row[p] - first[panel]
        if at >= width:
            found = np.searchsorted(rows[row_ptr[panel] : row_ptr[panel + 1]], row[p])
            at = (width + WIDTH - 1) // WIDTH * WIDTH + found
        pack = base[panel] + at // WIDTH * width + column[p] - first[panel]
        entry_to[p] = pack * WIDTH + at % WIDTH
