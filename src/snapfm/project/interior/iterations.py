"""The iterations of one sample: lower the barrier, step, search, restore, until it has arrived. May import all of interior."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from snapfm.errors import Status
from snapfm.project.augmented import AugmentedMatrix
from snapfm.project.interior.account import Account
from snapfm.project.interior.filter import Filter
from snapfm.project.interior.point import Arrived, Mask, Point, Values
from snapfm.project.interior.polish import left, polished
from snapfm.project.interior.problem import STATIONARY, Problem
from snapfm.project.interior.restoration import restored
from snapfm.project.interior.search import search
from snapfm.project.interior.steps import Steps
from snapfm.project.limits import Limits
from snapfm.project.oracle import Oracle

_ITERATIONS = 300  # of one attempt, without its restorations
_RESTORATIONS = 12  # times that a sample may need to be restored
_LAST_BARRIER = 1e-11
_SOLVED, _SLOWLY, _QUICKLY = 10.0, 0.2, 1.5  # error in barriers that is enough; the next is min(0.2 μ, μ^1.5)
_BETTER, _PATIENCE = 0.9, 30  # an error below this share of the best is progress; iterations to wait for it


class Interior:
    """The iterations of one attempt at one sample; good for one run."""

    def __init__(
        self, oracle: Oracle, system: AugmentedMatrix, limits: Limits, equality: Mask, target: Values, tolerance: float,
        account: Account,
    ) -> None:  # fmt: skip
        self._problem, self._system = Problem(oracle, limits, equality, target, tolerance), system
        self._steps, self._account = Steps(self._problem, system, account), account

    def run(self, begin: Values, weight: Values | None) -> Arrived:
        """Iterate from `begin`; `weight`, multipliers of a nearby answer, makes the first steps better."""
        p = self._problem
        u = p.put_inside(begin)
        own = p.own_slopes(u)
        if own is None:
            return Arrived(u, np.zeros(len(p.equality)), Status.NONFINITE)
        p.set_scale(own)
        rows = p.rows(u)
        point = p.central(u, p.first_slack(rows), np.zeros(len(rows)))
        if weight is not None and weight.any():
            point = replace(point, weight=weight / p.scale)
        else:
            point = replace(point, weight=self._steps.least_squares(point, p.scaled(own)))
        return self._iterate(point)

    def _iterate(self, point: Point) -> Arrived:
        p, steps, seen, account = self._problem, self._steps, Filter(), self._account
        best, waiting, restorations = np.inf, 0, 0
        nearest, least = point, np.inf  # the last of the points that break the laws least
        for _ in range(_ITERATIONS):
            if not account.spend():
                break
            rows, own = p.rows(point.u), p.own_slopes(point.u)
            if own is None or not np.isfinite(rows).all():
                return left(p, point, Status.NONFINITE)
            slopes = p.scaled(own)
            off = p.constraint(rows, point.s)
            violation = p.violation(rows)
            gap = p.gap(point, slopes, 0.0)
            if max(violation, p.tolerance) <= least:
                nearest, least = point, max(violation, p.tolerance)
            if violation <= p.tolerance and gap <= STATIONARY * p.size(point):
                return polished(p, self._system, point, Status.CONVERGED, account)
            # Rounding may keep the last digits from being reached: stop when nothing gets better any more.
            worst = max(gap, violation / p.tolerance * STATIONARY)
            waiting = 0 if worst < _BETTER * best else waiting + 1
            best = min(best, worst)
            if waiting > _PATIENCE and p.barrier <= _LAST_BARRIER and violation <= p.tolerance:
                return polished(p, self._system, point, Status.STALLED, account)
            while p.barrier > _LAST_BARRIER and (
                max(p.gap(point, slopes, p.barrier), float(np.abs(off).max(initial=0.0))) <= _SOLVED * p.barrier
            ):
                p.barrier = max(_LAST_BARRIER, min(_SLOWLY * p.barrier, p.barrier**_QUICKLY))
                seen.clear()
            step = steps.step(point, slopes, off)
            moved = None if step is None else search(steps, point, slopes, off, step, seen)
            if moved is None:
                if account.late:
                    break
                if violation <= p.tolerance or restorations == _RESTORATIONS:
                    return polished(p, self._system, point, Status.STALLED, account)
                restorations += 1
                moved, failed = restored(steps, point, seen)
                if failed is Status.ITERATION_LIMIT:
                    point = moved
                    break
                if failed is not None:
                    return polished(p, self._system, moved, failed, account)
            point = moved
        if not max(p.violation(p.rows(point.u)), p.tolerance) <= least:  # NaN counts as worse
            point = nearest
        return polished(p, self._system, point, Status.ITERATION_LIMIT, account)
