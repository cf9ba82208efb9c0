"""Cascading presolve: rows left with one free unknown that enters linearly determine it, and may leave the next row with one.

An initial condition fixes a slice; an explicit time step then fixes most of the next, and so on: those rows become
substitutions in a fixed order, found once and evaluated per call. Consumes a tape's rows; looks at no values but the
constant coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.lower.tape import Tape
from snapfm.compile.sparsity.pattern import Sets
from snapfm.compile.sparsity.reads import Reads


@dataclass(frozen=True)
class Level:
    """Rows that can be evaluated once all earlier levels are: unknown[i] −= row[i] / weight[i]."""

    rows: Index
    unknowns: Index
    weights: Values


@dataclass(frozen=True)
class Cascade:
    """`levels` in order; `implied` rows have no free unknown left and are only checked; `free` marks what remains."""

    levels: tuple[Level, ...]
    implied: Index
    free: Mask

    def pinned_rows(self) -> Index:
        """Rows used up as substitutions, level by level."""
        return np.concatenate([np.zeros(0, np.int64), *(level.rows for level in self.levels)])


def cascade(tape: Tape, rows: csr_array, found: Reads, usable: Mask) -> Cascade:
    """Fix unknowns round by round, using the rows marked `usable` (equalities)."""
    n = found.all.width
    by_unknown = csr_array(found.all.csr().T)
    direct = csr_array(rows[:, tape.unknown_cells])
    # Entries by row and column; SciPy looks through the whole matrix at every question.
    keys, curved = _keys(direct, n), _keys(found.nonlinear, n)
    count = found.all.counts.copy()
    total = np.bincount(found.all.rows(), weights=found.all.indices, minlength=found.all.size).astype(np.int64)
    free, unused = np.ones(n, bool), np.ones(found.all.size, bool)
    levels: list[Level] = []
    ready = np.flatnonzero(usable & (count == 1))
    while len(ready):
        unknown = total[ready]  # the sum over a row's free unknowns is its only one
        place, straight = _found(keys, ready * n + unknown)
        straight &= ~_found(curved, ready * n + unknown)[1]
        ready, unknown, weight = ready[straight], unknown[straight], direct.data[place[straight]]
        unknown, first = np.unique(unknown, return_index=True)
        ready, weight = ready[first], weight[first]
        if not len(ready):
            break
        levels.append(Level(ready, unknown, weight))
        free[unknown], unused[ready] = False, False
        touched = by_unknown[unknown]
        label = np.repeat(unknown, np.diff(touched.indptr))
        np.subtract.at(count, touched.indices, 1)
        np.subtract.at(total, touched.indices, label)
        # A row that no unknown left has been looked at: only those that changed can have become ready.
        ready = np.sort(touched.indices[(count[touched.indices] == 1)])
        ready = ready[np.diff(ready, prepend=-1) != 0].astype(np.int64)
        ready = ready[usable[ready] & unused[ready]]
    implied = np.flatnonzero(unused & (count == 0))
    return Cascade(tuple(levels), implied, free)


def _keys(matrix: csr_array | Sets, width: int) -> Index:
    """Return one number for every entry (row, column), ascending; the last one stands for none."""
    row = np.repeat(np.arange(len(matrix.indptr) - 1), np.diff(matrix.indptr))
    return np.append(row * width + matrix.indices, np.iinfo(np.int64).max)


def _found(keys: Index, wanted: Index) -> tuple[Index, Mask]:
    """Return where keys are, and which of them are there."""
    place = np.searchsorted(keys, wanted)
    return place, keys[place] == wanted
