"""One sample by a primal-dual interior point: Newton on the optimality system, a filter line search, restoration.

min ½‖u − û‖² subject to h(u) = 0, g(u) + s = 0, s ≥ 0, lower ≤ u ≤ upper (math.md, "Iteration"). Without inequalities and
bounds there is no barrier, and this is Newton's method. Steps are second-order corrected and made from matrices of the
right inertia; where no step is acceptable the violation alone is reduced, and where that is stationary the laws are
locally infeasible. The method is that of Wächter and Biegler (2006), with an active set taken up at the end, which puts
unknowns on their bounds exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array

from snapfm.errors import Status
from snapfm.project.augmented import Dense, Sparse
from snapfm.project.limits import Limits
from snapfm.project.oracle import Oracle

Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Trial: TypeAlias = tuple[float, float, Values]  # violation, objective, constraints

_ITERATIONS = 300
_RESTORATIONS = 12  # times that a sample may need to be restored
_RESTORING = 200  # iterations of one restoration
_WEAKEST, _FIRST_DAMPING, _STRONGEST = 1e-12, 1e-3, 1e20  # damping of its steps
_STATIONARY = 1e-9  # asked of u − û + Jᵀλ before an answer counts as found: a thousandth of what the judge allows
_FIRST_BARRIER, _LAST_BARRIER = 0.1, 1e-11
_SOLVED, _SLOWLY, _QUICKLY = 10.0, 0.2, 1.5  # error in barriers that is enough; the next is min(0.2 μ, μ^1.5)
_BETTER, _PATIENCE = 0.9, 30  # an error below this share of the best is progress; iterations to wait for it
_INSIDE = 1e-2  # how far from its bounds a start is put, relative to their size
_NEAREST = 16 * np.finfo(float).eps  # how near to a bound a step may come, relative to the bound
_BOUNDARY = 0.99  # share of the way to a bound that one step may go
# Relative to the size of its rows: keeps repeated rows solvable, far below what a step needs.
_SOFT = 1e-11
_STEEP = 100.0  # rows whose slopes exceed this are scaled down to it
_FIRST_SHIFT, _LAST_SHIFT, _GROWTH, _DECAY = 1e-4, 1e20, 8.0, 3.0  # of δ in W + δI, as published
_ARMIJO, _FILTER, _SWITCH_THETA, _SWITCH_PHI = 1e-4, 1e-5, 1.1, 2.3  # as published
_SHORTEST = 1e-9  # fraction of a step below which it counts as none
_CORRECTIONS = 4  # second-order corrections of one step
_WORTH = 0.99  # a correction has to bring the violation down to this share
_FLAT = 1e-7  # size of Jᵀc, relative to that of its terms, at which a violation is stationary
_WIDE = 1e10  # how far multipliers of bounds may be from barrier / distance, as published
_POLISH = 8  # Newton steps on the active set


@dataclass(frozen=True)
class Point:
    """Where a sample stands: unknowns, slacks of inequalities, multipliers of rows, slacks and bounds."""

    u: Values
    s: Values
    weight: Values
    push: Values  # of slacks
    low: Values  # of lower bounds, zero where there is none
    high: Values


@dataclass(frozen=True)
class Arrived:
    """What became of a sample, in the laws' own units."""

    u: Values
    weight: Values
    status: Status
    iterations: int


