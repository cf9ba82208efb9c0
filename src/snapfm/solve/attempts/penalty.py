"""Rows that hold up to δ times their multiplier, with δ falling: paths from far, and rows that can only almost hold.

Used by solve.attempts.order; must not import it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from snapfm.arrays import Values
from snapfm.kernels import layout as core
from snapfm.kernels.operations import LANES
from snapfm.solve.attempts.attempt import AFTERWARDS, PATIENCE, Attempt, Search
from snapfm.solve.budget import Stopping
from snapfm.solve.tiles import AttemptOutcome, Tiles

# δ of a penalty, relative to the rows' size squared. Few values whose minimum is found lead to near answers; many, with few
# iterations each, to an answer more often.
_PENALTIES = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-6)
_LOOSE = Stopping(1e-4, 1e-2, 1.0)  # a minimum known this well is a start for the next one


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


def _soften(tiles: Tiles, delta: Values) -> None:
    """Let rows be off by δ (tiles, LANES) times their multipliers. Written: regularization, barrier."""
    for number in (core.REGULARIZATION, core.BARRIER):
        section = tiles.section(number)
        section[:] = np.tile(delta, section.shape[1] // LANES)


PENALTY = Attempt("falling penalty", 0.02, _penalized)
