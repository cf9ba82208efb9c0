"""Presolve: unknowns that one row fixes, and rows that others repeat.

Reads the stacked pattern and the values of its constant rows. Redundant rows are dropped from the system with the weights that
rebuild them; the judge checks them at every call.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import SuperLU, splu

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.sparsity.pattern import ENTRY_LIMIT, Pattern, TooLarge, gram

# A row counts as rebuilt when its remainder is below this share of its norm: rounding of a few hundred terms.
REBUILT = 1e-10
# Keeps exactly singular Gram matrices factorable. Rounds of correction on the remainder remove its effect again, and
# recover the digits that solving with a Gram matrix costs.
SHIFT = 1e-13
_ROUNDS = 3


def factored(unit: csr_array) -> SuperLU:
    """Factor the Gram matrix of unit rows, a little shifted, without pivoting for size: the pivots mean distances.

    Raises TooLarge where there are too many entries to search for redundant rows.
    """
    shifted = (gram(unit, ENTRY_LIMIT) + SHIFT * diags_array(np.ones(unit.shape[0]))).tocsc()
    return splu(shifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


class Span:
    """The space of some unit rows; `offer` either rebuilds another row or adds it."""

    def __init__(self, basis: csr_array) -> None:
        self._basis = basis
        self._factor = factored(basis) if basis.shape[0] else None
        self._directions: list[Values] = []  # orthonormal, one per row taken in later
        self._recipes: list[Values] = []  # each direction as weights over basis and rows taken in
        self.size = basis.shape[0]

    def offer(self, row: Values) -> Values | None:
        """Return the weights that rebuild a unit row, or add the row to the space and return None."""
        weights, rest = np.zeros(self.size), row.copy()
        for _ in range(_ROUNDS):
            if self._factor is not None:
                correction = self._factor.solve(self._basis @ rest)
                weights[: len(correction)] += correction
                rest -= self._basis.T @ correction
            for direction, recipe in zip(self._directions, self._recipes):
                share = float(direction @ rest)
                weights[: len(recipe)] += share * recipe
                rest -= share * direction
        left = float(np.linalg.norm(rest))
        if left <= REBUILT:
            return weights
        self._directions.append(rest / left)
        self._recipes.append(np.append(-weights, 1.0) / left)
        self.size += 1
        return None


# A pivot of the unit-diagonal Gram matrix below this hints at a dependent row, and a hint is confirmed by rebuilding the
# row. Honest pivots of the benchmark sets stay above 1e-3 (explicit and implicit heat rows, 9 901 of them); a vanishing
# pivot shows as the shift divided by the small ones before it, so the hint has to stand well above the shift.
_PIVOT_HINT = 1e-6
# Above this many rows the factorisation behind the search costs more than redundant rows do.
SEARCH_LIMIT = 20_000


@dataclass(frozen=True)
class Redundancy:
    """One dropped row, and the kept rows with the weights that rebuild it."""

    row: int
    rows: Index
    weights: Values


@dataclass(frozen=True)
class Presolve:
    """`fixed[i]` is pinned by row `pins[i]` alone; `redundant` rows are dropped; `kept` rows remain to be solved."""

    fixed: Index
    pins: Index
    redundant: tuple[Redundancy, ...]
    kept: Index
    searched: bool

    @property
    def dropped(self) -> Index:
        """Rows that are dropped as redundant."""
        return np.array([one.row for one in self.redundant], np.int64)


def presolve(pattern: Pattern, values: Values, constant: Mask) -> Presolve:
    """Search the rows marked `constant` (their values never change); all others are kept as they are."""
    row = pattern.row_of()
    counts = np.bincount(row[~constant[row] | (values != 0)], minlength=pattern.rows)  # entries that can be non-zero
    fixed, pins = _pinned(pattern, values, constant & (counts == 1))
    matrix = pattern.csr(np.where(constant[row], values, 0.0))
    others = np.setdiff1d(np.flatnonzero(constant), pins)
    redundant: list[Redundancy] = []
    searched = len(others) <= SEARCH_LIMIT
    if searched and len(others):
        try:
            redundant = _dependent(matrix, pins, fixed, others)
        except TooLarge:
            searched = False
    kept = np.setdiff1d(np.arange(pattern.rows), [*pins, *(one.row for one in redundant)]).astype(np.int64)
    return Presolve(fixed, pins, tuple(redundant), kept, searched)


def dependent_rows(matrix: csr_array) -> Index:
    """Find rows of a constant matrix that earlier rows rebuild, or that are zero; none where that is too much to search."""
    none = np.zeros(0, np.int64)
    try:
        found = _dependent(matrix, none, none, np.arange(matrix.shape[0]))
    except TooLarge:
        return none
    return np.array([one.row for one in found], np.int64)


def _pinned(pattern: Pattern, values: Values, single: Mask) -> tuple[Index, Index]:
    """Take the first row that pins each unknown; a second one is left to the search, which finds it redundant."""
    row = pattern.row_of()
    entry = np.flatnonzero(single[row] & (values != 0))
    fixed, first = np.unique(pattern.indices[entry], return_index=True)
    order = np.argsort(row[entry[first]], kind="stable")
    return fixed[order], row[entry[first]][order]


def _dependent(matrix: csr_array, pins: Index, fixed: Index, others: Index) -> list[Redundancy]:
    """Find, among `others`, the rows that pinned unknowns and earlier rows rebuild."""
    free = np.ones(matrix.shape[1])
    free[fixed] = 0.0
    reduced = csr_array(matrix[others] @ diags_array(free))
    norms = np.sqrt(np.asarray(reduced.multiply(reduced).sum(axis=1)).ravel())
    scale = np.sqrt(np.asarray(matrix[others].multiply(matrix[others]).sum(axis=1)).ravel())
    empty = norms <= REBUILT * np.maximum(scale, np.finfo(float).tiny)
    found = [
        _rebuilt(matrix, pins, fixed, others[i], np.zeros(0, np.int64), np.zeros(0)) for i in np.flatnonzero(empty)
    ]

    alive = np.flatnonzero(~empty)
    if len(alive) == 0:
        return found
    unit = csr_array(diags_array(1 / norms[alive]) @ reduced[alive])
    factor = factored(unit)
    small = np.abs(factor.U.diagonal()) < _PIVOT_HINT
    hinted = np.sort(np.argsort(factor.perm_c)[small])
    if not len(hinted):
        return found
    taken = np.setdiff1d(np.arange(len(alive)), hinted)
    span = Span(csr_array(unit[taken]))
    for i in hinted:
        weights = span.offer(np.asarray(unit[[i]].todense()).ravel())
        if weights is None:
            taken = np.append(taken, i)
        else:
            scaled = weights * norms[alive[i]] / norms[alive[taken]]
            found.append(_rebuilt(matrix, pins, fixed, others[alive[i]], others[alive[taken]], scaled))
    return sorted(found, key=lambda one: one.row)


def _rebuilt(matrix: csr_array, pins: Index, fixed: Index, row: int, rows: Index, weights: Values) -> Redundancy:
    """Complete the weights with those of the pinning rows, whose unknowns the reduced system left out."""
    target = np.asarray(matrix[[row]].todense()).ravel()
    rest = target - matrix[rows].T @ weights if len(rows) else target
    # Rounding errors of an unknown that the other rows account for are no share of the row that pins it.
    used = np.flatnonzero(np.abs(rest[fixed]) > REBUILT * np.abs(target).max(initial=0.0))
    pin_values = np.asarray(matrix[pins[used]].sum(axis=1)).ravel() if len(used) else np.zeros(0)
    pin_weights = rest[fixed[used]] / pin_values
    significant = np.abs(weights) > REBUILT * max(1.0, float(np.abs(weights).max(initial=0.0)))
    return Redundancy(
        int(row),
        np.concatenate([pins[used], rows[significant]]).astype(np.int64),
        np.concatenate([pin_weights, weights[significant]]),
    )
