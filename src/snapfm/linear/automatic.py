"""Automatic: Lanes or Fronts, by predicted time and memory.

A prediction needs the order alone: the multiply-adds F and the entries E of the factor. Per factorization with two solves,

    Lanes, a tile of eight lanes, used or not:   F · 0.7 ns + E · 21 ns
    Fronts, each live lane:                      F · 0.065 ns + E · 7 ns + 20 µs

fitted to 22 patterns of 60 to 65 000 unknowns on one thread of a Zen 4 core: bands, dense matrices, JJᵀ in two and three
dimensions and in space-time, KKT matrices. All but three predictions are within a factor of two, and the faster solver of a
full tile is the predicted one on all 22. So one sample alone goes to Fronts unless it is tiny, and full tiles go to Fronts if
F / E, half the mean length of a column, is above 200.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from snapfm.arrays import Index
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.kernels.factor.ordering import Order, best
from snapfm.kernels.numba.packs import WIDTH
from snapfm.linear.base import check_pattern
from snapfm.linear.fronts import BYTES, PreparedFronts, refuse_factor
from snapfm.linear.lanes import PreparedLanes

# Seconds per multiply-add, per entry of the factor and per call; see above.
_LANES_FLOP, _LANES_ENTRY = 0.7e-9, 21e-9
_FRONTS_FLOP, _FRONTS_ENTRY, _FRONTS_CALL = 0.065e-9, 7e-9, 20e-6
_SHORT = 20e-3  # seconds of a tile: batches that take long then have full tiles
_CALLBACK = 100e-6  # seconds per tile of three calls back: compiled loops reach Fronts through Python
# Bytes per entry of the factor of eight lanes, with phantom columns. The schedule of Lanes lists every row of every update, a
# sixteenth of the multiply-adds.
_LANES_BYTES, _SCHEDULE_BYTES = 90, 0.5


class Cost(NamedTuple):
    """What one tile needs: seconds of a factorization and two solves, and bytes while it iterates."""

    seconds: float
    bytes: float


def predicted_lanes(order: Order) -> Cost:
    """Predict what Lanes needs for a tile, whatever the number of its live lanes."""
    seconds = _LANES_FLOP * order.flops + _LANES_ENTRY * order.fill
    return Cost(seconds, _LANES_BYTES * order.fill + _SCHEDULE_BYTES * order.flops)


def predicted_fronts(order: Order, live: int) -> Cost:
    """Predict what Fronts needs for the live lanes of a tile."""
    lane = _FRONTS_FLOP * order.flops + _FRONTS_ENTRY * order.fill + _FRONTS_CALL
    return Cost(_CALLBACK + live * lane, float(BYTES * order.fill * live))


@dataclass(frozen=True)
class Automatic:
    """The faster of Lanes and Fronts for tiles with `live` running lanes, within `memory` bytes if either fits.

    The choice depends only on structure: a sample's bits must not depend on its batch size. On average half of the lanes of a
    tile are running, because batches of large fields are small and finished samples leave. A factor of more than `largest`
    bytes, for one sample, is refused.
    """

    live: int = WIDTH // 2
    memory: float = 2e9
    largest: float = math.inf

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> PreparedLanes | PreparedFronts:
        """Choose a fill-reducing order, then the solver; raises TooLarge."""
        check_pattern(pattern, signs)
        order = best(pattern.indptr, pattern.indices, signs)
        lanes = self.lanes(order)
        refuse_factor(order, (8 * WIDTH if lanes else BYTES) * order.fill, self.largest)
        kind = PreparedLanes if lanes else PreparedFronts
        return kind.of(pattern, order, signs is not None)

    def lanes(self, order: Order) -> bool:
        """Whether Lanes is the better choice."""
        fused, single = predicted_lanes(order), predicted_fronts(order, self.live)
        if fused.seconds < _SHORT:
            return True
        if max(fused.bytes, single.bytes) > self.memory:
            return fused.bytes < single.bytes
        return fused.seconds < single.seconds
