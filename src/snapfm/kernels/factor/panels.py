"""Panels: columns of the factor in dense groups of four, and the schedule of every update between them.

Four columns by eight lanes keep all operands of an update in registers, whatever the pattern; groups that are not full
are padded with phantom columns, and a group's rows are the union of its columns' rows. Which neighbors share a group
is decided by dynamic programming against a cost in cycles. Reads a pattern and an order; returns a Schedule, all that
kernels.factor.ldl needs to know. Never reads values. Imports kernels.factor.symbolic only.

The factor of one tile is a flat array of packs: first four zeros, read in place of absent columns, then panel by panel
its head and its rows of four packs. The head is the diagonal block, four rows of four; a panel of leaves, which nothing
is subtracted from, has four diagonal entries for a head. Unknowns live in slots: column c of panel k has slot 4k + c.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from snapfm.arrays import Index
from snapfm.kernels.factor.symbolic import columns, permuted, postorder, tree
from snapfm.kernels.numba.compiling import compiled

PANEL = 4
BLOCK = PANEL * PANEL

# Predicted cycles of one tile: of a panel, of one of leaves, of each row below it, of each pair of such rows. Counted from
# the instructions. Halving or doubling any of them moves hardly a panel on the Burgers and grid patterns.
_CYCLES = (150.0, 75.0, 12.0, 2.0)


class Schedule(NamedTuple):
    """What to do with the values of one pattern, in which sequence: structure only, shared by all lanes and calls."""

    slot: Index  # (n,) slot of each unknown
    base: Index  # (panels + 1,) first pack of each panel in the factor
    head: Index  # (panels,) packs before its rows: BLOCK, or PANEL for leaves
    width: Index  # (panels,) columns that are not phantoms
    row_ptr: Index  # (panels + 1,)
    rows: Index  # slots of the rows below each panel, ascending
    update_ptr: Index  # (panels + 1,) updates each panel receives, one per earlier panel that reaches it
    # (updates, 8): pack of the first row read, in the earlier panel; rows from there on; where its targets begin; first slot of
    # the earlier panel; four packs of its rows that are the columns of this panel (0, a row of zeros, for absent ones)
    updates: Index
    targets: Index  # pack of the row that each row of an update is subtracted from
    entry_ptr: Index  # (panels + 1,) entries of the given matrix, by the panel they fall into:
    entry_from: Index  # (nnz,) their place among the given values,
    entry_to: Index  # (nnz,) their pack,
    entry_row: Index  # (nnz,) slot of their row
    entry_column: Index  # (nnz,) and of their column

    @property
    def packs(self) -> int:
        """Length of the factor of one tile."""
        return int(self.base[-1])

    @property
    def slots(self) -> int:
        """Unknowns including phantoms."""
        return PANEL * len(self.width)


def schedule(indptr: Index, indices: Index, perm: Index) -> Schedule:
    """Plan the factorization of a lower triangle (by rows, diagonal included) in the order `perm`."""
    found = tree(*permuted(indptr, indices, perm)[:2])
    perm = perm[postorder(found)]
    lower_ptr, lower, source = permuted(indptr, indices, perm)
    found = tree(lower_ptr, lower)
    column_ptr, column_rows = columns(lower_ptr, lower, found)
    leaf = np.ones(len(perm), bool)
    leaf[found.parent[found.parent >= 0]] = False
    first = _partition(found.parent, leaf, column_ptr, column_rows, _CYCLES)
    width = np.diff(first)
    head = np.where(np.logical_and.reduceat(leaf, first[:-1]), PANEL, BLOCK)
    panel = np.repeat(np.arange(len(width)), width)
    slot = PANEL * panel + np.arange(len(perm)) - first[panel]
    row_ptr, rows = _rows(first, column_ptr, column_rows, slot)
    base = PANEL + np.concatenate([[0], np.cumsum(head + PANEL * np.diff(row_ptr))])
    reached, updates, targets = _updates(row_ptr, rows, base, base[:-1] + head)
    update_ptr = np.concatenate([[0], np.cumsum(np.bincount(reached, minlength=len(width)))])
    updates = np.ascontiguousarray(updates[np.argsort(reached, kind="stable")])

    row, column = np.repeat(slot, np.diff(lower_ptr)), slot[lower]
    pack = _locate(row_ptr, rows, base, head, row, column)
    by_panel = np.argsort(pack, kind="stable")
    entry_ptr = np.searchsorted(pack[by_panel], base)
    place = np.empty(len(perm), np.int64)
    place[perm] = slot
    return Schedule(
        place, base, head, width, row_ptr, rows, update_ptr, updates, targets, entry_ptr,
        source[by_panel], pack[by_panel], row[by_panel], column[by_panel],
    )  # fmt: skip


def _locate(row_ptr: Index, rows: Index, base: Index, head: Index, row: Index, column: Index) -> Index:
    """Packs of single entries (slots of row and column)."""
    panel, c, slots = column // PANEL, column % PANEL, PANEL * len(head)
    key = np.repeat(np.arange(len(head)), np.diff(row_ptr)) * slots + rows
    line = np.searchsorted(key, panel * slots + row) - row_ptr[panel]
    inside = np.where(head[panel] == BLOCK, PANEL * (row % PANEL) + c, c)
    return base[panel] + np.where(row // PANEL == panel, inside, head[panel] + PANEL * line + c)


@compiled(nogil=True)
def _partition(parent, leaf, column_ptr, column_rows, cycles):
    """First column of each panel, and the end: the cheapest cut of the columns into groups of one to four.

    A group may hold any neighbors whose parents outside it are one and the same column p: all their rows then lie in
    the column of p, so that every entry an update touches exists.
    """
    size = len(parent)
    cost = np.full(size + 1, np.inf)
    cost[0] = 0.0
    width = np.zeros(size + 1, np.int64)
    mark = np.full(size, -1, np.int64)
    for start in range(size):
        count = 0
        leaves = True
        for last in range(start, min(start + PANEL, size)):
            leaves = leaves and leaf[last]
            if mark[last] == start:
                count -= 1
            mark[last] = start
            for p in range(column_ptr[last], column_ptr[last + 1]):
                if mark[column_rows[p]] != start:
                    mark[column_rows[p]] = start
                    count += 1
            outside = -1
            closed = True
            for j in range(start, last + 1):
                if parent[j] > last:
                    closed = closed and (outside == -1 or outside == parent[j])
                    outside = parent[j]
            own = cycles[1] if leaves else cycles[0]
            total = cost[start] + own + cycles[2] * count + cycles[3] * count * count
            if closed and total < cost[last + 1]:
                cost[last + 1] = total
                width[last + 1] = last + 1 - start
    panels = 0
    end = size
    while end > 0:
        panels += 1
        end -= width[end]
    first = np.empty(panels + 1, np.int64)
    end = size
    for k in range(panels, -1, -1):
        first[k] = end
        end -= width[end]
    return first


def _rows(first: Index, column_ptr: Index, column_rows: Index, slot: Index) -> tuple[Index, Index]:
    """Slots of the rows below each panel, ascending: its columns' rows, merged. Pointers and slots."""
    size, panels = len(slot), len(first) - 1
    panel = np.repeat(np.arange(panels), np.diff(column_ptr[first]))
    below = column_rows >= first[panel + 1]
    keys = np.sort(panel[below] * size + column_rows[below], kind="stable")  # runs in order already
    keys = keys[np.diff(keys, prepend=-1) != 0]
    return np.concatenate([[0], np.cumsum(np.bincount(keys // size, minlength=panels))]), slot[keys % size]


@compiled(nogil=True)
def _updates(row_ptr, rows, base, below):
    """For every pair of a panel and a later panel it reaches: the later one, what is read, where it is subtracted."""
    reached = np.zeros(0, np.int64)
    updates = np.zeros((0, 8), np.int64)
    targets = np.zeros(0, np.int64)
    for fill in (False, True):  # count, then fill
        count = 0
        length = 0
        for k in range(len(row_ptr) - 1):
            begin, end = row_ptr[k], row_ptr[k + 1]
            while begin < end:
                later = rows[begin] // PANEL
                stop = begin
                while stop < end and rows[stop] // PANEL == later:
                    if fill:
                        updates[count, 4 + rows[stop] % PANEL] = below[k] + PANEL * (stop - row_ptr[k])
                    stop += 1
                if fill:
                    reached[count] = later
                    updates[count, 0] = below[k] + PANEL * (begin - row_ptr[k])
                    updates[count, 1] = end - begin
                    updates[count, 2] = length
                    updates[count, 3] = PANEL * k
                    _place(row_ptr, rows, base[later], later, rows[begin:end], targets[length:])
                count += 1
                length += end - begin
                begin = stop
        if not fill:
            reached = np.empty(count, np.int64)
            updates = np.zeros((count, 8), np.int64)
            targets = np.empty(length, np.int64)
    return reached, updates, targets


@compiled(nogil=True)
def _place(row_ptr, rows, base, panel, wanted, out):  # written: out
    """Packs at which the wanted rows (slots, ascending) of a panel begin; leaves are never asked for."""
    at = row_ptr[panel]
    for i in range(len(wanted)):
        if wanted[i] // PANEL == panel:
            out[i] = base + PANEL * (wanted[i] % PANEL)
        else:
            while rows[at] != wanted[i]:
                at += 1
                assert at < row_ptr[panel + 1]  # a group that was not closed: see _partition
            out[i] = base + BLOCK + PANEL * (at - row_ptr[panel])
