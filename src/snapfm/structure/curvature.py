"""Order of nonlinearity: from the events a residual went through to the kind of each row and the Hessian's pattern."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from snapfm.structure.dependence import KINK, PARAMETRIC
from snapfm.structure.pattern import Pattern
from snapfm.structure.propagate import Walk
from snapfm.structure.sets import Index, Sets

# Above this many pairs a Hessian pattern is not written out: (Σu)² over 10⁴ unknowns would need 10⁸ of them.
PAIR_LIMIT = 20_000_000


class RowKind(IntEnum):
    """How a row depends on the field, from cheapest to dearest."""

    AFFINE = 0  # slopes never change
    PARAMETRIC = 1  # affine in the field, slopes depend on params
    SEPARABLE = 2  # a sum of functions of one unknown each: diagonal curvature (or kinks, which have none)
    GENERAL = 3  # unknowns multiply each other


@dataclass(frozen=True)
class Curvature:
    """Kind of each row, and where Σλ∇²h may be non-zero: `pattern` is None when too dense to write out."""

    kinds: Index
    pattern: Pattern | None

    @property
    def diagonal(self) -> bool:
        """Whether no two unknowns multiply each other in any row."""
        return not (self.kinds == RowKind.GENERAL).any()


def curvature(walk: Walk, unknowns: int) -> Curvature:
    """Classify the rows and collect the pairs of unknowns that live events join."""
    second = walk.residual.second
    rows, events = second.rows(), second.indices
    live = np.unique(events)
    diagonal, curved = _classify(walk, live)
    position = np.searchsorted(live, events)

    kinds = np.full(second.size, RowKind.AFFINE, np.int64)
    kinds[rows[events == PARAMETRIC]] = RowKind.PARAMETRIC
    bends = events != PARAMETRIC
    kinds[rows[bends]] = RowKind.SEPARABLE
    general = bends & curved[position] & ~diagonal[position]
    kinds[rows[general]] = RowKind.GENERAL
    return Curvature(kinds, _hessian(walk, live[curved], unknowns))


def bounded(pattern: Pattern) -> Curvature:
    """Bound the curvature by the Jacobian's pattern alone: each row may join all unknowns it names."""
    kinds = np.where(
        pattern.counts > 1, RowKind.GENERAL, np.where(pattern.counts == 1, RowKind.SEPARABLE, RowKind.AFFINE)
    )
    rows = Sets(pattern.indptr, pattern.indices, pattern.columns)
    if int((rows.counts**2).sum()) > PAIR_LIMIT:
        return Curvature(kinds.astype(np.int64), None)
    return Curvature(kinds.astype(np.int64), Pattern.from_coordinates(*_products(rows, rows), (pattern.columns,) * 2))


def _classify(walk: Walk, live: Index) -> tuple[np.ndarray, np.ndarray]:
    """Say of each live event whether it joins an unknown only with itself, and whether it bends at all."""
    diagonal, curved = np.zeros(len(live), bool), live > max(KINK, PARAMETRIC)
    for first, left, right in walk.events.blocks:
        inside = np.flatnonzero((live >= first) & (live < first + left.size))
        element = live[inside] - first
        single = (left.counts[element] == 1) & (right.counts[element] == 1)
        same = np.zeros(len(inside), bool)
        chosen = element[single]
        same[single] = left.indices[left.indptr[chosen]] == right.indices[right.indptr[chosen]]
        diagonal[inside] = same
    return diagonal, curved


def _hessian(walk: Walk, live: Index, unknowns: int) -> Pattern | None:
    row: list[Index] = [np.zeros(0, np.int64)]
    column: list[Index] = [np.zeros(0, np.int64)]
    budget = PAIR_LIMIT
    for first, left, right in walk.events.blocks:
        element = live[(live >= first) & (live < first + left.size)] - first
        budget -= int((left.counts[element] * right.counts[element]).sum())
        if budget < 0:
            return None
        one, other = _products(left.gather(element), right.gather(element))
        row += [one, other]
        column += [other, one]
    return Pattern.from_coordinates(np.concatenate(row), np.concatenate(column), (unknowns, unknowns))


def _products(left: Sets, right: Sets) -> tuple[Index, Index]:
    """List the pairs left[e] × right[e] of every element."""
    repeats = np.repeat(right.counts, left.counts)  # each left index meets the whole right set of its element
    one = np.repeat(left.indices, repeats)
    start = np.repeat(np.repeat(right.indptr[:-1], left.counts), repeats)
    ends = np.cumsum(repeats)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - repeats, repeats)
    return one, right.indices[start + within]
