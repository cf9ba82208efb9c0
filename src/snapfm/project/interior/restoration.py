"""Restoration: reduce the violation alone, by damped Newton steps for ½‖c‖², until the filter accepts where that leads.

Its iterations are on the sample's account like all others. May import interior.point, .filter, .problem and .steps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from snapfm.errors import Status
from snapfm.project.interior.filter import ARMIJO, Filter
from snapfm.project.interior.point import Point, Values
from snapfm.project.interior.steps import Steps

_ITERATIONS = 200  # of one restoration
_WEAKEST, _FIRST_DAMPING, _STRONGEST = 1e-12, 1e-3, 1e20  # damping of its steps
_LESS = 0.9  # share of the violation it began with that is worth going on from
_FLAT = 1e-7  # size of Jᵀc, relative to that of its terms, at which a violation is stationary


def restored(steps: Steps, point: Point, seen: Filter) -> tuple[Point, Status | None]:
    """Find a point that the filter accepts with less violation, or say why there is none nearby.

    Gives the point where it ended in either case. Written: seen.
    """
    p, account = steps.problem, steps.account
    u, s = point.u, point.s
    began, phi, off = p.measured(u, s)
    seen.add(began, phi)
    damping = _FIRST_DAMPING
    for _ in range(_ITERATIONS):
        now = p.measured(u, s)
        if now[0] < _LESS * began and not seen.forbids(now):
            return _resumed(steps, point, u, s), None
        if not account.spend():
            return replace(point, u=u, s=s), Status.ITERATION_LIMIT
        own = p.own_slopes(u)
        if own is None:
            return point, Status.STALLED
        slopes = p.scaled(own)
        gradient, slack = slopes.T @ off, off[p.unequal]
        # Where the way down leads towards a bound it counts by the room there is (Coleman and Li).
        room = np.where(gradient > 0.0, p.below(u), p.above(u))
        flat = max(
            float(np.abs(gradient * np.minimum(1.0, room)).max(initial=0.0)),
            float(np.abs(slack * np.where(slack > 0.0, np.minimum(1.0, s), 1.0)).max(initial=0.0)),
        )
        steep = max(1.0, float(np.abs(slopes.data).max(initial=0.0))) * float(np.abs(off).max(initial=0.0))
        if flat <= _FLAT * steep:  # stationary: nothing nearby obeys, which proves nothing
            return _resumed(steps, point, u, s), Status.STALLED
        near, near_slack = np.abs(gradient) / room, np.where(slack > 0.0, slack / s, 0.0)
        bend = p.bend(u, off)
        size, found = 0.5 * float(off @ off), None
        while found is None and damping <= _STRONGEST and not account.late:
            move = _move(steps, bend, slopes, off, near + damping, near_slack + damping)
            if move is not None:
                share = steps.longest(replace(point, u=u, s=s), replace(point, u=move[0], s=move[1]))[0]
                there = p.kept_inside(u + share * move[0]), p.kept_open(s + share * move[1])
                _, height, trial = p.measured(*there)
                down = share * float(gradient @ move[0] + slack @ move[1])
                if 0.5 * float(trial @ trial) <= size + ARMIJO * down and down < 0.0 and np.isfinite(height):
                    found = (*there, trial)
            damping = damping * 10.0 if found is None else max(_WEAKEST, damping / 10.0)
        if found is None and account.late:
            return replace(point, u=u, s=s), Status.ITERATION_LIMIT
        if found is None:  # nothing goes down that rounding lets one see
            return _resumed(steps, point, u, s), Status.STALLED
        u, s, off = found
    return _resumed(steps, point, u, s), Status.STALLED


def _move(
    steps: Steps, bend: csr_array, slopes: csr_array, off: Values, weight: Values, slack_weight: Values
) -> tuple[Values, Values] | None:
    """Newton's damped step for ½‖c‖², through the augmented matrix; None if that is not convex yet."""
    p, n, soft = steps.problem, slopes.shape[1], np.ones(slopes.shape[0])
    soft[p.unequal] += 1.0 / slack_weight
    if not steps.system.factorize(bend, weight, slopes, soft):
        return None
    answer = steps.system.solve(np.concatenate([np.zeros(n), -off]))
    du = np.where(p.fixed, 0.0, answer[:n])
    return (du, -answer[n:][p.unequal] / slack_weight) if np.isfinite(answer).all() else None


def _resumed(steps: Steps, point: Point, u: Values, s: Values) -> Point:
    """Go on from a restored point with fresh multipliers."""
    p = steps.problem
    fresh = p.central(u, s, point.weight)
    own = p.own_slopes(u)
    return fresh if own is None else replace(fresh, weight=steps.least_squares(fresh, p.scaled(own)))
