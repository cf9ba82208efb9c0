"""DualTotals: the stage of a few rows that add up over the points of a large field, solved by their multipliers alone.

Given multipliers λ, the Lagrangian is minimized at every point by itself, within its bounds: u(λ). The rows at u(λ) are the
slopes of a concave function of λ, its value, which Newton's method maximizes: as many unknowns as there are rows, and every
iteration is a pass over the field (kernels.points; math.md, eq. totals). Samples on which that fails are those of a System like
any other, if the field is not too large for one. Must not import other stages but iterate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from snapfm.arrays import Index, Mask, Values
from snapfm.errors import Status
from snapfm.kernels.layout import HOLDS
from snapfm.kernels.numba.sections import starts
from snapfm.kernels.points import PIVOT, REMAINDER, VALUE, Points, linearize, minimize, sections, sums_of
from snapfm.linear import Automatic
from snapfm.reduce.totals import PointClass, Totals
from snapfm.solve.budget import certified
from snapfm.solve.iterate import Iterate
from snapfm.solve.memory import Workspaces
from snapfm.solve.stage import Ended, LinearState, Stage, State
from snapfm.solve.system import Part
from snapfm.solve.tiles import AttemptOutcome, worst_status
from snapfm.text import plural

_ROUNDS = 8  # Newton steps of a point in one pass, and one; two suffice near an answer
_LENGTHS = 20  # of a step, each half of the one before, until the method gives up
_RISE = 1e-4  # share of the predicted rise of the dual function that a step has to bring
_ROUNDING = 1e-13  # of a value, relative to its size: sums of many points
_SINGULAR = 1e-13  # eigenvalues of the Schur matrix, scaled to a unit diagonal, that are taken for zero
_LEAST_PIVOT = 1e-8  # of W at a minimum
_PATIENCE = 12  # iterations in a row that do not halve how far the rows are off
_LARGEST = 500_000  # unknowns of a field that a System is made for: two gigabytes
_SOLVES = 2  # of the linearized problem: the second for what rounding leaves
_ACTIVE = 1e-9  # a row that pushes with more than this share of the largest push belongs to an active inequality


class _Pass(NamedTuple):
    """What a pass finds at the minimum of the Lagrangian for some multipliers."""

    multipliers: Values
    rows: Values  # (m,)
    slope: Values  # (m,) of the dual function: the rows where a last Newton step would lead
    matrix: Values  # (m, m) J W⁻¹ Jᵀ, minus the curvature of the dual function
    value: float  # of the dual function
    remainder: float  # largest |u − û + Jᵀλ| that no bound holds
    minimal: bool  # whether every point is at a minimum, and all is finite

    def off(self, equality: Mask) -> float:
        """Return how far the slope is from that of a maximum, as a distance of fields."""
        size = np.sqrt(np.diag(self.matrix))
        counts = equality | (self.multipliers > 0.0) | (self.slope > 0.0)
        off = np.where(counts, np.abs(self.slope), 0.0) / np.where(size > 0.0, size, 1.0)
        return float(off.max())

    def violation(self, equality: Mask) -> float:
        """Return the largest |h| or max(g, 0)."""
        return float(np.where(equality, np.abs(self.rows), np.maximum(self.rows, 0.0)).max())

    def complementarity(self, equality: Mask) -> float:
        """Return the largest λ|g| of rows with room."""
        return float(np.where(equality, 0.0, self.multipliers * np.maximum(-self.rows, 0.0)).max())


class DualTotals(Stage):
    """Prepared for some totals among the unknowns of a plan, with their limits; `lengths` are unknowns that are not negative."""

    def __init__(self, number: int, found: Totals, free: Mask, lower: Values, upper: Values, lengths: Index) -> None:
        self.number, self.found = number, found
        self._points = [_points(one) for one in found.classes]
        self._reads_known = any(not free[one.rows.inputs].all() for one in found.classes)
        self._lower, self._upper = lower, upper
        if len(lengths) or self._reads_known:
            self._lower, self._upper = (
                np.where(free, lower, np.inf),
                np.where(free, upper, -np.inf),
            )  # crossed: it is known
            self._lower[lengths] = 0.0
        self._limits = lower, upper, lengths
        self._fallback: Iterate | None = None
        self._spaces: Workspaces[Values] = Workspaces(lambda: np.zeros((1, len(lower))))

    def solve(self, state: State, ended: Ended) -> None:
        """Solve sample by sample. Written: state's u and multipliers, ended."""
        count, params = len(state.u), self.found.extended(state.params)
        outcome = AttemptOutcome.unfinished(count)
        base = self.found.known.evaluate(state.u, state.params)
        if not minimize.overloads:
            with state.deadline.clock.paused():  # compilation is not counted
                field, line = np.zeros((1, len(self._lower))), np.zeros((1, params.shape[1]))
                empty = [one._replace(inputs=one.inputs[:0], outside=one.outside[:0]) for one in self._points]
                self._sums(minimize, empty, line, np.zeros((1, len(self.found.rows))), field, 0.0, 1, field, field)
        for i in range(count):
            one = slice(i, i + 1)
            with self._spaces.lend() as space:
                sample = _Sample(self, state, one, params[one], base[i], space)
                outcome.status[i], outcome.iterations[i] = sample.solve(state)
        outcome.second[outcome.status == Status.CONVERGED] = HOLDS
        lost = np.flatnonzero(outcome.status == Status.STALLED)
        if len(lost) and state.retry and len(self.found.unknowns) <= _LARGEST:
            self._attempt(state, lost, outcome)
        ended.status[:] = worst_status(np.stack([ended.status, outcome.status], axis=1))
        np.maximum(ended.iterations, outcome.iterations, out=ended.iterations)
        np.minimum(ended.second, outcome.second, out=ended.second, casting="unsafe")

    def _attempt(self, state: State, lost: Index, outcome: AttemptOutcome) -> None:
        """Leave some samples to a System. Written: their u and multipliers, outcome."""
        fallback = self._fallback
        if fallback is None:  # threads that meet here each make one
            lower, upper, lengths = self._limits
            self._fallback = fallback = Iterate(
                self.number, Part(self.found.systems()[0], lower, upper, lengths, Automatic()), 0
            )
        some, own = state.select(lost, state.limit), Ended.blank(len(lost))
        some.u[:, self.found.unknowns], some.warm = some.u_hat[:, self.found.unknowns], None
        own.begin()
        fallback.solve(some, own)
        state.u[lost], state.multipliers[lost] = some.u, some.multipliers
        outcome.status[lost], outcome.second[lost] = own.status, own.second
        outcome.iterations[lost] += own.iterations

    def _sums(
        self, kernel: Any, points: list[Points], params: Values, multipliers: Values, target: Values, *more: Any
    ) -> Values:  # fmt: skip
        """Run a pass of `minimize` or `linearize` over points. Written: the last of `more`."""
        out = np.zeros(sums_of(multipliers.shape[1]))
        out[PIVOT] = 1.0
        for one in points:
            kernel(one, params, multipliers, target, self._lower, self._upper, *more, out)
        return out

    def minimum(
        self, multipliers: Values, params: Values, base: Values, u_hat: Values, goal: float, start: Values, u: Values
    ) -> _Pass:  # fmt: skip
        """Minimize the Lagrangian for multipliers (m,). Written: u."""
        m = len(multipliers)
        sums = self._sums(minimize, self._points, params, multipliers[None], u_hat, goal, _ROUNDS, start, u)
        rows = sums[:m] + base
        value = float(sums[VALUE] + multipliers @ rows)
        minimal = bool(np.isfinite(sums).all() and np.isfinite(value) and sums[PIVOT] > _LEAST_PIVOT)
        return _Pass(
            multipliers, rows, rows - sums[m : 2 * m], _symmetric(sums, m), value, float(sums[REMAINDER]), minimal
        )

    def pull(self, state: State, rest: Values) -> None:
        """Add Jᵀλ. Written: rest."""
        params = self.found.extended(state.params)
        for one in self.found.classes:
            one.rows.pull(self._index(one), state.u, params, state.multipliers, rest)

    def linear(self, at: LinearState) -> None:
        """Solve the linearized system by its Schur complement. Written: w, ν."""
        rows, equality, params = self.found.rows, self.found.equality, self.found.extended(at.params)
        for i in range(len(at.u)):
            one, nu = slice(i, i + 1), np.zeros((1, len(rows)))
            multipliers = at.multipliers[one][:, rows]
            for solves in range(_SOLVES + 1):
                read = params[one], multipliers, at.g[one], nu, at.u[one]
                sums = self._sums(linearize, self._points, *read, at.w[one])
                matrix, left = _symmetric(sums, len(rows)), sums[len(rows) : 2 * len(rows)]
                push = multipliers[0] * np.sqrt(np.maximum(np.diag(matrix), 0.0))
                active = equality | (push > _ACTIVE * np.abs(push).max(initial=1.0))
                if solves == _SOLVES or not np.isfinite(sums).all():
                    break
                nu[0, active] += _solved(matrix[np.ix_(active, active)], left[active])
            if not np.isfinite(sums).all():
                at.w[one][:, self.found.unknowns] = np.nan
            at.nu[i, rows] = nu[0]

    def pull_linear(self, at: LinearState) -> None:
        """Add Jᵀν + Hw. Written: rest, by_params."""
        at.pull(self.found.known, self.found.rows[None])
        whole = replace(at, params=self.found.extended(at.params))
        whole.by_params = np.zeros_like(whole.params)
        for one in self.found.classes:
            if one.live or self._reads_known:
                whole.pull(one.rows, self._index(one))
        at.by_params += whole.by_params[:, : at.params.shape[1]]

    def _index(self, one: PointClass) -> Index:
        """Return the rows of every point."""
        return np.repeat(self.found.rows[None], len(one.rows.inputs), axis=0)

    def bytes(self, samples: int) -> float:
        """Predict the memory of a piece of so many samples."""
        points = max(len(one.rows.inputs) for one in self.found.classes)
        return 8.0 * (len(self._lower) + points * len(self.found.rows) + samples * len(self.found.constants))

    def describe(self) -> str:
        """Say how many rows there are, and over how many points."""
        points = sum(len(one.rows.inputs) for one in self.found.classes)
        return (
            f"solve {plural(len(self.found.rows), 'total')} over {plural(points, 'point')} and "
            f"{plural(len(self.found.unknowns), 'unknown')} by their multipliers"
        )


