"""MatrixFree: the method for laws whose Jacobian is too dense to write out. Newton's method with Krylov iterations inside.

Each step solves [[W, Jᵀ], [J, 0]] (d, δ) = −(u − û + Jᵀλ, h) by MINRES on products that torch evaluates, preconditioned with the
laws' symbols (solve.matrix_free.symbols); affine laws take a few steps, which remove what MINRES left. A primal-dual active set
decides which inequalities hold as equations and which unknowns are at their bounds. Steps are cut short by a merit function, and
taken without curvature (W = I) where the curvature points uphill. Samples are solved one by one, so that no bit depends on the
batch. Whether one converged is for the judge to say. Must not import project.projector or project.judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index
from snapfm.compile import Linearization, MatrixFreeLaws
from snapfm.compile.trace.batched import RAISED
from snapfm.compile.units import Units
from snapfm.errors import Status
from snapfm.kernels.layout import FAILS, HOLDS, UNKNOWN
from snapfm.kernels.threads import Deadline, cut, run, workers
from snapfm.laws import Params
from snapfm.solve.base import Adjoints, Limits, Solution, Warm
from snapfm.solve.budget import LEAST, STATIONARITY, Budget, Stopping, certified, flow_step_stopping
from snapfm.solve.matrix_free.krylov import lowest, minres
from snapfm.solve.matrix_free.symbols import inverse_gram, row_sizes
from snapfm.solve.single_thread import one_thread

_FORCING = 1e-6  # residual of MINRES, relative: what it leaves is removed by the next step
_ROUGH = 1e-2  # the same while it is not yet known which bounds are active
_PRODUCTS = 2_000  # of one step; laws with symbols take 3 to 100
_HALVES = 0.5  # an error this much smaller needs no merit function
_ARMIJO, _SHORTEST = 1e-4, 2.0**-12
_ROUNDING = 1e-14  # of a sum over all unknowns, relative
_MARGIN = 1.5  # of the penalty above the largest multiplier
_PATIENCE = 20  # steps without a smaller error
_SOLVES, _ACCURATE = 4, 1e-8  # of a gradient: refinements, and the residual allowed before it is NaN
_LANCZOS = 20  # products in which the smallest eigenvalue of W is looked for
# Above the first it is positive, though Lanczos approximates it from above; below minus the second it is negative.
_CLEAR, _FLAT = 0.1, 1e-6
_SOFT = 1e-3  # of the size of a row, where violations are as large as at the start
_ACTIVE = 1e-9  # a row that pushes with more than this share of the largest push belongs to an active inequality


class MatrixFree:
    """Prepared for laws and limits, in units: iterates are x = u/s, rows are weighted."""

    def __init__(self, laws: MatrixFreeLaws, limits: Limits, units: Units | None = None) -> None:
        self.laws, self.limits = laws if units is None else laws.in_units(units), limits
        units = Units(np.ones(laws.unknowns), np.ones(laws.rows)) if units is None else units
        self.scale, self.weight = torch.from_numpy(units.unknowns), torch.from_numpy(units.rows)
        self.equality = torch.from_numpy(laws.equality_rows)
        self.lower, self.upper = (torch.from_numpy(one / units.unknowns) for one in (limits.lower, limits.upper))
        self.convex = laws.affine

    @property
    def implied(self) -> Index:
        """Rows that hold if the others do: none is known."""
        return np.zeros(0, np.int64)

    def solve(self, u_hat: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget) -> Solution:
        """Project a float64 batch (b, *shape); iterations begin at û, or where `warm` says."""
        x, found, warm = self._run(u_hat, params, certified(tolerance), warm, budget)
        status, steps, second = (
            torch.tensor([getattr(one, name) for one in found], dtype=dtype)
            for name, dtype in (("status", torch.int8), ("steps", torch.int64), ("second", torch.int8))
        )
        stationarity = torch.tensor([one.stationarity for one in found], dtype=torch.float64)
        u, start = self._field_of(x, u_hat), u_hat.reshape(x.shape)
        rows = self.laws.residual((u / self.scale).reshape(u_hat.shape), params) / self.weight
        return Solution(
            u, torch.from_numpy(warm.multipliers) * self.weight, steps, rows, stationarity,
            ((u - start) / self.scale).norm(dim=1), status, warm, second,
        )  # fmt: skip

    def _field_of(self, x: Tensor, u_hat: Tensor) -> Tensor:
        """Return x (b, n) as fields inside their limits; what did not move keeps its bits."""
        start = u_hat.reshape(x.shape)
        moved = x * self.scale
        self.limits.restore(x.numpy(), self.lower.numpy(), self.upper.numpy(), moved.numpy())
        return torch.where(x == start / self.scale, start, moved)

    def move(
        self, u_hat: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget
    ) -> tuple[Tensor, Warm]:
        """Project without a certificate, in the dtype of û."""
        x, _, warm = self._run(u_hat.double(), params, flow_step_stopping(tolerance), warm, budget)
        return self._field_of(x, u_hat.double()).reshape(u_hat.shape).to(u_hat.dtype), warm

    def recall(self, u: Tensor, multipliers: Tensor, usable: Tensor) -> Warm:
        """Return the warm start at another projector's result: fields (b, *shape), multipliers (b, m)."""
        x = u.reshape(len(u), self.laws.unknowns) / self.scale
        return Warm(x.numpy(), (multipliers / self.weight).numpy(), usable.numpy(), self)

    def adjoint(self, solved: Solution, params: Params, gradient: Tensor, in_params: bool) -> Adjoints:
        """Solve [[W, Jᵀ], [J, 0]] (w, ν) = (g, 0) at an answer, over what is active; NaN where MINRES does not get there."""
        w, nu = torch.zeros_like(solved.u), torch.zeros_like(solved.multipliers)
        given = solved.u / self.scale, solved.multipliers / self.weight, gradient.reshape(w.shape) * self.scale
        for i, (u, lam, right) in enumerate(zip(*given)):
            if not bool(right.any()):
                continue
            own = {name: value[i] for name, value in params.items()}
            here = self.laws.linearize(u.reshape(self.laws.shape), own)
            sizes = row_sizes(self.laws, here)
            push = lam * sizes.sqrt()  # whatever the units of a law, as below
            working = self.equality | (push > _ACTIVE * max(1.0, float(push.abs().max())))
            free = (u < self.upper) & (u > self.lower)
            inverse = inverse_gram(self.laws, here, u.reshape(self.laws.shape), own, sizes, _never)
            units = torch.cat([torch.ones_like(u), sizes.sqrt()])
            system = _System(here, here.hessian(lam), inverse, working, free)
            whole = torch.cat([torch.where(free, right, 0.0), torch.zeros_like(lam)])
            answer, left = torch.zeros_like(whole), whole
            for _ in range(_SOLVES):
                answer = answer + minres(system.multiply, system.precondition, left, _FORCING, _PRODUCTS, _never)[0]
                left = whole - system.multiply(answer)
                off = float((left / units).abs().max() / torch.maximum(whole.abs().max(), (answer * units).abs().max()))
                if off <= LEAST:  # what is left is rounding, which need not be in the range of a singular matrix
                    break
            if not off <= _ACCURATE:
                answer = torch.full_like(answer, torch.nan)
            w[i], nu[i] = answer[: len(u)], answer[len(u) :]
        return Adjoints(w * self.scale, nu * self.weight, None, w / self.scale)

    def _run(
        self, u_hat: Tensor, params: Params, stopping: Stopping, warm: Warm | None, budget: Budget
    ) -> tuple[Tensor, list[_Ended], Warm]:
        """Project sample by sample, on as many threads as may work at once; return the fields (b, n) and how samples ended."""
        target = u_hat.reshape(len(u_hat), self.laws.unknowns) / self.scale
        # Where there is no time for a sample: u = û and λ = 0 are stationary.
        nothing = target.new_zeros(self.laws.rows)
        found = [_Ended(one, nothing, Status.ITERATION_LIMIT, 0, 0.0) for one in target]

        def work(piece: slice, deadline: Deadline) -> bool:
            i = piece.start
            own = {name: value[i] for name, value in params.items()}
            usable = warm is not None and bool(warm.usable[i])
            first, known = (warm.place[i], warm.multipliers[i]) if warm is not None and usable else (None, None)
            with torch.no_grad(), one_thread(), np.errstate(all="ignore"):
                if not deadline.over:
                    try:
                        found[i] = _Newton(self, target[i], own, stopping, deadline).run(first, known, budget.limit)
                    except RAISED:  # the law, at a field of this sample
                        found[i] = _Ended(target[i], found[i].multipliers, Status.NONFINITE, 0, np.nan)
            return not (deadline.over and found[i].status == Status.ITERATION_LIMIT)

        run(work, cut(len(u_hat), 1, len(u_hat)), budget.clock, min(workers(), max(1, len(u_hat))))
        u = torch.stack([target.new_zeros(self.laws.unknowns), *(one.u for one in found)])[1:]
        multipliers = torch.stack([nothing, *(one.multipliers for one in found)])[1:].numpy()
        usable = np.array([one.status == Status.CONVERGED for one in found], bool)
        return u, found, Warm(u.numpy(), multipliers, usable, self)


