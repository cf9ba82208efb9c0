"""Sequential quadratic programming on small parts: for laws that are degenerate where Newton's factors need them independent.

Linear programs at a vertex with more active rows than unknowns, square systems with dependent slopes, rows of very different
sizes. Every step solves its quadratic program exactly by non-negative least squares, which chooses independent rows by itself
(math.md, "Sequential quadratic programming"); a filter judges steps, a box bounds them. One lane after the other, in numpy. Used
by solve.attempts.order; must not import it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from snapfm.arrays import Index, Values
from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.solve.attempts.attempt import Attempt, Search
from snapfm.solve.attempts.dense_laws import DensePoint, DenseProblem
from snapfm.solve.attempts.feasibility import restore
from snapfm.solve.attempts.least_distance import balance, least_distance
from snapfm.solve.tiles import AttemptOutcome, Tiles

if TYPE_CHECKING:
    from snapfm.solve.system import Loops, Part

_ENTRIES = 400_000  # of the matrix of a quadratic program: its solution takes a second at most
# Shares of the violation that a step is asked to remove, until the box has room for one.
_RELAXED = (1.0, 0.5, 0.1, 0.01)
_LESS = 1e-5  # share by which violation or objective has to fall, relative to the violation
_ARMIJO = 1e-4
_LEAST_CURVATURE = 1e-3  # eigenvalues of W are replaced by their size, or by this
_ACROSS = 10.0  # curvature added across the equalities, relative to the largest
_SMALLEST = 1e-14  # a box of this size, relative to the field, has no room for a step
_FLAT = 1e-7  # curvature along the laws counts as not negative above minus this
_TOUCHING = 1e-9  # distance at which an inequality without a multiplier counts as active
_KNOWN = 0.1  # share of the stationarity that the judge allows: an answer known this well is one for the judge too
_ROUNDINGS = 8.0  # of the terms of a gradient that are all that is left of it
_RANK = 1e-10  # singular values of active rows below this share of the largest count as zero


def _sequential(search: Search) -> AttemptOutcome:
    """Solve quadratic programs from û on, lane by lane."""
    search.begin()
    tiles, stopping = search.tiles, search.stopping
    ended, limits = AttemptOutcome.stalled(tiles.lanes), search.allowed
    for lane in range(tiles.lanes):
        if search.deadline.over:
            break
        tile = tiles.take(np.array([lane]))
        tolerance = stopping.tolerance * float(tile.by_lane(core.UNIT)[0, 1])
        problem = DenseProblem.of(search.loops, tile, search.deadline)
        if not np.isfinite(problem.target).all():
            continue
        try:
            solved, used, second = _iterate(problem, tolerance, stopping.stationarity, int(limits[lane]))
        except (np.linalg.LinAlgError, ValueError):  # products overflowed: SciPy and LAPACK refuse what is not finite
            continue
        tiles.put(np.array([lane]), tile, np.array([0]))
        ended.iterations[lane], ended.second[lane] = used, second
        if solved:
            ended.status[lane] = int(Status.CONVERGED)
    return ended


def _dense(part: Part) -> bool:
    """Whether a part is small enough for quadratic programs with dense matrices, and has no eliminated unknowns."""
    system = part.system
    rows, unknowns = system.program.pattern.rows, system.program.pattern.columns
    small = (2 * rows + 2 * unknowns) * unknowns <= _ENTRIES
    return bool(small and not len(system.gram.data) and not system.eliminated.shape[1])


def _opaque(part: Part) -> bool:
    return part.system.opaque


def violation(loops: Loops, tiles: Tiles) -> Values:
    """Return the largest violation of rows and bounds of every lane, in its unit; infinite where it is not a number."""
    rows, x = tiles.by_lane(core.RESIDUAL), tiles.by_lane(core.X)
    off = np.where(loops.part.system.equality, np.abs(rows), np.maximum(rows, 0.0)).max(axis=1, initial=0.0)
    if loops.part.kkt.frame.bounded:
        excess = np.maximum(tiles.by_lane(core.LOWER) - x, x - tiles.by_lane(core.UPPER))
        off = np.maximum(off, excess.max(axis=1, initial=0.0))
    return np.where(np.isnan(off), np.inf, off)


def _iterate(problem: DenseProblem, tolerance: float, stationarity: float, limit: int) -> tuple[bool, int, int]:
    """Iterate from the tile's point; return whether it ended at an answer, the iterations, and what its curvature is."""
    x = np.clip(problem.tile.by_lane(core.X)[0], problem.lower, problem.upper)
    nothing = multipliers = np.zeros(len(problem.equality))
    point = problem.at(x, multipliers)
    size = max(1.0, float(np.abs(problem.target).max(initial=0.0)))
    box, passed = np.inf, [(np.inf if point.theta == 0.0 else 1e4 * max(1.0, point.theta), -np.inf)]
    iteration = 0
    while iteration < limit:
        iteration += 1
        if problem.deadline.over or not point.finite:
            return False, iteration, core.UNKNOWN
        program = _program(problem, point, multipliers)
        tried = _step(program, point.rows, box)
        if tried is None:  # the box has no room for a step, or the rows contradict each other to first order
            known = [*passed, (point.theta, point.objective)]
            trial, used, reached = restore(problem, point, tolerance, limit - iteration, partial(_unlike, known))
            iteration += used
            if not reached:
                x = trial.x
                break
            tried, fall, accepted = _Step(trial.x, nothing, 0.0), 0.0, True
        else:
            trial = problem.at(tried.to, tried.multipliers if program.exact else nothing)
            fall = point.objective - trial.objective
            accepted = _passes(trial, point, fall, passed)
            if not accepted and tried.share == 1.0:  # second-order correction: rows bend within the step
                again = _step(program, trial.rows - point.slopes @ (tried.to - x), box) if trial.finite else None
                if again is not None and again.share == 1.0:
                    bent = problem.at(again.to, again.multipliers if program.exact else nothing)
                    if _passes(bent, point, point.objective - bent.objective, passed):
                        tried, trial, accepted = again, bent, True
        found = _multipliers(problem, trial, tried.multipliers, tolerance, stationarity)
        if found is not None:
            # Where rounding hides the stationarity from the judge the other attempts go on.
            sure = max(problem.stationarity(trial, found), _rounding(trial, found)) <= _KNOWN * problem.stationary
            return sure, iteration, _curvature(problem, problem.at(trial.x, found), found)
        moved = float(np.abs(tried.to - x).max(initial=0.0))
        if accepted:
            if not (fall > 0.0 and point.theta <= tolerance):
                passed.append((point.theta, point.objective))
            x, multipliers, point = trial.x, tried.multipliers, trial
            if not program.exact:  # multipliers of a convexified program grow with the curvature that it adds
                multipliers = _first_order(problem, point, multipliers)
                point = problem.at(x, multipliers)
            box = max(box, 2.0 * moved) if tried.share == 1.0 else max(2.0 * box, 4.0 * moved)
        else:
            box = 0.25 * min(box, moved)
        if box <= _SMALLEST * size:
            break
    problem.at(x, multipliers)
    return False, iteration, core.UNKNOWN


