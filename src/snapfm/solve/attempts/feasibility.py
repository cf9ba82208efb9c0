"""Lower the violation of one lane alone, without regard to distance: for points where no step obeys the linearized rows.

Gauss–Newton steps inside the bounds and a box in units of the columns, as MINPACK has them: unknowns may be of very different
sizes. The sum of squares alone judges a step, so the phase goes on where a filter would not let it. Used by
solve.attempts.sequential; must not import it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy  # its modules are imported when they are used: scipy.optimize takes long

from snapfm.arrays import Values
from snapfm.solve.attempts.dense_laws import DensePoint, DenseProblem

_DAMPING = 1e-6  # of a step, relative to the largest column, squared
_LOWERED = 0.1  # share of the violation that the phase leaves
_PROMISED = 1e-12  # least share of the sum of squares that a step has to promise: below, the violation is stationary
_TAKEN, _GOOD, _POOR = 1e-4, 0.75, 0.25  # of the promised decrease: to take a step, to widen the box, to narrow it
_SMALLEST = 1e-14  # a box of this size, relative to the unknowns, has no room for a step


def restore(
    problem: DenseProblem, point: DensePoint, tolerance: float, limit: int, enough: Callable[[DensePoint], bool]
) -> tuple[DensePoint, int, bool]:
    """Return the last point, the iterations, and whether it obeys, or has a tenth of the violation and is `enough`."""
    goal, box = _LOWERED * point.theta, np.inf
    columns = np.zeros(len(point.x))
    iteration = 0
    while iteration < limit and not problem.deadline.over:
        iteration += 1
        columns = np.maximum(columns, np.linalg.norm(problem.weight[:, None] * point.slopes, axis=0))
        to, promised = _step(problem, point, np.where(columns > 0.0, columns, 1.0), box)
        moved = float(np.abs(columns * (to - point.x)).max(initial=0.0))
        if promised <= _PROMISED or moved <= _SMALLEST * float(np.abs(columns * point.x).max(initial=0.0)):
            break
        trial = problem.at(to, np.zeros(len(point.rows)))
        kept = (1.0 - (trial.theta / point.theta) ** 2) / promised if trial.finite else -np.inf
        if kept >= _GOOD:
            box = max(box, 2.0 * moved)
        elif kept < _POOR:
            box = 0.25 * moved
        if kept > _TAKEN:
            point = trial
            if problem.violation(point) <= 0.1 * tolerance or (point.theta <= goal and enough(point)):
                return point, iteration, True
    return point, iteration, False


def _step(problem: DenseProblem, point: DensePoint, columns: Values, box: float) -> tuple[Values, float]:
    """Solve the bounded, damped least squares of the broken rows; return where it leads and the share it promises to remove."""
    broken = problem.equality | (point.rows > 0.0)
    rows = problem.weight[broken] * point.rows[broken]
    slopes = problem.weight[broken, None] * point.slopes[broken] / columns
    low = np.maximum(columns * (problem.lower - point.x), -box)
    high = np.minimum(columns * (problem.upper - point.x), box)
    free = high > low
    if not free.any():
        return point.x, 0.0
    damping = np.sqrt(_DAMPING) * max(1e-30, float(np.linalg.norm(slopes, axis=0).max(initial=0.0)))
    matrix = np.concatenate([slopes, damping * np.eye(len(free))])[:, free]
    goal = np.concatenate([-rows, np.zeros(len(free))])
    step = np.zeros(len(free))
    step[free] = scipy.optimize.lsq_linear(
        matrix, goal, (low[free], high[free]), method="bvls", max_iter=10 * len(free)
    ).x
    left = float(np.sum((rows + slopes @ step) ** 2))
    to: Values = np.clip(point.x + step / columns, problem.lower, problem.upper)
    return to, 1.0 - left / float(rows @ rows)
