"""Rows that hold up to δ times their multiplier, with δ falling: paths from far, and rows that can only almost hold.

Used by solve.attempts.order; must not import it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from snapfm.arrays import Values
from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.kernels.operations import LANES
from snapfm.solve.attempts.attempt import AFTERWARDS, NEWTON, PATIENCE, Attempt, Search
from snapfm.solve.budget import Stopping, certified
from snapfm.solve.tiles import AttemptOutcome, IterationBudget, Tiles

# δ of a penalty, relative to the rows' size squared. Few values whose minimum is found lead to near answers; many, with few
# iterations each, to an answer more often.
_PENALTIES = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-6)
_LOOSE = Stopping(1e-4, 1e-2, 1.0)  # a minimum known this well is a start for the next one
_TENTHS = 6  # times that the regularization is divided by ten


def _penalized(search: Search) -> AttemptOutcome:
    """Follow the minimum of ½‖x − x̂‖² + ‖h‖²/2δ from û as δ falls, then let the rows hold.

    A row that is off by δ times its multiplier bounds every step, also where the linearized rows ask for a far one: transport
    laws from noise, whose linear model grows from step to step in time. The path also leads to a near local minimum.
    """
    search.begin()
    tiles, loose = search.tiles, replace(search, stopping=_LOOSE)
    iterations = np.zeros(tiles.lanes, np.int64)
    size = np.mean(tiles.by_lane(core.ROW_SIZE) ** 2, axis=1)
    delta = np.resize(np.append(size, np.repeat(size[-1:], -tiles.lanes % LANES)), (len(tiles.space), LANES))
    for penalty in _PENALTIES:
        if search.deadline.over:
            break
        _soften(tiles, penalty * delta)
        iterations += loose.newton(search.budget.spend(iterations).share(search.share), filtered=True).iterations
    _soften(tiles, np.zeros_like(delta))
    left = search.budget.spend(iterations).share(AFTERWARDS)
    return search.newton(left, filtered=True, patience=PATIENCE).after(iterations)


def _regularized(search: Search) -> AttemptOutcome:
    """Regularize the rows: where they can only almost hold, no multiplier is large enough to make them hold.

    A row is then off by δ times its multiplier, which has to stay within the tolerance; δ is divided by ten until it does.
    """
    search.begin()
    tiles, stopping = search.tiles, search.stopping
    lanes = tiles.lanes
    ended = AttemptOutcome.stalled(lanes)
    delta, tolerance = 0.1 * stopping.tolerance, stopping.tolerance / tiles.by_lane(core.UNIT)[:, 0]
    stricter = replace(
        search,
        stopping=certified(0.1 * stopping.tolerance),
        budget=IterationBudget(search.allowed, search.budget.limit),
    )
    waiting = np.arange(lanes)
    for _ in range(_TENTHS):
        if search.deadline.over or not len(waiting):
            break
        some = stricter.on(waiting, ended.iterations)
        _soften(some.tiles, np.full((len(some.tiles.space), LANES), delta))
        found = some.newton(some.budget.share(NEWTON))
        off = delta * np.abs(some.tiles.by_lane(core.MULTIPLIER)).max(axis=1, initial=0.0)
        tiles.put(waiting, some.tiles, np.arange(len(waiting)))
        ended.iterations[waiting] += found.iterations
        ended.status[waiting] = np.where(off <= 0.8 * tolerance[waiting], found.status, int(Status.STALLED))
        ended.second[waiting] = found.second
        waiting = waiting[ended.status[waiting] != Status.CONVERGED]
        delta *= 0.1
    _soften(tiles, np.zeros((len(tiles.space), LANES)))
    return ended


def _soften(tiles: Tiles, delta: Values) -> None:
    """Let rows be off by δ (tiles, LANES) times their multipliers. Written: regularization, barrier."""
    for number in (core.REGULARIZATION, core.BARRIER):
        section = tiles.section(number)
        section[:] = np.tile(delta, section.shape[1] // LANES)


PENALTY = Attempt("falling penalty", 0.02, _penalized)
REGULARIZED = Attempt("regularized rows", 0.4, _regularized)
