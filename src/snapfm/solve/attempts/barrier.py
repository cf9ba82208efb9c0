"""Barriers: start inside the inequalities and follow the answer as the barrier falls, until the active set is clear.

Used by solve.attempts.order; must not import it.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from snapfm.kernels import layout as core
from snapfm.kernels.interior import interior_tiles
from snapfm.kernels.operations import LANES
from snapfm.solve.attempts.attempt import (
    AFTERWARDS,
    ALL,
    ENDLESS,
    FEW,
    MANY,
    NEWTON,
    ORDINARY,
    PATIENCE,
    Attempt,
    Search,
)
from snapfm.solve.attempts.interior_start import move_inside
from snapfm.solve.tiles import AttemptOutcome

_FIRM, _SOFT = 0, 1  # see kernels.interior
# Of Newton's method after a short barrier: 3 to 6 iterations where the barrier has found the active set, and none are enough
# where it has not.
_SETTLED = 0.04
_FINER = 1024.0  # times smaller than the field: the unit of a barrier where the field's own unit is one


def barrier(search: Search, ordinary: float = ORDINARY, settled: float = NEWTON) -> AttemptOutcome:
    """Follow a barrier from the start until the active set is clear, then run Newton's method from there."""
    search.begin()
    _, used = search.loop(interior_tiles, (ordinary, _FIRM), search.allowed)
    trials, patience = (FEW, PATIENCE) if settled < NEWTON else (MANY, ENDLESS)
    left = search.budget.spend(used).share(settled)
    return search.newton(left, trials=trials, ordinary=ordinary, patience=patience).after(used)


def _soft(search: Search) -> AttemptOutcome:
    """Follow a barrier along which the equalities harden, from inside the inequalities; then run Newton's method.

    Far from an answer many laws cannot hold together to first order within the inequalities: a firm barrier gets stuck there.
    """
    search.begin()
    none = np.zeros(search.tiles.lanes, np.int64)
    move_inside(search.part.system, search.tiles, lambda: search.newton(none))  # without an iteration it evaluates
    _, used = search.loop(interior_tiles, (ORDINARY, _SOFT), search.allowed)
    return search.newton(search.budget.spend(used).share(AFTERWARDS)).after(used)


def _fine(search: Search) -> AttemptOutcome:
    """Follow the barrier once more, in the laws' own units, from where it ended in the field's.

    Where unknowns are of very different sizes, a barrier that ends at a share of the largest leaves the small ones in the middle
    of their bounds.
    """
    search.begin()
    tiles = search.tiles
    unit = tiles.section(core.UNIT)[:, :LANES].ravel()
    factor = np.where(unit > 1.0, unit, _FINER)
    used = np.zeros(tiles.lanes, np.int64)
    for scale in (np.ones_like(factor), factor):
        left = search.budget.spend(used).share(search.share)
        tiles.rescale(scale)
        used += search.loop(interior_tiles, (ALL, _FIRM), left)[1]
        tiles.rescale(1.0 / scale)
    return search.newton(search.budget.spend(used).share(NEWTON)).after(used)


BARRIER = Attempt("barrier", 0.3, barrier)
# One that converges takes 15 to 40 iterations; what takes longer may find its way by a falling penalty.
SHORT_BARRIER = Attempt("short barrier", 0.1, partial(barrier, settled=_SETTLED))
SOFT_BARRIER = Attempt("soft barrier", 0.4, _soft)  # a gas from far takes 20 to 200 of 500 iterations
FINE_BARRIER = Attempt("fine barrier", BARRIER.share, _fine)
