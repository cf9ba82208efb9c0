"""Lanes: sparse LDLᵀ with the batch as the SIMD lane, eight lanes to a tile, on the calling thread.

For many samples: a tile costs the same whether one of its lanes is used or all are. One symbolic analysis serves all
lanes, calls and threads. The buffers of a workspace grow to the largest batch seen and are then reused. The arithmetic is
in kernels.factor.ldl.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.kernels.factor.ldl import TALLY, factorize, solve
from snapfm.kernels.factor.ordering import Order, best
from snapfm.kernels.factor.panels import Schedule, schedule
from snapfm.kernels.numba.packs import WIDTH
from snapfm.linear.base import TINY, Pivots, Workspace, aligned, check_pattern


@dataclass(frozen=True)
class Lanes:
    """The solver for batches: eight samples at once, fused into the compiled loop. It has no settings."""

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> PreparedLanes:
        """Choose a fill-reducing order and schedule the elimination."""
        check_pattern(pattern, signs)
        return PreparedLanes.of(pattern, best(pattern.indptr, pattern.indices, signs), signs is not None)


@dataclass(frozen=True)
class PreparedLanes:
    """The order and the schedule of one pattern."""

    pattern: Pattern
    order: Order
    plan: Schedule
    signed: bool  # whether the scale of a pivot includes what its neighbors contribute

    @classmethod
    def of(cls, pattern: Pattern, order: Order, signed: bool) -> PreparedLanes:
        """Schedule the elimination in a given order."""
        return cls(pattern, order, schedule(pattern.indptr, pattern.indices, order.perm), signed)

    def workspace(self) -> LanesWorkspace:
        """Make a workspace with memory of its own."""
        return LanesWorkspace(self)


class LanesWorkspace(Workspace):
    """Factors and buffers by tile."""

    def __init__(self, prepared: PreparedLanes) -> None:
        super().__init__(prepared.pattern)
        self.prepared = prepared
        self._tiles = 0  # that the buffers have room for

    def _factorize(self, values: Values, found: Pivots, live: Mask, stop: Index) -> None:
        prepared, lanes = self.prepared, values.shape[1]
        self._grow(-(-lanes // WIDTH))
        factorize(
            prepared.plan, values.reshape(-1), lanes, prepared.signed, TINY,
            self._factor, self._inverse, self._scale, self._tally,
            found.status, found.negative, found.weak, found.smallest,
        )  # fmt: skip

    def _solve(self, rhs: Values, out: Values) -> None:
        plan = self.prepared.plan
        solve(plan, self._factor, self._inverse, rhs.reshape(-1), rhs.shape[1], self._work, out.reshape(-1))

    def _log_determinant(self, lanes: int) -> Values:
        plan = self.prepared.plan
        inverse = self._inverse[: -(-lanes // WIDTH)].reshape(-1, plan.slots, WIDTH).take(plan.slot, axis=1)
        logs: Values = -np.log(np.abs(inverse)).sum(axis=1)
        return logs.reshape(-1)[:lanes]

    def _grow(self, tiles: int) -> None:
        if tiles > self._tiles:
            plan = self.prepared.plan
            self._factor = aligned(tiles, plan.packs * WIDTH)
            self._inverse = aligned(tiles, plan.slots * WIDTH)
            self._scale = aligned(tiles, plan.slots * WIDTH)
            self._tally = aligned(tiles, TALLY * WIDTH)
            self._work = aligned(tiles, plan.slots * WIDTH)
            self._tiles = tiles
