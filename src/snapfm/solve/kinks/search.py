"""Kinked laws: an attempt that finds answers which lie on kinks, where one-sided slopes certify nothing (math.md, "Kinks").

Every kink is a smooth piece (compile.kinks). First all kinks are smoothed, less and less (smoothing.py). Then each is on one
of its sides, or held: the switch is zero, by an augmented Lagrangian, and its multiplier ν, divided by what one side's slope
would add, is the weight of the two slopes (sides.py). Where many sides change at once, the weights are followed as the duals
of an interior-point method are (path.py). Lanes that converge leave their weights in the tiles (layout.WEIGHT); −1 − weight is
the state of a kink. Must not import solve.system.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.solve.attempts.attempt import Attempt, Search
from snapfm.solve.kinks.generalized import NO_WEIGHT
from snapfm.solve.kinks.path import follow
from snapfm.solve.kinks.sides import TOGETHER, choose
from snapfm.solve.kinks.smoothing import EARLY, LAST, Smoothing
from snapfm.solve.kinks.states import ON, TINY, KinkedLanes
from snapfm.solve.tiles import AttemptOutcome, Tiles

if TYPE_CHECKING:
    from snapfm.solve.system import Part


def _has_kinks(part: Part) -> bool:
    return part.kinks is not None


def _from_input(search: Search) -> AttemptOutcome:
    search.begin()
    return _search(search)


def _from_zero(search: Search) -> AttemptOutcome:
    search.begin_at_zero()
    return _search(search)


def _search(search: Search) -> AttemptOutcome:
    """Smooth, then choose sides. Where all kinks that matter may hold a point, their weights are followed first, else last."""
    on = KinkedLanes(search)
    lanes, smoothing = np.arange(on.tiles.lanes), Smoothing(on)
    smoothing.run(lanes, EARLY)
    holding = smoothing.holding()
    early, late = np.flatnonzero(holding), np.flatnonzero(~holding)
    follow(on, early, smoothing.widths())
    late = np.union1d(late, choose(on, early, TOGETHER))
    smoothing.run(late, LAST)
    late = choose(on, late)
    follow(on, late, smoothing.widths())
    choose(on, late)
    _leave(on, search.tiles)
    return AttemptOutcome(on.status, on.used, on.second)


def _leave(on: KinkedLanes, source: Tiles) -> None:
    """Copy answers and weights back. Written: source."""
    tiles, spec = on.tiles, on.spec
    done = np.flatnonzero(on.status == Status.CONVERGED)
    source.section(core.X)[:] = tiles.section(core.X)
    source.packs(core.MULTIPLIER)[:] = tiles.packs(core.MULTIPLIER)[:, : spec.rows]
    found, seen = -1.0 - tiles.by_lane(core.CELLS)[:, spec.state], on.see(tiles)
    size = np.abs(tiles.by_lane(core.X)).max(axis=1, initial=1.0, keepdims=True)
    # Elsewhere the slope is that of the operator.
    near = (np.abs(seen.switch) <= ON * size * seen.slope) & (seen.slope > TINY)
    done = done[near[done].any(axis=1)]
    source.section(core.WEIGHT)[:] = NO_WEIGHT
    source.write(core.WEIGHT, found[done], done)


KINKS = Attempt("kinks", 0.45, _from_input, _has_kinks)
KINKS_FROM_ZERO = replace(KINKS, name="kinks from zero", run=_from_zero)
