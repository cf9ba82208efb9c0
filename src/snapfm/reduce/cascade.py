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
    coefficient, curved = _Lookup.of_matrix(csr_array(rows[:, tape.unknown_cells])), _Lookup.of_sets(found.nonlinear)
    count = found.all.counts.copy()
    total = np.bincount(found.all.rows(), weights=found.all.indices, minlength=found.all.size).astype(np.int64)
    free, unused = np.ones(n, bool), np.ones(found.all.size, bool)
    levels: list[Level] = []
    ready = np.flatnonzero(usable & (count == 1))
    while len(ready):
        unknown = total[ready]  # the sum over a row's free unknowns is its only one
        weight = coefficient.at(ready, unknown)
        straight = (weight != 0) & (curved.at(ready, unknown) == 0)
        ready, unknown, weight = ready[straight], unknown[straight], weight[straight]
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


@dataclass(frozen=True)
class _Lookup:
    """The entries of a sparse matrix by row and column; SciPy looks through the whole matrix at every question."""

    keys: Index
    values: Values
    width: int

    @classmethod
    def of_matrix(cls, matrix: csr_array) -> _Lookup:
        """Take a matrix with sorted indices."""
        row, width = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)), matrix.shape[1]
        return cls(row * width + matrix.indices, matrix.data, width)

    @classmethod
    def of_sets(cls, sets: Sets) -> _Lookup:
        """Give every index of a set the value 1."""
        return cls(sets.rows() * sets.width + sets.indices, np.ones(sets.nnz), sets.width)

    def at(self, row: Index, column: Index) -> Values:
        """Return entries, zero where there is none."""
        if not len(self.keys):
            return np.zeros(len(row))
        key = row * self.width + column
        place = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return np.where(self.keys[place] == key, self.values[place], 0.0)
