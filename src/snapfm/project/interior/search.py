"""The line search: shorten a step, or bend it back to the constraints, until the filter accepts it.

May import interior.point, .filter, .problem and .steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from snapfm.project.interior.filter import ARMIJO, MARGIN, Filter
from snapfm.project.interior.point import Point, Trial, Values
from snapfm.project.interior.steps import Steps

_SWITCH_THETA, _SWITCH_PHI = 1.1, 2.3  # as published
_SHORTEST = 1e-9  # fraction of a step below which it counts as none
_CORRECTIONS = 4  # second-order corrections of one step
_WORTH = 0.99  # a correction has to bring the violation down to this share


def search(steps: Steps, point: Point, slopes: csr_array, off: Values, step: Point, seen: Filter) -> Point | None:
    """Shorten a step until the filter accepts it; None if it never does. Written: seen."""
    if not np.isfinite(step.u).all() or not np.isfinite(step.weight).all():
        return None
    p = steps.problem
    theta, phi = float(np.abs(off).sum()), p.objective(point.u, point.s)
    slope = float(step.u @ (point.u - p.target))
    if p.inner:
        slope -= p.barrier * float(
            (step.s / point.s).sum() + (step.u / p.below(point.u) - step.u / p.above(point.u)).sum()
        )
    longest, dual = steps.longest(point, step)
    share, first = longest, True
    rounding = 10.0 * np.finfo(float).eps * max(1.0, abs(phi))
    while share >= _SHORTEST and not steps.account.late:
        u, s = p.kept_inside(point.u + share * step.u), p.kept_open(point.s + share * step.s)
        trial = p.measured(u, s)
        descent = slope < 0.0 and share * _power(-slope, _SWITCH_PHI) > _power(theta, _SWITCH_THETA)

        def good(trial: Trial, descent: bool = descent, share: float = share) -> bool:
            if not np.isfinite(trial[0] + trial[1]) or seen.forbids(trial):
                return False
            if descent and theta <= _SHORTEST**0.5 * max(1.0, theta):
                return bool(trial[1] <= phi + ARMIJO * share * slope + rounding)
            return bool(trial[0] <= (1 - MARGIN) * theta or trial[1] <= phi - MARGIN * theta + rounding)

        accepted = good(trial)
        if not accepted and first and trial[0] >= theta:
            corrected = _corrected(steps, point, slopes, off, share, trial, good)
            if corrected is not None:
                step, share, u, s = corrected
                dual = steps.longest(point, step)[1]
                accepted = True
        if accepted:
            if not (descent and trial[1] <= phi + ARMIJO * share * slope + rounding):
                seen.add(theta, phi)
            return steps.moved(point, step, u, s, share, dual)
        first = False
        share *= 0.5
    return None


def _power(base: float, exponent: float) -> float:
    """Raise a number ≥ 0 to a power, infinite beyond the largest number: Python raises there."""
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf


def _corrected(
    steps: Steps, point: Point, slopes: csr_array, off: Values, share: float, trial: Trial,
    good: Callable[[Trial], bool],
) -> tuple[Point, float, Values, Values] | None:  # fmt: skip
    """Bend a step back to the constraints it left: the same factors, what it missed added up."""
    p = steps.problem
    total, before = share * off, trial
    for _ in range(_CORRECTIONS):
        total = total + before[2]
        step = steps.direction(point, slopes, total)
        if not np.isfinite(step.u).all():
            return None
        length = steps.longest(point, step)[0]
        u, s = p.kept_inside(point.u + length * step.u), p.kept_open(point.s + length * step.s)
        now = p.measured(u, s)
        if good(now):
            return step, length, u, s
        if not now[0] <= _WORTH * before[0]:
            return None
        before = now
    return None