class Interior:
    """The iterations of one sample."""

    def __init__(
        self, oracle: Oracle, system: Dense | Sparse, limits: Limits, equality: Mask, target: Values, tolerance: float
    ) -> None:
        self.oracle, self.system, self.target, self.tolerance = oracle, system, target, tolerance
        self.lower, self.upper, self.equality = limits.lower, limits.upper, equality
        self.fixed = self.lower == self.upper
        self.has_low, self.has_high = np.isfinite(self.lower) & ~self.fixed, np.isfinite(self.upper) & ~self.fixed
        # Steps come no nearer to a bound than rounding can tell.
        near = [
            _NEAREST * np.where(np.isfinite(bound), np.maximum(1.0, np.abs(bound)), 0.0)
            for bound in (self.lower, self.upper)
        ]
        self.floor = np.where(self.has_low, self.lower + near[0], self.lower)
        self.ceiling = np.where(self.has_high, self.upper - near[1], self.upper)
        self.unequal = np.flatnonzero(~equality)
        self.scale = np.ones(len(equality))
        self.inner = bool(self.has_low.any() or self.has_high.any() or len(self.unequal))
        self.barrier = _FIRST_BARRIER if self.inner else 0.0
        self._shift = 0.0

    def run(self, begin: Values, weight: Values | None) -> Arrived:
        """Iterate from `begin`; `weight`, multipliers of a nearby answer, makes the first steps better."""
        u = self._put_inside(begin)
        slopes = self._slopes(u)
        if slopes is None:
            return Arrived(u, np.zeros(len(self.equality)), Status.NONFINITE, 0)
        steepest = abs(slopes).max(axis=1).toarray().ravel() if slopes.nnz else np.zeros(len(self.equality))
        self.scale = _STEEP / np.maximum(_STEEP, steepest)
        slopes = csr_array(diags_array(self.scale) @ slopes)
        rows = self._rows(u)
        room = np.maximum(-rows[self.unequal], _INSIDE)
        point = Point(
            u, room, np.zeros(len(rows)), self.barrier / room,
            np.where(self.has_low, self.barrier / self._below(u), 0.0),
            np.where(self.has_high, self.barrier / self._above(u), 0.0),
        )  # fmt: skip
        if weight is not None and weight.any():
            point = replace(point, weight=weight / self.scale)
        else:
            point = replace(point, weight=self._least_squares(point, slopes))
        return self._iterate(point)

    def _iterate(self, point: Point) -> Arrived:
        taboo: list[tuple[float, float]] = []  # the filter: pairs of violation and objective not to be met again
        best, waiting, restorations = np.inf, 0, 0
        for iteration in range(1, _ITERATIONS + 1):
            rows, slopes = self._rows(point.u), self._slopes(point.u)
            if slopes is None or not np.isfinite(rows).all():
                return self._left(point, Status.NONFINITE, iteration)
            slopes = csr_array(diags_array(self.scale) @ slopes)
            off = self._constraint(rows, point.s)
            violation = self._violation(rows)
            gap = self._gap(point, slopes, 0.0)
            if violation <= self.tolerance and gap <= _STATIONARY * self._size(point):
                return self._polished(point, Status.CONVERGED, iteration)
            # Rounding may keep the last digits from being reached: stop when nothing gets better any more.
            worst = max(gap, violation / self.tolerance * _STATIONARY)
            waiting = 0 if worst < _BETTER * best else waiting + 1
            best = min(best, worst)
            if waiting > _PATIENCE and self.barrier <= _LAST_BARRIER and violation <= self.tolerance:
                return self._polished(point, Status.STALLED, iteration)
            while self.barrier > _LAST_BARRIER and (
                max(self._gap(point, slopes, self.barrier), float(np.abs(off).max(initial=0.0)))
                <= _SOLVED * self.barrier
            ):
                self.barrier = max(_LAST_BARRIER, min(_SLOWLY * self.barrier, self.barrier**_QUICKLY))
                taboo.clear()
            step = self._step(point, slopes, off)
            moved = None if step is None else self._search(point, slopes, off, step, taboo)
            if moved is None:
                if violation <= self.tolerance or restorations == _RESTORATIONS:
                    return self._polished(point, Status.STALLED, iteration)
                restorations += 1
                moved, failed = self._restored(point, taboo)
                if failed is not None:
                    return self._polished(moved, failed, iteration)
            point = moved
        return self._polished(point, Status.ITERATION_LIMIT, _ITERATIONS)

    # Values at a point.

    def _rows(self, u: Values) -> Values:
        value: Values = self.scale * self.oracle.residual(u)
        return value

    def _slopes(self, u: Values) -> csr_array | None:
        """The laws' own slopes, without those of fixed unknowns; None where they are not finite."""
        matrix = self.oracle.jacobian(u)
        if not np.isfinite(matrix.data).all():
            return None
        return csr_array(matrix @ diags_array((~self.fixed).astype(float))) if self.fixed.any() else matrix

    def _bend(self, u: Values, weight: Values) -> csr_array:
        """Σ weight ∇²row without fixed unknowns; none where it is not finite."""
        bend = self.oracle.hessian(u, self.scale * weight)
        if not np.isfinite(bend.data).all():
            return csr_array(bend.shape)
        free = diags_array((~self.fixed).astype(float))
        return csr_array(free @ bend @ free) if self.fixed.any() else bend

    def _constraint(self, rows: Values, s: Values) -> Values:
        off = rows.copy()
        off[self.unequal] += s
        return off

    def _violation(self, rows: Values) -> float:
        """In the laws' own units."""
        own = np.where(self.equality, np.abs(rows), np.maximum(rows, 0.0)) / self.scale
        return float(own.max(initial=0.0))

    def _below(self, u: Values) -> Values:
        return np.where(self.has_low, u - self.lower, np.inf)

    def _above(self, u: Values) -> Values:
        return np.where(self.has_high, self.upper - u, np.inf)

    def _put_inside(self, u: Values) -> Values:
        """Put a start a little inside its bounds, and fixed unknowns where they have to be."""
        low = np.where(self.has_low, self.lower, 0.0)
        high = np.where(self.has_high, self.upper, 0.0)
        width = np.where(self.has_low & self.has_high, high - low, np.inf)
        u = np.where(self.has_low, np.maximum(u, low + _INSIDE * np.minimum(np.maximum(1.0, np.abs(low)), width)), u)
        u = np.where(self.has_high, np.minimum(u, high - _INSIDE * np.minimum(np.maximum(1.0, np.abs(high)), width)), u)
        return np.where(self.fixed, self.lower, u)

    def _at(self, u: Values) -> Values:
        return np.maximum(np.minimum(u, self.ceiling), self.floor) if self.inner else u

    def _size(self, point: Point) -> float:
        """What rounding of u − û + Jᵀλ is relative to."""
        return max(1.0, float(np.abs(point.weight).max(initial=0.0)) / _STEEP)

    def _rest(self, point: Point, slopes: csr_array) -> Values:
        rest: Values = point.u - self.target + slopes.T @ point.weight - point.low + point.high
        rest[self.fixed] = 0.0
        return rest

    def _gap(self, point: Point, slopes: csr_array, barrier: float) -> float:
        """How far the optimality system of a barrier is from holding, violation aside."""
        parts = [
            self._rest(point, slopes),
            point.weight[self.unequal] - point.push,
            point.s * point.push - barrier,
            (point.u - self.lower)[self.has_low] * point.low[self.has_low] - barrier,
            (self.upper - point.u)[self.has_high] * point.high[self.has_high] - barrier,
        ]
        return max(float(np.abs(part).max(initial=0.0)) for part in parts)

    def _objective(self, u: Values, s: Values) -> float:
        value = 0.5 * float(((u - self.target)[~self.fixed] ** 2).sum())
        if self.inner:
            room = np.concatenate([s, (u - self.lower)[self.has_low], (self.upper - u)[self.has_high]])
            if not (room > 0.0).all():  # rounded onto a bound
                return np.inf
            value -= self.barrier * float(np.log(room).sum())
        return value

    # Steps.

    def _diagonal(self, point: Point) -> Values:
        return 1.0 + point.low / self._below(point.u) + point.high / self._above(point.u)

    def _soft(self, point: Point | None, slopes: csr_array) -> Values:
        soft = np.full(slopes.shape[0], _SOFT * max(1.0, float((slopes.data**2).max(initial=0.0))))
        if point is not None:
            soft[self.unequal] += point.s / point.push
        return soft

    def _least_squares(self, point: Point, slopes: csr_array) -> Values:
        """Multipliers that leave the least of u − û + Jᵀλ; none where they come out large."""
        n, nothing = len(point.u), csr_array((len(point.u),) * 2)
        if not self.system.factorize(nothing, np.ones(n), slopes, self._soft(None, slopes)):
            return np.zeros(slopes.shape[0])
        right = -(point.u - self.target - point.low + point.high)
        right[self.fixed] = 0.0
        weight = self.system.solve(np.concatenate([right, np.zeros(slopes.shape[0])]))[n:]
        weight[self.unequal] = point.push
        good = np.isfinite(weight).all() and np.abs(weight).max(initial=0.0) <= 1.0 / _SOFT**0.5
        return weight if good else np.zeros(slopes.shape[0])

    def _step(self, point: Point, slopes: csr_array, off: Values) -> Point | None:
        """Factorise with a shift of W that gives the right inertia, and solve for the step in all variables."""
        bend = self._bend(point.u, point.weight)
        diagonal, soft = self._diagonal(point), self._soft(point, slopes)
        shift = 0.0
        while not self.system.factorize(bend, diagonal + shift, slopes, soft):
            first = _FIRST_SHIFT if self._shift == 0.0 else self._shift / _DECAY
            shift = first if shift == 0.0 else shift * _GROWTH
            if shift > _LAST_SHIFT:
                return None
        if shift > 0.0:
            self._shift = shift
        return self._direction(point, slopes, off)

    def _direction(self, point: Point, slopes: csr_array, off: Values) -> Point:
        """Solve with the factors at hand; `off` is what the constraints are to lose."""
        barrier, n = self.barrier, len(point.u)
        below, above = self._below(point.u), self._above(point.u)
        first = point.u - self.target + slopes.T @ point.weight - barrier / below + barrier / above
        first[self.fixed] = 0.0
        second = off.copy()
        ratio = point.s / point.push
        second[self.unequal] += barrier / point.push - ratio * point.weight[self.unequal]
        answer = self.system.solve(-np.concatenate([first, second]))
        du, dweight = answer[:n], answer[n:]
        du[self.fixed] = 0.0
        ds = -off[self.unequal] - (slopes @ du)[self.unequal]
        return Point(
            du, ds, dweight,
            barrier / point.s - point.push - ds / ratio,
            np.where(self.has_low, barrier / below - point.low - point.low / below * du, 0.0),
            np.where(self.has_high, barrier / above - point.high + point.high / above * du, 0.0),
        )  # fmt: skip

    def _longest(self, point: Point, step: Point) -> tuple[float, float]:
        """How far a step may go, primal and dual, before it meets a bound."""
        share = max(_BOUNDARY, 1.0 - self.barrier)
        low, high = self.has_low, self.has_high
        primal = min(
            _reach(point.s, step.s, share),
            _reach((point.u - self.lower)[low], step.u[low], share),
            _reach((self.upper - point.u)[high], -step.u[high], share),
        )
        dual = min(
            _reach(point.push, step.push, share),
            _reach(point.low[low], step.low[low], share),
            _reach(point.high[high], step.high[high], share),
        )
        return primal, dual

    def _search(
        self, point: Point, slopes: csr_array, off: Values, step: Point, taboo: list[tuple[float, float]]
    ) -> Point | None:
        """Shorten a step until the filter accepts it; None if it never does. Written: taboo."""
        if not np.isfinite(step.u).all() or not np.isfinite(step.weight).all():
            return None
        theta, phi = float(np.abs(off).sum()), self._objective(point.u, point.s)
        slope = float(step.u @ (point.u - self.target))
        if self.inner:
            slope -= self.barrier * float(
                (step.s / point.s).sum() + (step.u / self._below(point.u) - step.u / self._above(point.u)).sum()
            )
        longest, dual = self._longest(point, step)
        share, first = longest, True
        rounding = 10.0 * np.finfo(float).eps * max(1.0, abs(phi))
        while share >= _SHORTEST:
            u, s = self._at(point.u + share * step.u), _open(point.s + share * step.s)
            trial = self._measured(u, s)
            descent = slope < 0.0 and share * (-slope) ** _SWITCH_PHI > theta**_SWITCH_THETA

            def good(trial: Trial, descent: bool = descent, share: float = share) -> bool:
                if not np.isfinite(trial[0] + trial[1]) or _forbidden(trial, taboo):
                    return False
                if descent and theta <= _SHORTEST**0.5 * max(1.0, theta):
                    return bool(trial[1] <= phi + _ARMIJO * share * slope + rounding)
                return bool(trial[0] <= (1 - _FILTER) * theta or trial[1] <= phi - _FILTER * theta + rounding)

            accepted = good(trial)
            if not accepted and first and trial[0] >= theta:
                corrected = self._corrected(point, slopes, off, share, trial, good)
                if corrected is not None:
                    step, share, u, s = corrected
                    dual = self._longest(point, step)[1]
                    accepted = True
            if accepted:
                if not (descent and trial[1] <= phi + _ARMIJO * share * slope + rounding):
                    taboo.append((theta, phi))
                return self._moved(point, step, u, s, share, dual)
            first = False
            share *= 0.5
        return None

    def _corrected(
        self, point: Point, slopes: csr_array, off: Values, share: float, trial: Trial, good: Callable[[Trial], bool]
    ) -> tuple[Point, float, Values, Values] | None:  # fmt: skip
        """Bend a step back to the constraints it left: the same factors, what it missed added up."""
        total, before = share * off, trial
        for _ in range(_CORRECTIONS):
            total = total + before[2]
            step = self._direction(point, slopes, total)
            if not np.isfinite(step.u).all():
                return None
            length = self._longest(point, step)[0]
            u, s = self._at(point.u + length * step.u), _open(point.s + length * step.s)
            now = self._measured(u, s)
            if good(now):
                return step, length, u, s
            if not now[0] <= _WORTH * before[0]:
                return None
            before = now
        return None

    def _measured(self, u: Values, s: Values) -> Trial:
        """Violation, objective and constraints at a trial point; infinite outside the laws' domain."""
        rows = self._rows(u)
        if not np.isfinite(rows).all():
            return np.inf, np.inf, rows
        off = self._constraint(rows, s)
        return float(np.abs(off).sum()), self._objective(u, s), off

    def _moved(self, point: Point, step: Point, u: Values, s: Values, share: float, dual: float) -> Point:
        push = point.push + dual * step.push
        low, high = point.low + dual * step.low, point.high + dual * step.high
        if self.inner:  # multipliers of bounds stay near barrier / distance, or steps would lose their meaning
            push = _kept(push, self.barrier / s)
            low = np.where(self.has_low, _kept(low, self.barrier / self._below(u)), 0.0)
            high = np.where(self.has_high, _kept(high, self.barrier / self._above(u)), 0.0)
        return Point(u, s, point.weight + share * step.weight, push, low, high)

    # Restoration: reduce the violation alone.

    def _restored(self, point: Point, taboo: list[tuple[float, float]]) -> tuple[Point, Status | None]:
        """Find a point that the filter accepts with less violation, or say why there is none nearby.

        Gives the point where it ended in either case. Written: taboo.
        """
        u, s = point.u, point.s
        began, phi, off = self._measured(u, s)
        taboo.append((began, phi))
        damping = _FIRST_DAMPING
        for _ in range(_RESTORING):
            now = self._measured(u, s)
            if now[0] < _BETTER * began and not _forbidden(now, taboo):
                return self._resumed(point, u, s), None
            raw = self._slopes(u)
            if raw is None:
                return point, Status.STALLED
            slopes = csr_array(diags_array(self.scale) @ raw)
            gradient, slack = slopes.T @ off, off[self.unequal]
            # Where the way down leads towards a bound it counts by the room there is (Coleman and Li).
            room = np.where(gradient > 0.0, self._below(u), self._above(u))
            flat = max(
                float(np.abs(gradient * np.minimum(1.0, room)).max(initial=0.0)),
                float(np.abs(slack * np.where(slack > 0.0, np.minimum(1.0, s), 1.0)).max(initial=0.0)),
            )
            steep = max(1.0, float(np.abs(slopes.data).max(initial=0.0))) * float(np.abs(off).max(initial=0.0))
            if flat <= _FLAT * steep:
                return self._resumed(point, u, s), Status.INFEASIBLE
            near, near_slack = np.abs(gradient) / room, np.where(slack > 0.0, slack / s, 0.0)
            bend = self._bend(u, off)
            size, found = 0.5 * float(off @ off), None
            while found is None and damping <= _STRONGEST:
                move = self._restoring(bend, slopes, off, near + damping, near_slack + damping)
                if move is not None:
                    share = self._longest(replace(point, u=u, s=s), replace(point, u=move[0], s=move[1]))[0]
                    there = self._at(u + share * move[0]), _open(s + share * move[1])
                    _, height, trial = self._measured(*there)
                    down = share * float(gradient @ move[0] + slack @ move[1])
                    if 0.5 * float(trial @ trial) <= size + _ARMIJO * down and down < 0.0 and np.isfinite(height):
                        found = (*there, trial)
                damping = damping * 10.0 if found is None else max(_WEAKEST, damping / 10.0)
            if found is None:  # nothing goes down that rounding lets one see
                return self._resumed(point, u, s), Status.INFEASIBLE if flat <= _FLAT**0.5 * steep else Status.STALLED
            u, s, off = found
        return self._resumed(point, u, s), Status.STALLED

    def _restoring(
        self, bend: csr_array, slopes: csr_array, off: Values, weight: Values, slack_weight: Values
    ) -> tuple[Values, Values] | None:
        """Newton's damped step for ½‖c‖², through the augmented matrix; None if that is not convex yet."""
        n, soft = slopes.shape[1], np.ones(slopes.shape[0])
        soft[self.unequal] += 1.0 / slack_weight
        if not self.system.factorize(bend, weight, slopes, soft):
            return None
        answer = self.system.solve(np.concatenate([np.zeros(n), -off]))
        du = np.where(self.fixed, 0.0, answer[:n])
        return (du, -answer[n:][self.unequal] / slack_weight) if np.isfinite(answer).all() else None

    def _resumed(self, point: Point, u: Values, s: Values) -> Point:
        """Go on from a restored point with fresh multipliers."""
        fresh = Point(
            u, s, point.weight, self.barrier / s if len(s) else s,
            np.where(self.has_low, self.barrier / self._below(u), 0.0),
            np.where(self.has_high, self.barrier / self._above(u), 0.0),
        )  # fmt: skip
        slopes = self._slopes(u)
        if slopes is None:
            return fresh
        return replace(fresh, weight=self._least_squares(fresh, csr_array(diags_array(self.scale) @ slopes)))

    # The end.

    def _left(self, point: Point, status: Status, iteration: int) -> Arrived:
        return Arrived(point.u, self.scale * point.weight, status, iteration)

    def _polished(self, point: Point, status: Status, iteration: int) -> Arrived:
        """Put what pushes on its bound, drop the multipliers of what does not, and take Newton's last steps there."""
        if not self.inner:
            return self._left(point, status, iteration)
        at_low = self.has_low & (point.low > self._below(point.u))
        at_high = self.has_high & (point.high > self._above(point.u)) & ~at_low
        active = self.equality.copy()
        active[self.unequal[point.push > point.s]] = True
        u = np.where(at_low, self.lower, np.where(at_high, self.upper, point.u))
        weight = np.where(active, point.weight, 0.0)
        held = at_low | at_high | self.fixed
        free = diags_array((~held).astype(float))
        best = self._offence(u, weight)
        found = (u, weight)
        for _ in range(_POLISH):
            raw = self.oracle.jacobian(u)
            bend = self.oracle.hessian(u, self.scale * weight)
            if not (np.isfinite(raw.data).all() and np.isfinite(bend.data).all()):
                break
            on = diags_array(active.astype(float))
            slopes = csr_array(on @ diags_array(self.scale) @ raw @ free)
            first = np.where(held, 0.0, u - self.target + slopes.T @ weight)
            second = np.where(active, self._rows(u), 0.0)
            soft = self._soft(None, slopes) + ~active
            if not self.system.factorize(csr_array(free @ bend @ free), np.ones(len(u)), slopes, soft):
                break
            answer = self.system.solve(-np.concatenate([first, second]))
            u = np.where(held, u, u + answer[: len(u)])
            weight = np.where(active, weight + answer[len(u) :], 0.0)
            weight[self.unequal] = np.maximum(weight[self.unequal], 0.0)
            now = self._offence(u, weight)
            if not now < best:
                break
            best, found = now, (u, weight)
        return Arrived(found[0], self.scale * found[1], status, iteration)

    def _offence(self, u: Values, weight: Values) -> float:
        """One number to compare answers by: what the judge will look at, each relative to what it allows."""
        rows, raw = self._rows(u), self.oracle.jacobian(u)
        if not (np.isfinite(rows).all() and np.isfinite(raw.data).all()):
            return np.inf
        rest = u - self.target + raw.T @ (self.scale * weight)
        rest = np.minimum(np.maximum(rest, u - self.upper), u - self.lower)
        excess = float(np.maximum(u - self.upper, self.lower - u).max(initial=0.0))
        idle = float(np.abs(weight * np.minimum(rows, 0.0))[self.unequal].max(initial=0.0))
        gap = max(float(np.abs(rest).max(initial=0.0)), idle)
        return max(max(self._violation(rows), excess) / self.tolerance, gap / _STATIONARY)


def _forbidden(trial: Trial, taboo: list[tuple[float, float]]) -> bool:
    """Whether a point is no better, in violation or objective, than one the filter has seen."""
    return any(trial[0] >= (1 - _FILTER) * one and trial[1] >= other - _FILTER * one for one, other in taboo)


def _reach(room: Values, step: Values, share: float) -> float:
    """The longest fraction of a step that uses up at most a share of the room."""
    towards = step < 0.0
    return min(1.0, float((-share * room[towards] / step[towards]).min(initial=1.0)))


def _open(slack: Values) -> Values:
    """Keep slacks where rounding can still tell them from zero."""
    return np.maximum(slack, _NEAREST)


def _kept(value: Values, central: Values) -> Values:
    """Keep a multiplier within ten orders of magnitude of the central path."""
    return np.clip(value, central / _WIDE, central * _WIDE)
