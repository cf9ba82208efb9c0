"""Laws linearized at a field, and the nearest field in a metric that obeys them (math.md, eq. metric-step).

With Σ = δD + VVᵀ, where V holds the directions times their standard deviations, let S = J D Jᵀ, B = J V, M = δI + BᵀS⁻¹B. The
nearest field to y on h + J(u − p) = 0 is u = y − Vc − DJᵀ(q − S⁻¹Bc), with q = S⁻¹(h + J(y − p)) and c = M⁻¹Bᵀq. S is
factorized through the stages (solve.tangent); M has one row per direction. Nothing is divided by δ, which may be tiny.

Slopes that never change are factorized once per metric's directions. Samples are handled one by one, so that no bit depends on
the batch. Must not import solve.newton or project.projector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetrs
from scipy.sparse import csr_array

from snapfm.arrays import Index, Mask, Values
from snapfm.laws import Params
from snapfm.project.metric import Metric
from snapfm.solve.tangent import Tangent, Tangents

_TILE = 8  # samples that share a product of matrices
# Of LAPACK itself: for matrices this small, the checks of scipy.linalg take longer than the work.
Pivots = tuple[Values, Index]


@dataclass(frozen=True)
class TangentFrame:
    """The rows linearized at one field, with what the directions of a metric make of them."""

    jacobian: csr_array
    active: Mask  # (m,) rows that have to hold
    relative: Values  # (n,) D
    directions: Values  # (r, n)
    factor: Tangent | None  # of S; None without rows
    solved: Values  # (r, m) S⁻¹J times each direction
    inner: Values  # (r, r) the inner products of these and J times each direction
    _last: list[tuple[Metric, Pivots]] = field(default_factory=list)  # the last factor of M, and its metric

    @classmethod
    def of(
        cls, system: Tangents, jacobian: csr_array, relative: Values, directions: Values, along: Values, active: Mask
    ) -> TangentFrame:  # fmt: skip
        """Factorize, and solve for every direction; `along` (r, m) is J times each of them."""
        along[:, ~active] = 0.0
        if not len(active):
            inner = np.zeros((len(directions), len(directions)))
            return cls(jacobian, active, relative, directions, None, along, inner)
        factor = system.factor(jacobian, relative, active)
        solved = factor.solve(along)
        return cls(jacobian, active, relative, directions, factor, solved, along @ solved.T)

    def correction(self, rest: Values, metric: Metric, q: Values | None = None) -> tuple[Values, Values, Values]:
        """Return c·√variance (r,), the step (n,) to add, and δ times the multipliers (m,), for a linearized residual (m,).

        `q` is S⁻¹ times that of the active rows, where it is known.
        """
        if self.factor is None:
            return np.zeros(len(self.directions)), np.zeros(len(self.relative)), np.zeros(0)
        rest = np.where(self.active, rest, 0.0)
        q = self.factor.solve(rest[None])[0] if q is None else q
        amounts = np.zeros(0)
        if (pivots := self.pivots(metric)) is not None:
            amounts = metric.amounts(dgetrs(*pivots, metric.scaled(self.solved @ rest))[0])
        multipliers = q - amounts @ self.solved
        # Jᵀ times the multipliers, entry by entry: for small systems, making a transposed matrix takes longer than the rest.
        weight = self.jacobian.data * multipliers[self.row_of]
        step = -(self.relative * np.bincount(self.jacobian.indices, weight, len(self.relative)))
        return amounts, step, multipliers

    def pivots(self, metric: Metric) -> Pivots | None:
        """Factorize M, once for calls in a row with the same metric; None without directions."""
        if not len(self.directions):
            return None
        if not self._last or self._last[0][0] is not metric:
            factor, order, _ = dgetrf(self.middle(metric))
            self._last[:] = [(metric, (factor, order))]
        return self._last[0][1]

    @cached_property
    def row_of(self) -> Index:
        """The row of each entry of the Jacobian."""
        return np.repeat(np.arange(len(self.active)), np.diff(self.jacobian.indptr))

    def move(self, rest: Values, metric: Metric) -> Values:
        """Return what to add to a field (n,) so that a linearized residual (m,) vanishes."""
        amounts, step, _ = self.correction(rest, metric)
        found: Values = step - amounts @ self.directions
        return found

    def middle(self, metric: Metric) -> Values:
        """Return M (r, r)."""
        middle: Values = metric.scaled(metric.scaled(self.inner).T)
        middle[np.diag_indices(len(middle))] += metric.level
        return middle

    def evidence(self, rest: Values, metric: Metric) -> tuple[float, float]:
        """Return the squared length restᵀ(JΣJᵀ)⁻¹rest of a linearized residual (m,), and log det(JΣJᵀ)."""
        _, _, multipliers = self.correction(rest, metric)
        return float(np.where(self.active, rest, 0.0) @ multipliers) / metric.level, self.log_volume(metric)

    def log_volume(self, metric: Metric | None = None) -> float:
        """Return log det(J Σ Jᵀ) over the active rows, from the pivots of S and of M; log det S without a metric."""
        gram = 0.0 if self.factor is None else self.factor.log_determinant
        if metric is None:
            return gram
        level = math.log(metric.level)
        found = gram + level * float(self.active.sum())
        if len(self.directions):
            found += float(np.linalg.slogdet(self.middle(metric))[1]) - level * len(self.directions)
        return found


class LinearizedProjection:
    """Linearized laws in metrics that share their directions and the shape of their diagonal: one run of a sampler.

    Holds the frame that all samples share where slopes never change. Not shared by threads.
    """

    def __init__(self, system: Tangents, metric: Metric) -> None:
        self.system = system
        size = system.laws.unknowns
        self.directions = np.zeros((0, size)) if metric.directions is None else metric.rows
        self._columns = np.ascontiguousarray(self.directions.T)
        self.relative = metric.relative(size)
        self._shared: dict[bytes, TangentFrame] = {}
        self._steady: Values | None = None  # J times the directions in rows whose slopes never change: the same for all

    def frames(self, u: Values, params: Params, active: Mask | None = None) -> list[TangentFrame]:
        """Linearize at each field of u (b, n); `active` (b, m) marks the rows that have to hold, all if None."""
        every = np.ones(len(self.system.rows), bool)
        if self.system.constant and (active is None or bool((active == self.system.equality).all())):
            mask = every if active is None else self.system.equality
            if mask.tobytes() not in self._shared:
                one = {name: value[:1] for name, value in params.items()}
                (jacobian,) = self.system.jacobians(u[:1], one)
                self._shared[mask.tobytes()] = self._frame(jacobian, mask)
            return [self._shared[mask.tobytes()]] * len(u)
        return [
            self._frame(jacobian, every if active is None else active[i])
            for i, jacobian in enumerate(self.system.jacobians(u, params))
        ]

    def _frame(self, jacobian: csr_array, active: Mask) -> TangentFrame:
        return TangentFrame.of(self.system, jacobian, self.relative, self.directions, self._along(jacobian), active)

    def _along(self, jacobian: csr_array) -> Values:
        """Return J times each direction (r, m)."""
        changing = self.system.changing
        if self._steady is None or changing.all():
            self._steady = np.ascontiguousarray((jacobian @ self._columns).T)
            return self._steady.copy()
        found = self._steady.copy()
        found[:, changing] = (jacobian[changing] @ self._columns).T
        return found

    def chord(
        self, y: Values, at: Values, residuals: Values, metrics: Sequence[Metric], frames: Sequence[TangentFrame]
    ) -> tuple[Values, Values]:
        """Return the nearest fields to y (b, n) that obey rows with residuals (b, m) `at` (b, n), and δ·multipliers.

        Slopes are those of `frames`, which may belong to other fields, as in a chord step of Newton's method. `metrics` has one
        per sample; samples that share a frame and a metric share the factor of M.
        """
        rest = residuals.copy()
        found, multipliers = y.copy(), np.zeros(rest.shape)
        if at is not y:
            for i, frame in enumerate(frames):
                rest[i] += frame.jacobian @ (y[i] - at[i])
        if not rest.shape[1]:
            return found, multipliers
        amounts = np.zeros((len(y), len(self.directions)))
        solved: Sequence[Values | None] = [None] * len(frames)
        if frames and all(frame is frames[0] for frame in frames) and frames[0].factor is not None:
            solved = list(frames[0].factor.solve(np.where(frames[0].active, rest, 0.0)))
        for i, (frame, metric) in enumerate(zip(frames, metrics)):
            amounts[i], step, multipliers[i] = frame.correction(rest[i], metric, solved[i])
            found[i] += step
        found -= products(amounts, self.directions)
        return found, multipliers


def products(amounts: Values, directions: Values) -> Values:
    """Return amounts (b, r) times directions (r, n), in tiles of one size: a product of the whole batch has bits of its own."""
    found = np.empty((len(amounts), directions.shape[1]))
    tile = np.zeros((_TILE, len(directions)))
    for start in range(0, len(amounts), _TILE):
        some = amounts[start : start + _TILE]
        tile[: len(some)] = some
        found[start : start + _TILE] = (tile @ directions)[: len(some)]
    return found