_Entry: TypeAlias = tuple[float, float]  # violation and objective of a point in the filter


class _Step(NamedTuple):
    """Where a step leads, the multipliers of the rows, and the share of the violation that it was asked to remove."""

    to: Values
    multipliers: Values
    share: float


class _Program(NamedTuple):
    """min ½dᵀWd + gᵀd in the coordinates z = Lᵀd + L⁻¹g of W = LLᵀ, where it is the least norm."""

    problem: DenseProblem
    point: DensePoint
    slopes: Values  # of the rows by z
    back: Values | None  # L⁻ᵀ, None for the identity
    origin: Values  # d at z = 0
    exact: bool = True  # W is that of the laws, not one made positive

    def step(self, z: Values) -> Values:
        moved: Values = self.origin + (z if self.back is None else self.back @ z)
        return moved


def _program(problem: DenseProblem, point: DensePoint, multipliers: Values) -> _Program:
    gradient = point.x - problem.target
    if point.hessian is None or not point.hessian.any() or not np.isfinite(point.hessian).all():
        return _Program(problem, point, point.slopes, None, -gradient)
    whole = np.eye(len(gradient)) + point.hessian
    values, vectors = np.linalg.eigh(whole)
    exact = bool(values[0] >= _LEAST_CURVATURE)
    if not exact:
        # Curvature across active rows and bounds changes no step that they determine, and leaves less to be made positive.
        norms = np.linalg.norm(point.slopes, axis=1)
        held = (problem.equality | (multipliers > 0.0)) & (norms > 0.0)
        across = point.slopes[held] / norms[held, None]
        at_bound = (point.x <= problem.lower) | (point.x >= problem.upper)
        most = _ACROSS * np.abs(values).max()
        values, vectors = np.linalg.eigh(whole + most * (across.T @ across + np.diag(at_bound)))
    root = 1.0 / np.sqrt(np.maximum(np.abs(values), _LEAST_CURVATURE))
    back = vectors * root  # L⁻ᵀ up to a rotation of z
    return _Program(problem, point, point.slopes @ back, back, -back @ (back.T @ gradient), exact)


