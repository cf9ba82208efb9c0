"""Newton's steps from a point, how far they may go, and where they lead.

May import interior.account, interior.point and interior.problem.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from snapfm.project.augmented import AugmentedMatrix
from snapfm.project.interior.account import Account
from snapfm.project.interior.point import Point, Values
from snapfm.project.interior.problem import Problem

_BOUNDARY = 0.99  # share of the way to a bound that one step may go
# Relative to the size of its rows: keeps repeated rows solvable, far below what a step needs.
_SOFT = 1e-11
_FIRST_SHIFT, _LAST_SHIFT, _GROWTH, _DECAY = 1e-4, 1e20, 8.0, 3.0  # of δ in W + δI, as published
_WIDE = 1e10  # how far multipliers of bounds may be from barrier / distance, as published


def softness(slopes: csr_array) -> Values:
    """δ of the augmented matrix, by row."""
    return np.full(slopes.shape[0], _SOFT * max(1.0, float((slopes.data**2).max(initial=0.0))))


class Steps:
    """Steps of one problem; remembers the shift that last made a matrix convex. `account` is the sample's."""

    def __init__(self, problem: Problem, system: AugmentedMatrix, account: Account) -> None:
        self.problem, self.system, self.account = problem, system, account
        self._shift = 0.0

    def least_squares(self, point: Point, slopes: csr_array) -> Values:
        """Multipliers that leave the least of u − û + Jᵀλ; none where they come out large."""
        p, n, nothing = self.problem, len(point.u), csr_array((len(point.u),) * 2)
        if not self.system.factorize(nothing, np.ones(n), slopes, softness(slopes)):
            return np.zeros(slopes.shape[0])
        right = -(point.u - p.target - point.low + point.high)
        right[p.fixed] = 0.0
        weight = self.system.solve(np.concatenate([right, np.zeros(slopes.shape[0])]))[n:]
        weight[p.unequal] = point.push
        good = np.isfinite(weight).all() and np.abs(weight).max(initial=0.0) <= 1.0 / _SOFT**0.5
        return weight if good else np.zeros(slopes.shape[0])

    def step(self, point: Point, slopes: csr_array, off: Values) -> Point | None:
        """Factorise with a shift of W that gives the right inertia, and solve for the step in all variables."""
        p = self.problem
        bend = p.bend(point.u, point.weight)
        diagonal = 1.0 + point.low / p.below(point.u) + point.high / p.above(point.u)
        soft = softness(slopes)
        soft[p.unequal] += point.s / point.push
        shift = 0.0
        while not self.system.factorize(bend, diagonal + shift, slopes, soft):
            first = _FIRST_SHIFT if self._shift == 0.0 else self._shift / _DECAY
            shift = first if shift == 0.0 else shift * _GROWTH
            if shift > _LAST_SHIFT or self.account.late:
                return None
        if shift > 0.0:
            self._shift = shift
        return self.direction(point, slopes, off)

    def direction(self, point: Point, slopes: csr_array, off: Values) -> Point:
        """Solve with the factors at hand; `off` is what the constraints are to lose."""
        p, n = self.problem, len(point.u)
        barrier, below, above = p.barrier, p.below(point.u), p.above(point.u)
        first = point.u - p.target + slopes.T @ point.weight - barrier / below + barrier / above
        first[p.fixed] = 0.0
        second = off.copy()
        ratio = point.s / point.push
        second[p.unequal] += barrier / point.push - ratio * point.weight[p.unequal]
        answer = self.system.solve(-np.concatenate([first, second]))
        du, dweight = answer[:n], answer[n:]
        du[p.fixed] = 0.0
        ds = -off[p.unequal] - (slopes @ du)[p.unequal]
        return Point(
            du, ds, dweight,
            barrier / point.s - point.push - ds / ratio,
            np.where(p.has_low, barrier / below - point.low - point.low / below * du, 0.0),
            np.where(p.has_high, barrier / above - point.high + point.high / above * du, 0.0),
        )  # fmt: skip

    def longest(self, point: Point, step: Point) -> tuple[float, float]:
        """How far a step may go, primal and dual, before it meets a bound."""
        p = self.problem
        share = max(_BOUNDARY, 1.0 - p.barrier)
        low, high = p.has_low, p.has_high
        primal = min(
            _reach(point.s, step.s, share),
            _reach((point.u - p.lower)[low], step.u[low], share),
            _reach((p.upper - point.u)[high], -step.u[high], share),
        )
        dual = min(
            _reach(point.push, step.push, share),
            _reach(point.low[low], step.low[low], share),
            _reach(point.high[high], step.high[high], share),
        )
        return primal, dual

    def moved(self, point: Point, step: Point, u: Values, s: Values, share: float, dual: float) -> Point:
        """Give the point at (u, s), its multipliers moved by their shares of the step."""
        p = self.problem
        push = point.push + dual * step.push
        low, high = point.low + dual * step.low, point.high + dual * step.high
        if p.inner:  # multipliers of bounds stay near barrier / distance, or steps would lose their meaning
            central = p.central(u, s, point.weight)
            push = _kept(push, central.push)
            low = np.where(p.has_low, _kept(low, central.low), 0.0)
            high = np.where(p.has_high, _kept(high, central.high), 0.0)
        return Point(u, s, point.weight + share * step.weight, push, low, high)


def _reach(room: Values, step: Values, share: float) -> float:
    """The longest fraction of a step that uses up at most a share of the room."""
    towards = step < 0.0
    return min(1.0, float((-share * room[towards] / step[towards]).min(initial=1.0)))


def _kept(value: Values, central: Values) -> Values:
    """Keep a multiplier within ten orders of magnitude of the central path."""
    return np.clip(value, central / _WIDE, central * _WIDE)
