"""Restoration: minimize the violation alone, then go on from a feasible point, or prove that there is none.

A feasible point beside which there is no other has as many independent active rows as free unknowns. It is the nearest in its
neighborhood whatever the input is, and has multipliers that balance any distance. Newton's method does not end there if the
slopes are almost dependent: multipliers grow without bound as the violation falls. Used by solve.attempts.order; must not
import it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from snapfm.arrays import Values
from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.kernels.restoration import restore_tiles
from snapfm.solve.attempts.attempt import ALL, NEWTON, Attempt, Search
from snapfm.solve.attempts.barrier import BARRIER, barrier
from snapfm.solve.tiles import AttemptOutcome

_DENSE = 1_000_000  # entries of a Jacobian that is looked at as a dense matrix
_RANK = 1e-13  # singular values below this share of the largest count as zero


def _restored(search: Search) -> AttemptOutcome:
    """Minimize the violation alone from û; go on from a feasible point, or try to prove that there is none."""
    search.begin()
    tiles, part = search.tiles, search.part
    found, iterations = search.loop(restore_tiles, (search.stopping.tolerance,), search.allowed)
    broken = np.flatnonzero((found != Status.CONVERGED) & (found != Status.NONFINITE))
    if len(broken):  # a local minimum of the violation is no proof
        proven = part.prove_infeasible(tiles.take(broken), search.stopping.tolerance)
        found[broken] = np.where(proven, int(Status.INFEASIBLE), int(Status.STALLED))
    second = np.full(tiles.lanes, core.UNKNOWN)
    feasible = np.flatnonzero(found == Status.CONVERGED)
    if len(feasible):
        again = search.on(feasible, iterations)
        alone = ISOLATED.make(again).status == Status.CONVERGED
        tiles.put(feasible, again.tiles, np.arange(len(feasible)))
        second[feasible[alone]] = core.HOLDS
        feasible = feasible[~alone]
    if len(feasible):
        again = search.on(feasible, iterations)
        if part.inequalities:
            from_here = replace(again, first=np.array(again.tiles.section(core.X)), share=BARRIER.share)
            ended = barrier(from_here, ordinary=ALL)
        else:
            ended = again.newton(again.budget.share(NEWTON), ordinary=ALL)
        tiles.put(feasible, again.tiles, np.arange(len(feasible)))
        found[feasible], second[feasible] = ended.status, ended.second
        iterations[feasible] += ended.iterations
    return AttemptOutcome(found, iterations, second)


def _isolated(search: Search) -> AttemptOutcome:
    """End at the feasible points that are isolated and stationary. Written: multipliers of these lanes."""
    tiles, system = search.tiles, search.part.system
    pattern, ended = system.program.pattern, AttemptOutcome.stalled(tiles.lanes)
    if pattern.rows * pattern.columns > _DENSE or int(system.equality.sum()) < pattern.columns or len(system.gram.data):
        return ended
    values, x, target = (tiles.by_lane(number) for number in (core.JACOBIAN, core.X, core.TARGET))
    for lane in range(tiles.lanes):
        slopes = pattern.csr(values[lane]).toarray()[system.equality]
        weights = _balance(slopes, target[lane] - x[lane], search.stopping.stationarity)
        if weights is None:
            continue
        ended.status[lane], ended.second[lane] = int(Status.CONVERGED), core.HOLDS
        multipliers = np.zeros(pattern.rows)
        multipliers[system.equality] = weights
        tiles.write(core.MULTIPLIER, multipliers, np.array([lane]))
    return ended


def _balance(slopes: Values, pull: Values, stationarity: float) -> Values | None:
    """Return multipliers of equalities with Jᵀλ = pull, if the slopes have full rank and rounding leaves them accurate."""
    if not np.isfinite(slopes).all():
        return None
    found, _, rank, _ = np.linalg.lstsq(slopes.T, pull, rcond=_RANK)
    if rank < slopes.shape[1]:
        return None
    weights = np.asarray(found, np.float64)
    return weights if np.abs(slopes.T @ weights - pull).max(initial=0.0) <= stationarity else None


RESTORATION = Attempt("restoration", BARRIER.share, _restored)
ISOLATED = Attempt("isolated points", 0.0, _isolated)  # a part of restoration: it takes no iterations