def _first_order(problem: DenseProblem, point: DensePoint, given: Values) -> Values:
    """Return the multipliers of the rows that a step held which balance the distance best; those given if none are found."""
    held = problem.equality | (given > 0.0)
    free = (point.x > problem.lower) & (point.x < problem.upper)
    slopes = point.slopes[held][:, free]
    norms = np.linalg.norm(slopes, axis=1)
    used = norms > 0.0
    weights = balance(slopes[used] / norms[used, None], problem.equality[held][used], (problem.target - point.x)[free])
    if weights is None:
        return given
    found = np.zeros_like(given)
    found[np.flatnonzero(held)[used]] = weights / norms[used]
    return found


def _step(program: _Program, rows: Values, box: float) -> _Step | None:
    """Solve the quadratic program inside the bounds and a box; None if the box has no room for a step."""
    problem, x = program.problem, program.point.x
    high, low = np.minimum(problem.upper - x, box), np.maximum(problem.lower - x, -box)
    above, below = np.flatnonzero(np.isfinite(high)), np.flatnonzero(np.isfinite(low))
    unit = np.eye(len(x)) if program.back is None else program.back
    matrix = np.concatenate([program.slopes, unit[above], -unit[below]])
    shift = program.point.slopes @ program.origin
    bounds = np.concatenate([high[above] - program.origin[above], program.origin[below] - low[below]])
    equal = np.concatenate([problem.equality, np.zeros(len(bounds), bool)])
    for share in _RELAXED:
        if problem.deadline.over:
            return None
        # an inequality that holds keeps its room; of what is broken a share is removed
        wanted = np.where(problem.equality | (rows > 0.0), share * rows, rows)
        found = least_distance(matrix, np.concatenate([-wanted - shift, bounds]), equal)
        if found is not None:
            at_upper, at_lower = np.split(found[1][len(rows) :] > 0.0, [len(above)])
            held = np.concatenate([above[at_upper], below[at_lower]])
            limits = np.concatenate([high[above[at_upper]], low[below[at_lower]]])
            step = _refined(program, wanted, found[1][: len(rows)], program.step(found[0]), held, limits)
            to = np.clip(x + np.clip(step, low, high), problem.lower, problem.upper)
            for which, limit in ((above[at_upper], problem.upper), (below[at_lower], problem.lower)):
                at_bound = which[np.abs(limit[which] - x[which]) <= box]
                to[at_bound] = limit[at_bound]  # rounding leaves it beside
            return _Step(to, found[1][: len(rows)], share)
    return None


def _refined(program: _Program, rows: Values, multipliers: Values, step: Values, held: Index, limits: Values) -> Values:
    """Remove what rounding left of the active rows: far from û the coordinates z are large, and the step is small."""
    active = program.problem.equality | (multipliers > 0.0)
    free = np.ones(len(step), bool)
    free[held] = False
    better = step.copy()
    better[held] = limits
    slopes = program.point.slopes[active]
    left = rows[active] + slopes @ better
    norms = np.linalg.norm(slopes[:, free], axis=1)
    used = norms > 0.0
    if used.any():
        unit = slopes[used][:, free] / norms[used, None]
        better[free] -= np.linalg.lstsq(unit, left[used] / norms[used], rcond=None)[0]
    before, after = rows[active] + slopes @ step, rows[active] + slopes @ better
    return better if np.abs(after).max(initial=0.0) <= np.abs(before).max(initial=0.0) else step


