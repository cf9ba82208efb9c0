"""The sample's problem and its values at a point: rows, slopes, curvature, violation, objective, optimality.

Rows are scaled down where they are steep; the barrier is the iterations' to lower. May import interior.point.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, diags_array

from snapfm.project.interior.point import Mask, Point, Trial, Values
from snapfm.project.limits import Limits
from snapfm.project.oracle import Oracle

STATIONARY = 1e-9  # asked of u − û + Jᵀλ before an answer counts as found: a thousandth of what the judge allows
_FIRST_BARRIER = 0.1
_INSIDE = 1e-2  # how far from its bounds a start is put, relative to their size
_NEAREST = 16 * np.finfo(float).eps  # how near to a bound a step may come, relative to the bound
_STEEP = 100.0  # rows whose slopes exceed this are scaled down to it


class Problem:
    """One sample's target, laws and bounds. `scale` and `barrier` change, all else stays."""

    def __init__(self, oracle: Oracle, limits: Limits, equality: Mask, target: Values, tolerance: float) -> None:
        self.oracle, self.target, self.tolerance = oracle, target, tolerance
        self.lower, self.upper, self.equality = limits.lower, limits.upper, equality
        self.fixed = self.lower == self.upper
        self.has_low, self.has_high = np.isfinite(self.lower) & ~self.fixed, np.isfinite(self.upper) & ~self.fixed
        # Steps come no nearer to a bound than rounding can tell.
        near = [
            _NEAREST * np.where(np.isfinite(bound), np.maximum(1.0, np.abs(bound)), 0.0)
            for bound in (self.lower, self.upper)
        ]
        self._floor = np.where(self.has_low, self.lower + near[0], self.lower)
        self._ceiling = np.where(self.has_high, self.upper - near[1], self.upper)
        self.unequal = np.flatnonzero(~equality)
        self.scale = np.ones(len(equality))
        self.inner = bool(self.has_low.any() or self.has_high.any() or len(self.unequal))
        self.barrier = _FIRST_BARRIER if self.inner else 0.0

    def set_scale(self, slopes: csr_array) -> None:
        """Scale rows by the laws' own slopes at the start."""
        steepest = abs(slopes).max(axis=1).toarray().ravel() if slopes.nnz else np.zeros(len(self.equality))
        self.scale = _STEEP / np.maximum(_STEEP, steepest)

    # The laws.

    def rows(self, u: Values) -> Values:
        """The laws' residuals, scaled."""
        value: Values = self.scale * self.oracle.residual(u)
        return value

    def own_slopes(self, u: Values) -> csr_array | None:
        """The laws' own slopes, without those of fixed unknowns; None where they are not finite."""
        matrix = self.oracle.jacobian(u)
        if not np.isfinite(matrix.data).all():
            return None
        return csr_array(matrix @ diags_array((~self.fixed).astype(float))) if self.fixed.any() else matrix

    def scaled(self, slopes: csr_array) -> csr_array:
        """Slopes of the scaled rows."""
        return csr_array(diags_array(self.scale) @ slopes)

    def bend(self, u: Values, weight: Values) -> csr_array:
        """Σ weight ∇²row without fixed unknowns; none where it is not finite."""
        bend = self.oracle.hessian(u, self.scale * weight)[0]
        if not np.isfinite(bend.data).all():
            return csr_array(bend.shape)
        free = diags_array((~self.fixed).astype(float))
        return csr_array(free @ bend @ free) if self.fixed.any() else bend

    def constraint(self, rows: Values, s: Values) -> Values:
        """Rows with their slacks: zero where the laws hold."""
        off = rows.copy()
        off[self.unequal] += s
        return off

    def violation(self, rows: Values) -> float:
        """In the laws' own units."""
        own = np.where(self.equality, np.abs(rows), np.maximum(rows, 0.0)) / self.scale
        return float(own.max(initial=0.0))

    # The bounds.

    def below(self, u: Values) -> Values:
        """Room down to the lower bounds, infinite where there are none."""
        return np.where(self.has_low, u - self.lower, np.inf)

    def above(self, u: Values) -> Values:
        """Room up to the upper bounds, infinite where there are none."""
        return np.where(self.has_high, self.upper - u, np.inf)

    def put_inside(self, u: Values) -> Values:
        """Put a start a little inside its bounds, and fixed unknowns where they have to be."""
        low = np.where(self.has_low, self.lower, 0.0)
        high = np.where(self.has_high, self.upper, 0.0)
        width = np.where(self.has_low & self.has_high, high - low, np.inf)
        u = np.where(self.has_low, np.maximum(u, low + _INSIDE * np.minimum(np.maximum(1.0, np.abs(low)), width)), u)
        u = np.where(self.has_high, np.minimum(u, high - _INSIDE * np.minimum(np.maximum(1.0, np.abs(high)), width)), u)
        return np.where(self.fixed, self.lower, u)

    def first_slack(self, rows: Values) -> Values:
        """Slacks of a start: what its inequalities leave, or a little."""
        return np.maximum(-rows[self.unequal], _INSIDE)

    def kept_inside(self, u: Values) -> Values:
        """Keep unknowns where rounding can still tell them from their bounds."""
        return np.maximum(np.minimum(u, self._ceiling), self._floor) if self.inner else u

    def kept_open(self, slack: Values) -> Values:
        """Keep slacks where rounding can still tell them from zero."""
        return np.maximum(slack, _NEAREST)

    def central(self, u: Values, s: Values, weight: Values) -> Point:
        """Complete a point with the multipliers of slacks and bounds on the central path: barrier / room."""
        return Point(
            u, s, weight, self.barrier / s,
            np.where(self.has_low, self.barrier / self.below(u), 0.0),
            np.where(self.has_high, self.barrier / self.above(u), 0.0),
        )  # fmt: skip

    # What a point is worth.

    def size(self, point: Point) -> float:
        """What rounding of u − û + Jᵀλ is relative to."""
        return max(1.0, float(np.abs(point.weight).max(initial=0.0)) / _STEEP)

    def gap(self, point: Point, slopes: csr_array, barrier: float) -> float:
        """How far the optimality system of a barrier is from holding, violation aside."""
        rest: Values = point.u - self.target + slopes.T @ point.weight - point.low + point.high
        rest[self.fixed] = 0.0
        parts = [
            rest,
            point.weight[self.unequal] - point.push,
            point.s * point.push - barrier,
            (point.u - self.lower)[self.has_low] * point.low[self.has_low] - barrier,
            (self.upper - point.u)[self.has_high] * point.high[self.has_high] - barrier,
        ]
        return max(float(np.abs(part).max(initial=0.0)) for part in parts)

    def objective(self, u: Values, s: Values) -> float:
        """½‖u − û‖² and the barrier's part."""
        value = 0.5 * float(((u - self.target)[~self.fixed] ** 2).sum())
        if self.inner:
            room = np.concatenate([s, (u - self.lower)[self.has_low], (self.upper - u)[self.has_high]])
            if not (room > 0.0).all():  # rounded onto a bound
                return np.inf
            value -= self.barrier * float(np.log(room).sum())
        return value

    def measured(self, u: Values, s: Values) -> Trial:
        """Violation, objective and constraints at a trial point; infinite outside the laws' domain."""
        rows = self.rows(u)
        if not np.isfinite(rows).all():
            return np.inf, np.inf, rows
        off = self.constraint(rows, s)
        return float(np.abs(off).sum()), self.objective(u, s), off
