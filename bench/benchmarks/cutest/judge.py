"""An independent judge of projected points: violation, and stationarity with multipliers of its own. Plain SciPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.sparse import coo_array

from benchmarks.cutest.problems import Feasible
from snapfm.arrays import Values

ACTIVE = 1e-6  # a row this close to its limit, relative to the size of the limit, may have a multiplier
TOUCHING = 1e-3  # or this close, if it could gain next to nothing
COMPLEMENTARY = 1e-7  # of a multiplier times the room a row leaves, relative to the square of the distance moved or one
FEASIBLE = 1e-6  # violation of a solved pair, relative to the size of the limit or one
NEAR = 1e-4  # stationarity of a solved pair, relative to the distance moved or one


@dataclass(frozen=True)
class Verdict:
    """What is true of a point: absolute and relative violation, relative stationarity, distance."""

    violation: float
    relative: float
    stationarity: float
    distance: float

    @property
    def feasible(self) -> bool:
        """Whether the point obeys."""
        return self.relative <= FEASIBLE

    @property
    def solved(self) -> bool:
        """Whether it obeys and is stationary."""
        return self.feasible and self.stationarity <= NEAR


def judge(problem: Feasible, start: Values, x: Values) -> Verdict:
    """Measure one answer. Stationarity is not looked at where the point is not feasible."""
    nothing = Verdict(np.inf, np.inf, np.inf, np.inf)
    if not np.isfinite(x).all():
        return nothing
    with np.errstate(all="ignore"):
        c = problem.value(x)
        if not np.isfinite(c).all():
            return nothing
        value = np.concatenate([c, x])
        lower, upper = (
            np.concatenate([problem.c_lower, problem.lower]),
            np.concatenate([problem.c_upper, problem.upper]),
        )
        size = np.maximum(1.0, np.where(np.isfinite(lower), np.abs(lower), 0.0))
        size = np.maximum(size, np.where(np.isfinite(upper), np.abs(upper), 0.0))
        excess = np.maximum(np.maximum(lower - value, value - upper), 0.0)
        violation, relative = float(excess.max(initial=0.0)), float((excess / size).max(initial=0.0))
        distance = float(np.linalg.norm(x - start))
        if relative > FEASIBLE:
            return Verdict(violation, relative, np.inf, distance)
        return Verdict(violation, relative, _stationarity(problem, start, x, value, lower, upper, size), distance)


def _stationarity(
    problem: Feasible, start: Values, x: Values, value: Values, lower: Values, upper: Values, size: Values
) -> float:
    """Return min ‖x − x̂ + Jᵀy‖∞ / max(1, ‖x − x̂‖∞) over multipliers with the right signs.

    First of rows at their limits. An interior point stops beside limits with small multipliers, so rows within TOUCHING count too
    if their multipliers times the room they leave, which is what the distance squared could still gain, are COMPLEMENTARY.
    """
    n = len(x)
    jacobian = coo_array((problem.jacobian(x), problem.pattern), shape=(len(value) - n, n)).toarray()
    rows, moved = np.concatenate([jacobian, np.eye(n)]), x - start
    scale = max(1.0, float(np.abs(moved).max(initial=0.0)))
    at_limits, _ = _balanced(rows, moved / scale, upper - value, value - lower, ACTIVE * size)
    if at_limits <= NEAR:
        return at_limits
    beside, gain = _balanced(rows, moved / scale, upper - value, value - lower, TOUCHING * size)
    return beside if gain <= COMPLEMENTARY * scale else at_limits


def _balanced(rows: Values, moved: Values, above: Values, below: Values, near: Values) -> tuple[float, float]:
    """Return min ‖moved + rowsᵀ y‖∞, y ≥ 0 at upper limits and ≤ 0 at lower ones, and the largest |y| times the room left."""
    high, low = above <= near, below <= near
    columns, room = np.concatenate([rows[high], -rows[low]]), np.concatenate([above[high], below[low]])
    norms = np.linalg.norm(columns, axis=1)
    used = norms > np.finfo(float).tiny
    columns, room = (columns[used] / norms[used, None]).T, np.maximum(room[used], 0.0) / norms[used]
    if not columns.shape[1]:
        return float(np.abs(moved).max(initial=0.0)), 0.0
    try:  # exact, also where many rows are active at once
        y = nnls(columns, -moved, maxiter=20 * columns.shape[1])[0]
    except RuntimeError:  # too many exchanges: nothing is known
        return float(np.inf), float(np.inf)
    return float(np.abs(moved + columns @ y).max(initial=0.0)), float((y * room).max(initial=0.0))