class _Sample:
    """One sample on its way: multipliers that rise, and the field that belongs to them."""

    def __init__(
        self, stage: DualTotals, state: State, one: slice, params: Values, base: Values, space: Values
    ) -> None:
        self._stage, self._params, self._base = stage, params, base
        self._equality, self._stopping = stage.found.equality, state.stopping
        self._u_hat, self._own, self._here, self._there = state.u_hat[one], state.u[one], state.u[one], space
        self._multipliers = state.multipliers[one]  # of all rows
        self._start = np.zeros(len(base)) if state.warm is None else state.warm[one][0, stage.found.rows]
        size = float(max(self._u_hat.max(), -self._u_hat.min()))
        self._finite = np.isfinite(size)
        unit = size if size > 0.0 else 1.0
        self._allowed = self._stopping.stationarity * unit
        # Points are as exact as a certificate needs, also where none is asked for: what they are off shows in the rows.
        self._goal = 0.5 * certified(self._stopping.tolerance).stationarity * unit

    def solve(self, state: State) -> tuple[int, int]:
        """Maximize the dual function; return status and iterations. Written: the state's u and multipliers."""
        unknowns = self._stage.found.unknowns
        if not self._finite:
            self._own[:, unknowns] = self._u_hat[:, unknowns]
            return int(Status.NONFINITE), 1
        at: _Pass | None = self._begin()
        status, iterations = Status.STALLED, 1
        best, patience = np.inf, _PATIENCE
        while at is not None and at.minimal:
            off, violation = at.off(self._equality), at.violation(self._equality)
            useful, best = off <= 0.5 * best, min(best, off)
            patience = _PATIENCE if useful else patience - 1
            lawful = max(at.remainder, at.complementarity(self._equality)) <= self._allowed
            lawful &= violation <= self._stopping.tolerance
            if lawful and (violation <= self._stopping.polish * self._stopping.tolerance or not useful):
                status = Status.CONVERGED
            elif patience and (iterations >= state.limit or state.deadline.over):
                status = Status.ITERATION_LIMIT
            if status != Status.STALLED or not patience:
                break
            at, iterations = self._rise(at), iterations + 1
        if at is not None:
            self._multipliers[:, self._stage.found.rows] = at.multipliers
        if self._here is not self._own:
            self._own[:, unknowns] = self._here[:, unknowns]
        return int(status), iterations

    def _begin(self) -> _Pass:
        """Begin at the given multipliers, or at none where there is no minimum for them."""
        at = self._minimum(np.where(self._equality, self._start, np.maximum(self._start, 0.0)))
        if not at.minimal and self._start.any():
            at = self._minimum(np.zeros_like(self._start))
        self._here, self._there = self._there, self._here
        return at

    def _rise(self, at: _Pass) -> _Pass | None:
        """Make Newton's step, or a share of it."""
        step = _ascent(at, self._equality)
        rise, length = float(at.slope @ step), 1.0
        slack = _ROUNDING * abs(at.value)
        for _ in range(_LENGTHS):
            then = self._minimum(at.multipliers + length * step)
            enough = then.value >= at.value + _RISE * length * rise - slack
            if then.minimal and (enough or then.off(self._equality) <= 0.5 * at.off(self._equality)):
                self._here, self._there = self._there, self._here
                return then
            length *= 0.5
        return None

    def _minimum(self, multipliers: Values) -> _Pass:
        given = self._params, self._base, self._u_hat, self._goal, self._here, self._there
        return self._stage.minimum(multipliers, *given)


