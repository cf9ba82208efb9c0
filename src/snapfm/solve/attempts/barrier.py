"""The barrier: follow the answer inside the inequalities as μ falls, from û and whatever the distance.

Used by solve.attempts.order; must not import it.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from snapfm.kernels.interior import interior_tiles
from snapfm.solve.attempts.attempt import FEW, ORDINARY, PATIENCE, Attempt, Search
from snapfm.solve.attempts.interior_start import guarded, move_inside
from snapfm.solve.tiles import AttemptOutcome

# Of Newton's method after it: 1 to 6 iterations where the barrier has found the active set, and none are enough where it has not.
_SETTLED = 0.04


def barrier(search: Search, ordinary: float = ORDINARY, soft: int = 0) -> AttemptOutcome:
    """Follow the barrier, along which equalities harden, until the active set is clear; then run Newton's method from there."""
    search.begin()
    if guarded(search.part):  # û may be behind a pole; elsewhere its own side of an obstacle is the nearer one
        none = np.zeros(search.tiles.lanes, np.int64)
        move_inside(search.part.system, search.tiles, lambda: search.newton(none))  # without an iteration it evaluates
    _, used = search.loop(interior_tiles, (ordinary, soft), search.allowed)
    left = search.budget.spend(used).share(_SETTLED)
    return search.newton(left, trials=FEW, ordinary=ordinary, patience=PATIENCE).after(used)


BARRIER = Attempt("barrier", 0.2, barrier)  # one that converges takes 12 to 50 iterations
SOFT_BARRIER = Attempt("soft barrier", 0.4, partial(barrier, soft=1))  # a gas from far takes 20 to 200 of 500
