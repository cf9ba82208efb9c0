"""The end: put unknowns on the bounds they push against, and take Newton's last steps on that active set.

May import interior.account, .point, .problem and .steps.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, diags_array

from snapfm.errors import Status
from snapfm.project.augmented import AugmentedMatrix
from snapfm.project.interior.account import Account
from snapfm.project.interior.point import Arrived, Point, Values
from snapfm.project.interior.problem import STATIONARY, Problem
from snapfm.project.interior.steps import softness

_STEPS = 8  # Newton steps on the active set


def left(problem: Problem, point: Point, status: Status) -> Arrived:
    """Leave a point as it is."""
    return Arrived(point.u, problem.scale * point.weight, status)


def polished(problem: Problem, system: AugmentedMatrix, point: Point, status: Status, account: Account) -> Arrived:
    """Put what pushes on its bound, drop the multipliers of what does not, and take Newton's last steps there.

    These are few and not counted; none is begun when the time is over.
    """
    p = problem
    if not p.inner:
        return left(p, point, status)
    at_low = p.has_low & (point.low > p.below(point.u))
    at_high = p.has_high & (point.high > p.above(point.u)) & ~at_low
    active = p.equality.copy()
    active[p.unequal[point.push > point.s]] = True
    u = np.where(at_low, p.lower, np.where(at_high, p.upper, point.u))
    weight = np.where(active, point.weight, 0.0)
    held = at_low | at_high | p.fixed
    free = diags_array((~held).astype(float))
    best = _offence(p, u, weight)
    found = (u, weight)
    for _ in range(_STEPS):
        if account.late:
            break
        raw = p.oracle.jacobian(u)
        bend = p.oracle.hessian(u, p.scale * weight)[0]
        if not (np.isfinite(raw.data).all() and np.isfinite(bend.data).all()):
            break
        on = diags_array(active.astype(float))
        slopes = csr_array(on @ diags_array(p.scale) @ raw @ free)
        first = np.where(held, 0.0, u - p.target + slopes.T @ weight)
        second = np.where(active, p.rows(u), 0.0)
        soft = softness(slopes) + ~active
        if not system.factorize(csr_array(free @ bend @ free), np.ones(len(u)), slopes, soft):
            break
        answer = system.solve(-np.concatenate([first, second]))
        u = np.where(held, u, u + answer[: len(u)])
        weight = np.where(active, weight + answer[len(u) :], 0.0)
        weight[p.unequal] = np.maximum(weight[p.unequal], 0.0)
        now = _offence(p, u, weight)
        if not now < best:
            break
        best, found = now, (u, weight)
    return Arrived(found[0], p.scale * found[1], status)


def _offence(problem: Problem, u: Values, weight: Values) -> float:
    """One number to compare answers by: what the judge will look at, each relative to what it allows."""
    p = problem
    rows, raw = p.rows(u), p.oracle.jacobian(u)
    if not (np.isfinite(rows).all() and np.isfinite(raw.data).all()):
        return np.inf
    rest = u - p.target + raw.T @ (p.scale * weight)
    rest = np.minimum(np.maximum(rest, u - p.upper), u - p.lower)
    excess = float(np.maximum(u - p.upper, p.lower - u).max(initial=0.0))
    idle = float(np.abs(weight * np.minimum(rows, 0.0))[p.unequal].max(initial=0.0))
    gap = max(float(np.abs(rest).max(initial=0.0)), idle)
    return max(max(p.violation(rows), excess) / p.tolerance, gap / STATIONARY)