def _points(one: PointClass) -> Points:
    """Prepare what kernels read of a class."""
    program, k = one.rows.program, one.rows.inputs.shape[1]
    jacobian, hessian = program.pattern, program.hessian
    entry, bend = (
        (k * pattern.row_of() + pattern.indices).astype(np.int32, copy=False) for pattern in (jacobian, hessian)
    )
    found = Points(
        program.code, program.constants, entry, bend, one.rows.inputs, one.rows.outside, np.zeros(0, np.int64)
    )
    return found._replace(starts=starts(sections(program.cells, program.slots, found, jacobian.rows)))


def _symmetric(sums: Values, m: int) -> Values:
    """Return the matrix whose lower triangle is among sums."""
    matrix = np.zeros((m, m))
    matrix[np.tril_indices(m)] = sums[2 * m : VALUE]
    return np.asarray(np.tril(matrix) + np.tril(matrix, -1).T)


def _solved(matrix: Values, right: Values) -> Values:
    """Solve a small symmetric system; rows that follow from others get the least share."""
    if not np.isfinite(matrix).all() or not len(right):
        return np.zeros(len(right))
    size = np.sqrt(np.abs(np.diag(matrix)))
    scale = np.where(size > 0.0, 1.0 / np.where(size > 0.0, size, 1.0), 0.0)
    values, vectors = np.linalg.eigh(scale[:, None] * matrix * scale)
    large = np.abs(values) > _SINGULAR * np.abs(values).max(initial=0.0)
    share = np.where(large, 1.0 / np.where(large, values, 1.0), 0.0)
    found: Values = scale * (vectors @ (share * (vectors.T @ (scale * right))))
    return found


def _ascent(at: _Pass, equality: Mask) -> Values:
    """Maximize slopeᵀd − ½dᵀSd with λ + d ≥ 0 on inequalities, whose λ are not negative, by an active set."""
    held = ~equality & (at.multipliers <= 0.0) & (at.slope <= 0.0)
    step = -at.multipliers * held
    for _ in range(3 * len(held)):
        free = ~held
        step = np.where(held, -at.multipliers, 0.0)
        step[free] = _solved(at.matrix[np.ix_(free, free)], at.slope[free] - at.matrix[free] @ step)
        below = free & ~equality & (at.multipliers + step < 0.0)
        if below.any():
            held |= below
            continue
        push = np.where(held, at.slope - at.matrix @ step, 0.0)
        if not (push > _ROUNDING * np.abs(at.slope)).any():
            break
        held[np.argmax(push)] = False
    return np.where(equality, step, np.maximum(step, -at.multipliers))
