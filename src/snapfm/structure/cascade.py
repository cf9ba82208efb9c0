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
from snapfm.structure.reads import Reads


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


def cascade(rows: csr_array, found: Reads, usable: Mask) -> Cascade:
    """Fix unknowns round by round, using the rows marked `usable` (equalities)."""
    n = found.all.width
    by_unknown, nonlinear = csr_array(found.all.csr().T), found.nonlinear.csr()
    count = found.all.counts.copy()
    total = np.bincount(found.all.rows(), weights=found.all.indices, minlength=found.all.size).astype(np.int64)
    free, unused = np.ones(n, bool), np.ones(found.all.size, bool)
    levels: list[Level] = []
    ready = np.flatnonzero(usable & (count == 1))
    while len(ready):
        unknown = total[ready]  # the sum over a row's free unknowns is its only one
        weight = np.asarray(rows[ready, unknown]).ravel()
        straight = (weight != 0) & ~np.asarray(nonlinear[ready, unknown]).ravel()
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
        ready = np.flatnonzero(usable & unused & (count == 1))
    implied = np.flatnonzero(unused & (count == 0))
    return Cascade(tuple(levels), implied, free)