@dataclass(frozen=True)
class _Ended:
    """Where the iterations of one sample ended."""

    u: Tensor
    multipliers: Tensor
    status: Status
    steps: int
    stationarity: float
    second: int = UNKNOWN  # what is known of the curvature along the laws


@dataclass(frozen=True)
class _Point:
    """Iterates of one sample with the laws' linearization there, and their errors."""

    u: Tensor
    multipliers: Tensor
    here: Linearization
    slope: Tensor  # u − û + Jᵀλ
    violation: float
    stationarity: float
    error: float  # the larger of both, relative to what is allowed


class _Newton:
    """The iterations of one sample."""

    def __init__(
        self, method: MatrixFree, target: Tensor, params: Params, stopping: Stopping, deadline: Deadline
    ) -> None:
        self.method, self.laws, self.target, self.params = method, method.laws, target, params
        self.equality, self.lower, self.upper = method.equality, method.lower, method.upper
        self.stopping, self.deadline = stopping, deadline
        size = float(target.abs().max()) if len(target) else 0.0
        self.size = size if size > 0.0 else 1.0
        self.bounded = bool(method.limits.bounded.any())
        # Affine laws with bounds or inequalities: the dual function is concave, and its maximum is searched for.
        self.dual = method.convex and (self.bounded or not bool(method.equality.all()))
        self.penalty = 0.0

    def run(self, start: Index | None, multipliers: Index | None, limit: int) -> _Ended:
        """Iterate from a start, or from û."""
        first = self.target if start is None else torch.from_numpy(np.ascontiguousarray(start))
        known = self.target.new_zeros(self.laws.rows) if multipliers is None else torch.from_numpy(multipliers.copy())
        now = self._at(self._clipped(first), known)
        if not np.isfinite(now.error):
            return _Ended(self.target, known, Status.NONFINITE, 0, np.nan)
        self.sizes = row_sizes(self.laws, now.here)
        self.inverse = inverse_gram(self.laws, now.here, self._field(now.u), self.params, self.sizes, self._over)
        if self.dual:
            now = self._answered(now.here, known)
        best, waited, self.first = now, 0, now.violation
        for step in range(limit + 1):
            if now.error <= 1.0:
                return _ended(now, Status.CONVERGED, step, self._curvature(now))
            if step == limit or self.deadline.over:
                return _ended(best, Status.ITERATION_LIMIT, step)
            following = self._dual_step(now) if self.dual else self._step(now)
            if following is None:
                return _ended(best, Status.ITERATION_LIMIT if self.deadline.over else Status.STALLED, step)
            # Rounding may keep the error above what is aimed at: where the judge accepts, a step that gains little is the last.
            if self._acceptable(now) and following.error > _HALVES * now.error:
                least = now if now.error < following.error else following
                return _ended(least, Status.CONVERGED, step + 1, self._curvature(least))
            better = following.error < best.error
            best, now, waited = following if better else best, following, 0 if better else waited + 1
            if waited > _PATIENCE:
                return _ended(best, Status.STALLED, step + 1)
        raise AssertionError  # the loop returns

    def _curvature(self, at: _Point) -> int:
        """Say what is known of the curvature along the laws: at a saddle it is negative somewhere.

        Lanczos approximates the smallest eigenvalue of W from above: first over all directions, then along the laws.
        """
        curvature = None if self.method.convex else at.here.hessian(at.multipliers)
        if curvature is None or self.stopping.polish == 1.0:  # without a certificate nobody asks
            return HOLDS if curvature is None else UNKNOWN
        working = self.equality | (at.multipliers > 0.0)
        free = (at.u < self.upper) & (at.u > self.lower)
        curved = _System(at.here, curvature, self.inverse, working, free).curved
        system = _System(at.here, None, self.inverse, working, free)

        def along(d: Tensor) -> Tensor:
            right = torch.cat([torch.where(free, d, 0.0), torch.zeros_like(at.multipliers)])
            return minres(system.multiply, system.precondition, right, _FORCING, _PRODUCTS, self._over)[0][: len(d)]

        generic = torch.randn(len(at.u), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        value = lowest(curved, generic, _LANCZOS, self._over)
        if value < _CLEAR:
            value = lowest(lambda d: along(curved(d)), along(generic), _LANCZOS, self._over)
        return FAILS if value < -_FLAT else HOLDS if value > _CLEAR else UNKNOWN

    def _over(self) -> bool:
        return self.deadline.over

    def _field(self, u: Tensor) -> Tensor:
        return u.reshape(self.laws.shape)

    def _at(self, u: Tensor, multipliers: Tensor) -> _Point:
        here = self.laws.linearize(self._field(u), self.params)
        slope = u - self.target + here.pull(multipliers)
        broken = self._broken(u, here.residual)
        violation = _largest(broken)
        left = slope
        if self.bounded:  # at a bound the remainder is minus the bound's multiplier
            held = ((u >= self.upper) & (slope < 0)) | ((u <= self.lower) & (slope > 0))
            left = torch.where(held, 0.0, slope)
        stationarity = max(_largest(left.abs()), self._complementarity(here.residual, multipliers))
        allowed = self.stopping.polish * self.stopping.tolerance, self.stopping.stationarity * self.size
        error = max(violation / allowed[0], stationarity / allowed[1])
        return _Point(u, multipliers, here, slope, violation, stationarity, error)

    def _broken(self, u: Tensor, residual: Tensor) -> Tensor:
        """Return |h|, max(g, 0), and the excess over bounds."""
        rows = torch.where(self.equality, residual.abs(), residual.clamp(min=0.0))
        if not self.bounded:
            return rows
        return torch.cat([rows, torch.maximum(u - self.upper, self.lower - u).clamp(min=0.0)])

    def _complementarity(self, residual: Tensor, multipliers: Tensor) -> float:
        sign, room = multipliers[~self.equality], (-residual[~self.equality]).clamp(min=0.0)
        return _largest(torch.maximum(-sign, sign.abs() * room / self.size))  # a length, as stationarity is

    def _acceptable(self, at: _Point) -> bool:
        return at.violation <= self.stopping.tolerance and at.stationarity <= STATIONARITY * min(self.size, 1.0)

    def _step(self, now: _Point) -> _Point | None:
        """Take one step; None if no length of it is better."""
        working = self.equality | (now.multipliers + now.here.residual / self.sizes > 0.0)
        if bool((now.multipliers[~working] != 0.0).any()):
            now = self._at(now.u, torch.where(working, now.multipliers, 0.0))
        moved = now.u - now.slope
        above, below = moved > self.upper, moved < self.lower
        onto = torch.where(above, self.upper, torch.where(below, self.lower, now.u)) - now.u
        free = ~(above | below)
        curvature = None if self.method.convex else now.here.hessian(now.multipliers)
        for bend in (curvature, None) if curvature is not None else (None,):
            d, change, uphill = self._direction(now, working, free, onto, bend)
            if uphill or not bool(torch.isfinite(d).all()):
                continue
            full = self._at(now.u + d, now.multipliers + change)
            if self.method.convex or full.error <= _HALVES * now.error:
                return full
            length = self._length(now, d, now.multipliers + change)
            if length is not None:
                return full if length == 1.0 else self._at(now.u + length * d, now.multipliers + length * change)
        return None

    def _dual_step(self, now: _Point) -> _Point | None:
        """Take a semismooth Newton step of max ½‖u − û‖² + λᵀh(u) over λ, where u follows from λ; None if no length rises."""
        working = self.equality | (now.multipliers + now.here.residual / self.sizes > 0.0)
        moved = now.u - now.slope
        free = (moved <= self.upper) & (moved >= self.lower)
        # Rows without a free unknown make the system singular; what this adds falls with the violation.
        soft = _SOFT * min(1.0, now.violation / self.first) * self.sizes
        system = _System(now.here, None, self.inverse, working, free, soft)
        right = -torch.cat([torch.zeros_like(now.u), torch.where(working, now.here.residual, now.multipliers)])
        value = self._dual(now)
        rough = now.violation > _ROUGH * self.first
        for forcing in (_ROUGH, _FORCING) if rough else (_FORCING, _ROUGH):  # either direction may fail to rise
            found, _ = minres(system.multiply, system.precondition, right, forcing, _PRODUCTS, self._over)
            change = found[len(now.u) :]
            for length in self._lengths():
                trial = self._answered(now.here, now.multipliers + length * change)
                rise = float(now.here.residual.dot(trial.multipliers - now.multipliers))
                enough = self._dual(trial) >= value + _ARMIJO * rise - _ROUNDING * abs(value)
                if trial.error <= _HALVES * now.error or (enough and rise > 0.0):
                    return trial
        return None

    def _lengths(self) -> Iterator[float]:
        """Halve a step while there is time."""
        length = 1.0
        while length >= _SHORTEST and not self.deadline.over:
            yield length
            length *= 0.5

    def _answered(self, here: Linearization, multipliers: Tensor) -> _Point:
        """Return the multipliers, those of inequalities not negative, with the field that is best for them."""
        known = torch.where(self.equality, multipliers, multipliers.clamp(min=0.0))
        return self._at(self._clipped(self.target - here.pull(known)), known)

    def _dual(self, at: _Point) -> float:
        return 0.5 * float((at.u - self.target).square().sum()) + float(at.multipliers.dot(at.here.residual))

    def _clipped(self, u: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(u, self.lower), self.upper)

    def _direction(
        self, now: _Point, working: Tensor, free: Tensor, onto: Tensor, curvature: Callable[[Tensor], Tensor] | None
    ) -> tuple[Tensor, Tensor, bool]:
        """Solve for (d, δ), with d = onto for unknowns that are put at a bound; return too whether dᵀWd is negative."""
        system = _System(now.here, curvature, self.inverse, working, free)
        slope, rows = now.slope, now.here.residual
        if bool(onto.any()):
            slope, rows = slope + system.curved(onto), rows + now.here.push(onto)
        right = -torch.cat([torch.where(free, slope, 0.0), torch.where(working, rows, 0.0)])
        found, _ = minres(system.multiply, system.precondition, right, _FORCING, _PRODUCTS, self._over)
        d, change = found[: len(slope)] + onto, found[len(slope) :]
        return d, change, curvature is not None and not float(d.dot(system.curved(d))) > 0.0

    def _length(self, now: _Point, d: Tensor, multipliers: Tensor) -> float | None:
        """Find how far ½‖u − û‖² + μ·(ℓ1 violation) falls along d; None if it does not."""
        away = now.u - self.target
        theta, objective = float(self._broken(now.u, now.here.residual).sum()), 0.5 * float(away.dot(away))
        rise = float(away.dot(d)) + 0.5 * float(d.dot(d))
        self.penalty = max(
            self.penalty, _MARGIN * _largest(multipliers.abs()), 2.0 * rise / theta if theta > 0.0 else 0.0
        )
        expected = float(away.dot(d)) - self.penalty * theta
        if not expected < 0.0:
            return None
        merit = objective + self.penalty * theta
        own = {name: value[None] for name, value in self.params.items()}
        for length in self._lengths():
            u = now.u + length * d
            rows = self.laws.residual(self._field(u)[None], own)[0]
            reached = 0.5 * float((u - self.target).square().sum()) + self.penalty * float(self._broken(u, rows).sum())
            if reached <= merit + _ARMIJO * length * expected + _ROUNDING * merit:
                return length
        return None


class _System:
    """[[W, Jᵀ], [J, 0]] over the free unknowns and the working rows, the identity elsewhere, and its preconditioner."""

    def __init__(
        self, here: Linearization, curvature: Callable[[Tensor], Tensor] | None, inverse: Callable[[Tensor], Tensor],
        working: Tensor, free: Tensor, soft: Tensor | None = None,
    ) -> None:  # fmt: skip
        self._here, self._curvature, self._inverse, self._working, self._free = here, curvature, inverse, working, free
        self._soft = soft  # minus the diagonal of the lower right block

    def curved(self, d: Tensor) -> Tensor:
        """Return Wd."""
        return d if self._curvature is None else d + self._curvature(d)

    def multiply(self, x: Tensor) -> Tensor:
        """Multiply by the matrix."""
        free, working = self._free, self._working
        d, nu = x[: len(free)], x[len(free) :]
        inside, active = torch.where(free, d, 0.0), torch.where(working, nu, 0.0)
        top = torch.where(free, self.curved(inside) + self._here.pull(active), d)
        rows = self._here.push(inside)
        if self._soft is not None:
            rows = rows - self._soft * nu
        return torch.cat([top, torch.where(working, rows, nu)])

    def precondition(self, x: Tensor) -> Tensor:
        """Multiply by the inverse of diag(I, JJᵀ), as far as it is known."""
        free, working = self._free, self._working
        d, nu = x[: len(free)], x[len(free) :]
        return torch.cat([d, torch.where(working, self._inverse(torch.where(working, nu, 0.0)), nu)])


def _ended(at: _Point, status: Status, steps: int, second: int = UNKNOWN) -> _Ended:
    return _Ended(at.u, at.multipliers, status, steps, at.stationarity, second)


def _largest(values: Tensor) -> float:
    """Return the largest of values that are not negative; NaN if one is."""
    return float(values.max()) if len(values) else 0.0


def _never() -> bool:
    return False