def _multipliers(
    problem: DenseProblem, point: DensePoint, given: Values, tolerance: float, stationarity: float
) -> Values | None:
    """Return multipliers that make a point an answer: those given, or by non-negative least squares. None if it is none.

    Where slopes become dependent as the violation falls, multipliers grow from step to step, and the last step's are behind.
    """
    if not problem.violation(point) <= 0.1 * tolerance or not point.finite:
        return None
    if problem.stationarity(point, given) <= max(stationarity, _rounding(point, given)):
        return given
    norms = np.linalg.norm(point.slopes, axis=1)
    active = np.flatnonzero((problem.equality | (np.abs(point.rows) <= stationarity * norms)) & (norms > 0.0))
    free = (point.x > problem.lower) & (point.x < problem.upper)
    unit = np.eye(len(point.x))
    above, below = unit[point.x >= problem.upper], -unit[point.x <= problem.lower]
    rows = np.concatenate([point.slopes[active] / norms[active, None], above, below])
    same = np.concatenate([problem.equality[active], np.zeros(len(above) + len(below), bool)])
    weights = balance(rows, same, problem.target - point.x)
    found = np.zeros(len(norms))
    if weights is None or not (len(active) or free.any()):
        return None
    found[active] = weights[: len(active)] / norms[active]
    return found if problem.stationarity(point, found) <= max(stationarity, _rounding(point, found)) else None


def _rounding(point: DensePoint, multipliers: Values) -> float:
    """Return how well x − x̂ + Jᵀλ can be known. No step gets closer; whether it is close enough the judge decides."""
    terms = np.abs(point.slopes).T @ np.abs(multipliers)
    return float(_ROUNDINGS * np.finfo(float).eps * terms.max(initial=0.0))


def _passes(trial: DensePoint, point: DensePoint, fall: float, passed: list[_Entry]) -> bool:
    """Whether a filter accepts a trial point: it lowers violation or objective, and is unlike all points in the filter."""
    if not trial.finite or not _unlike([*passed, (point.theta, point.objective)], trial):
        return False
    if fall > 0.0 and fall > point.theta:  # a step for the objective's sake has to lower it
        return trial.objective <= point.objective - _ARMIJO * fall + _noise(trial)
    return True


def _unlike(passed: list[_Entry], trial: DensePoint) -> bool:
    """Whether a point has less violation, or a lower objective, than each of some others."""
    return not any(
        trial.theta > (1.0 - _LESS) * theta and trial.objective > objective - _LESS * theta + _noise(trial)
        for theta, objective in passed
    )


def _noise(point: DensePoint) -> float:
    """Return the rounding of an objective."""
    return 1e-14 * (1.0 + abs(point.objective))


def _curvature(problem: DenseProblem, point: DensePoint, multipliers: Values) -> int:
    """Return what is known of the curvature along the active rows and bounds, at an answer evaluated with its multipliers."""
    if point.hessian is None:
        return core.HOLDS
    whole = np.eye(len(point.x)) + point.hessian
    free = (point.x > problem.lower) & (point.x < problem.upper)
    whole = whole[np.ix_(free, free)]
    if not np.isfinite(whole).all():
        return core.UNKNOWN
    norms = np.maximum(np.linalg.norm(point.slopes, axis=1), 1e-30)
    held = problem.equality | (multipliers > 0.0)
    touching = held | (np.abs(point.rows) <= _TOUCHING * norms)
    least = [_least_curvature(whole, point.slopes[which][:, free]) for which in (held, touching)]
    if least[0] >= -_FLAT:
        return core.HOLDS
    return core.FAILS if least[1] < -_FLAT else core.UNKNOWN  # a row without a multiplier may be in the way


def _least_curvature(whole: Values, active: Values) -> float:
    """Return the least eigenvalue of a matrix along the directions that leave rows as they are."""
    basis = np.eye(len(whole))
    if len(active):
        _, sizes, right = np.linalg.svd(active)
        basis = right[int((sizes > _RANK * sizes.max(initial=0.0)).sum()) :].T
    if not basis.shape[1]:
        return np.inf
    return float(np.linalg.eigvalsh(basis.T @ whole @ basis)[0])


# A point that almost obeys is worth more than one that does not, certified or not.
PROGRAMS = Attempt("quadratic programs", 0.2, _sequential, _dense, keeps_nearer=True)
# Where evaluations cost more than linear algebra: exact programs take the fewest of them.
OPAQUE_PROGRAMS = replace(PROGRAMS, share=0.4).when(_opaque)
