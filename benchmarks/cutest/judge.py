"""An independent judge of projected points: violation, and stationarity with multipliers of its own. Plain SciPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import lsq_linear
from scipy.sparse import coo_array

from benchmarks.cutest.problems import Feasible
from snapfm.arrays import Values

ACTIVE = 1e-6  # a row this close to its limit, relative to the size of the limit, may have a multiplier
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
    """Return min ‖x − x̂ + Jᵀy‖∞ / max(1, ‖x − x̂‖∞) over multipliers with the right signs, by bounded least squares."""
    n = len(x)
    jacobian = coo_array((problem.jacobian(x), problem.pattern), shape=(len(value) - n, n)).toarray()
    rows = np.concatenate([jacobian, np.eye(n)])
    above, below = value >= upper - ACTIVE * size, value <= lower + ACTIVE * size
    active = np.flatnonzero(above | below)
    moved = x - start
    scale = max(1.0, float(np.abs(moved).max(initial=0.0)))
    if not len(active):
        return float(np.abs(moved).max(initial=0.0)) / scale
    matrix = rows[active].T
    norms = np.maximum(np.linalg.norm(matrix, axis=0), np.finfo(float).tiny)
    matrix = matrix / norms
    low, high = np.where(below[active], -np.inf, 0.0), np.where(above[active], np.inf, 0.0)
    y = np.linalg.lstsq(matrix, -moved, rcond=None)[0]
    if (y < low - 1e-9 * scale).any() or (y > high + 1e-9 * scale).any():
        y = lsq_linear(matrix, -moved, (low, high), tol=1e-14, max_iter=200).x
    return float(np.abs(moved + matrix @ y).max(initial=0.0)) / scale
