"""Bordered: matrices of which all but a few rows are the same for all samples and calls.

Divergence-free fields with a given energy, for example: AAᵀ of the divergence is constant, the row of the energy is not.

    [[K, B], [Bᵀ, C]] = [[I, 0], [BᵀK⁻¹, I]] [[K, B], [0, C − BᵀK⁻¹B]]

K is factorized once, when it is prepared. A factorization of a tile solves with it for the columns of B and factorizes a dense
matrix of the border's size; a solve takes one solve with K. Not a Solver of the seam: it needs the values of K beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.kernels.factor.ordering import Order
from snapfm.linear.base import TINY, Outcome, Pivots, Workspace
from snapfm.linear.fronts import Factor, Fronts

# Columns of B that changed by less than this share of their size are not solved for again: the factors are then as exact as
# rounding in a column leaves them.
_SAME = 1e-13


@dataclass(frozen=True)
class PreparedBordered:
    """The factor of K, and where the entries of B and C are among those of the pattern."""

    pattern: Pattern
    order: Order
    factor: Factor
    inner: Index  # rows of K
    border: Index  # the other rows
    entry: Index  # (of B) place among the values,
    line: Index  # row of K,
    column: Index  # and column of B
    corner: Index  # (k, k) place of the entries of C; −1 where there is none

    @classmethod
    def of(cls, pattern: Pattern, values: Values, border: Index, largest: float = math.inf) -> PreparedBordered:
        """Factorize K: all rows but those of the border, with these values (nnz,). Raises TooLarge, like Fronts."""
        inner = np.setdiff1d(np.arange(pattern.rows), border)
        place = np.full(pattern.rows, -1)
        place[inner] = np.arange(len(inner))
        other = np.full(pattern.rows, -1)
        other[border] = np.arange(len(border))
        row, column = pattern.row_of(), pattern.indices
        both = (place[row] >= 0) & (place[column] >= 0)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(place[row[both]], minlength=len(inner)))]).astype(np.int64)
        prepared = Fronts(largest).prepare(Pattern(len(inner), len(inner), indptr, place[column[both]]))
        between = np.flatnonzero((place[row] >= 0) != (place[column] >= 0))
        first, second = row[between], column[between]
        line = np.where(place[first] >= 0, place[first], place[second])
        side = np.where(other[first] >= 0, other[first], other[second])
        corner = np.full((len(border), len(border)), -1)
        inside = np.flatnonzero((other[row] >= 0) & (other[column] >= 0))
        corner[other[row[inside]], other[column[inside]]] = inside
        corner = np.maximum(corner, corner.T)
        return cls(pattern, prepared.order, prepared.factor(values[both]), inner, border, between, line, side, corner)

    def workspace(self) -> BorderedWorkspace:
        """Make a workspace with memory of its own."""
        return BorderedWorkspace(self)


class BorderedWorkspace(Workspace):
    """Per lane the columns of B, K⁻¹B, and the factor of C − BᵀK⁻¹B."""

    def __init__(self, prepared: PreparedBordered) -> None:
        super().__init__(prepared.pattern)
        self.prepared = prepared
        self._columns = np.zeros((0, len(prepared.border), len(prepared.inner)))  # (lanes, k, rows of K)
        self._solved = np.zeros_like(self._columns)
        self._lower = np.zeros((0, len(prepared.border), len(prepared.border)))
        self._inverse = np.zeros((0, len(prepared.border)))

    def _factorize(self, values: Values, found: Pivots, live: Mask, stop: Index) -> None:
        prepared, lanes = self.prepared, values.shape[1]
        size = len(prepared.border)
        if len(self._columns) != lanes:
            self._columns = np.full((lanes, size, len(prepared.inner)), np.nan)
            self._solved = np.zeros_like(self._columns)
            self._lower, self._inverse = np.zeros((lanes, size, size)), np.zeros((lanes, size))
        columns = np.zeros_like(self._columns)
        columns[:, prepared.column, prepared.line] = values[prepared.entry].T
        with np.errstate(invalid="ignore"):
            moved = np.abs(columns - self._columns).max(axis=2, initial=0.0)
            new = live[:, None] & ~(moved <= _SAME * np.abs(columns).max(axis=2, initial=0.0))
        if new.any():
            self._columns[new] = columns[new]
            self._solved[new] = prepared.factor.solve(columns[new])
        corner = np.where(prepared.corner[..., None] >= 0, values[prepared.corner], 0.0).transpose(2, 0, 1)
        schur = corner - np.einsum("lin,ljn->lij", self._columns, self._solved)
        self._eliminate(schur, np.diagonal(corner, axis1=1, axis2=2), found)

    def _eliminate(self, schur: Values, scale: Values, found: Pivots) -> None:
        """Factorize the dense matrices of all lanes. Written: found."""
        lower, inverse = self._lower, self._inverse
        found.negative[:], found.weak[:], found.smallest[:] = 0, 0, np.inf
        found.status[:] = Outcome.FACTORED
        for j in range(schur.shape[1]):
            pivot = schur[:, j, j].copy()
            weak = np.abs(pivot) <= TINY * np.abs(scale[:, j])
            found.negative[:] += ~weak & (pivot < 0)
            found.weak[:] += weak
            found.smallest[:] = np.fmin(found.smallest, np.abs(pivot))
            inverse[:, j] = np.where(weak, 0.0, 1.0 / np.where(weak, 1.0, pivot))
            lower[:, j:, j] = schur[:, j:, j] * inverse[:, j, None]
            schur = (
                schur - lower[:, :, j, None] * schur[:, None, :, j] * (np.arange(schur.shape[1]) >= j)[None, :, None]
            )
        found.status[found.weak > 0] = Outcome.SINGULAR
        found.status[~np.isfinite(inverse).all(axis=1)] = Outcome.NONFINITE

    def _solve(self, rhs: Values, out: Values) -> None:
        prepared = self.prepared
        inner = np.ascontiguousarray(rhs[prepared.inner].T)
        asked = np.flatnonzero(inner.any(axis=1))  # a zero needs no solve
        solved = np.zeros_like(inner)
        if len(asked):
            solved[asked] = prepared.factor.solve(inner[asked])
        right = rhs[prepared.border].T - np.einsum("lin,ln->li", self._solved, inner)
        border = self._substitute(right)
        out[prepared.inner] = (solved - np.einsum("lin,li->ln", self._solved, border)).T
        out[prepared.border] = border.T

    def _substitute(self, right: Values) -> Values:
        """Solve with the dense factors (lanes, k)."""
        lower, x, size = self._lower, right.copy(), right.shape[1]
        for j in range(size):
            x[:, j + 1 :] -= lower[:, j + 1 :, j] * x[:, j, None]
        x *= self._inverse
        for j in range(size - 1, -1, -1):
            x[:, j] -= (lower[:, j + 1 :, j] * x[:, j + 1 :]).sum(axis=1)
        return x

    def _log_determinant(self, lanes: int) -> Values:
        with np.errstate(divide="ignore"):
            inner = np.log(np.abs(self.prepared.factor.inverse)).sum()
            own: Values = -np.log(np.abs(self._inverse)).sum(axis=1) - inner
        return own
