"""The first step of the search for answers on kinks: all kinks smoothed, less and less (math.md, "Kinks").

Used by solve.kinks.search; must not import it.
"""

from __future__ import annotations

import numpy as np

from snapfm.arrays import Index, Mask, Values
from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.solve.attempts.attempt import Search, newton
from snapfm.solve.attempts.barrier import barrier
from snapfm.solve.kinks.states import TINY, KinkedLanes, Seen
from snapfm.solve.tiles import IterationBudget, Tiles

# Width of the smoothing, relative to how far a switch moves with the field: at the start, where weights can be followed from
# there, and where sides are chosen.
_FIRST, EARLY, LAST = 1e-1, 1e-2, 1e-4
_FASTER, _FASTEST, _SLOWEST = 0.3, 0.1, 0.85  # by which it is multiplied: at first, at most, and before a lane gives up
_BEGIN, _SMOOTHED = 0.1, 0.04  # iterations at the first width and at each other one, as shares of the limit
_INSIDE = 0.1  # the same share for a barrier at one width
_SURE = 1e-3  # weights of a smoothed kink nearer than this to 0 or 1 are a side
_BOTH = 0.7  # a weight that uses both slopes of a kink; half of each would cancel in an absolute value


class Smoothing:
    """The kinks of all lanes, each lane with a width of its own. It may be taken up again where it ended."""

    def __init__(self, on: KinkedLanes) -> None:
        tiles = on.tiles
        self.on, self._there = on, tiles.take(np.arange(tiles.lanes))
        self._fixed = -1.0 - (on.see(tiles).switch > 0.0)
        self._unit = tiles.by_lane(core.UNIT)[:, :1]
        size = np.abs(tiles.by_lane(core.TARGET)).max(axis=1, initial=0.0, keepdims=True)
        # Both sides of every kink count: one within another has no slope on one side of it.
        tiles.write(core.CELLS, np.full_like(self._fixed, -1.0 - _BOTH), packs=on.spec.state)
        slope = on.see(tiles).slope
        self._scale, self._flat = slope * np.where(size > 0.0, size, 1.0) * self._unit, slope <= TINY
        self._width, self._factor = np.full(tiles.lanes, np.inf), np.full(tiles.lanes, _FASTER)

    def run(self, lanes: Index, last: float) -> None:
        """Solve with kinks smoothed, less and less, each lane at its own pace; end on sides and holds. Written: tiles of `on`."""
        if not len(lanes):
            return
        on, width, factor, there = self.on, self._width, self._factor, self._there
        left = lanes
        while len(left) and not on.deadline.over:
            aim = np.where(np.isinf(width), _FIRST, np.maximum(last, width * factor))[left]
            some = there.take(left)
            state = np.where(self._flat[left], self._fixed[left], aim[:, None] * self._scale[left])
            some.write(core.CELLS, state, packs=on.spec.state)
            share = _SMOOTHED if np.isfinite(width[left]).all() else _BEGIN
            limit = np.minimum(on.budget.share(share), on.budget.left - on.used)[left].clip(0)
            ended = newton(on.loops, some, on.stopping, limit, on.deadline)
            on.used[left] += ended.iterations
            good = ended.status == Status.CONVERGED
            if on.kinked.part.inequalities:
                self._inside(left, some, good)
            there.put(left[good], some, np.flatnonzero(good))
            width[left[good]] = aim[good]
            factor[left] = np.where(good, np.maximum(_FASTEST, factor[left] ** 1.5), np.sqrt(factor[left]))
            going = (width[left] > last) & (factor[left] < _SLOWEST) & (on.used[left] < on.budget.left[left])
            left = left[going & ~np.isinf(width[left])]
        self._end(lanes)

    def widths(self) -> Values:
        """Return the width of every kink (lanes, kinks), in the lane's unit; 0 where a kink is on a side."""
        state = np.where(np.isinf(self._width), 0.0, self._width)[:, None] * self._scale
        return np.where(self._flat, 0.0, state / self._unit)

    def holding(self) -> Mask:
        """Mark lanes in which no kink between its sides is one that no minimum lies on."""
        _, seen, between = self._between(np.arange(self._there.lanes))
        return np.logical_not((between & (seen.reach < 0.0)).any(axis=1))

    def _between(self, lanes: Index) -> tuple[Values, Seen, Mask]:
        """Return weights of the kinks of some lanes, what is seen of them, and which are between their sides."""
        width, seen = self.widths()[lanes], self.on.see(self._there.take(lanes))
        weight = 0.5 * (1.0 + seen.switch / np.maximum(np.hypot(seen.switch, 2.0 * width), TINY))
        return weight, seen, ~self._flat[lanes] & (weight > _SURE) & (weight < 1.0 - _SURE)

    def _end(self, lanes: Index) -> None:
        """Put some lanes where smoothing has led them, with kinks on sides or held. Written: tiles of `on`."""
        on, some = self.on, self._there.take(lanes)
        weight, seen, between = self._between(lanes)
        held = between & (seen.reach > 0.0)
        on.hold(some, seen, held, seen.switch > 0.0, weight * seen.reach)
        on.tiles.put(lanes, some, np.arange(len(lanes)))

    def _inside(self, left: Index, some: Tiles, good: Mask) -> None:
        """Follow a barrier on lanes whose active sets cycle. Written: some, good, used."""
        on, failed = self.on, np.flatnonzero(~good)
        if not len(failed):
            return
        again = some.take(failed)
        again.section(core.MULTIPLIER)[:] = 0.0
        begin = self._there.take(left[failed]).section(core.X)
        budget = IterationBudget((on.budget.left - on.used)[left[failed]], on.budget.limit)
        ended = barrier(Search(on.loops, again, begin, on.stopping, budget, on.deadline, share=_INSIDE))
        on.used[left[failed]] += ended.iterations
        good[failed] = ended.status == Status.CONVERGED
        some.put(failed, again, np.arange(len(failed)))
