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
from snapfm.kernels.factor import ldl
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
        prepared, lanes, tiles = self.prepared, values.shape[1], -(-values.shape[1] // WIDTH)
        self._grow(tiles)
        ldl.factorize(
            prepared.plan, _into(self._values[:tiles], values), prepared.signed, TINY,
            self._factor, self._inverse, self._scale, self._tally,
        )  # fmt: skip
        tally = self._tally[:tiles].reshape(-1, ldl.TALLY, WIDTH).swapaxes(0, 1).reshape(ldl.TALLY, -1)[:, :lanes]
        found.negative[:], found.weak[:], found.smallest[:] = tally[ldl.NEGATIVE], tally[ldl.WEAK], tally[ldl.SMALLEST]
        broken, weak = tally[ldl.BROKEN] > 0.0, tally[ldl.WEAK] > 0.0
        found.status[:] = np.where(broken, ldl.NONFINITE, np.where(weak, ldl.SINGULAR, ldl.FACTORED))

    def _solve(self, rhs: Values, out: Values) -> None:
        lanes = rhs.shape[1]
        tiles = _into(self._rhs[: -(-lanes // WIDTH)], rhs)
        ldl.solve(self.prepared.plan, self._factor, self._inverse, tiles, self._work)
        found = tiles.reshape(len(tiles), len(out), WIDTH)
        for tile, packs in enumerate(found):
            out[:, tile * WIDTH : (tile + 1) * WIDTH] = packs[:, : lanes - tile * WIDTH]

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
            self._tally = aligned(tiles, ldl.TALLY * WIDTH)
            self._work = aligned(plan.slots * WIDTH)
            self._values, self._rhs = (
                aligned(tiles, self._pattern.nnz * WIDTH),
                aligned(tiles, self._pattern.rows * WIDTH),
            )
            self._tiles = tiles


def _into(tiles: Values, values: Values) -> Values:
    """Copy (rows, lanes) to tiles (tiles, rows * WIDTH); an incomplete one repeats its last lane, so that none holds garbage."""
    lanes = values.shape[1]
    for tile, packs in enumerate(tiles.reshape(len(tiles), len(values), WIDTH)):
        count = min(WIDTH, lanes - tile * WIDTH)
        packs[:, :count] = values[:, tile * WIDTH : tile * WIDTH + count]
        packs[:, count:] = values[:, -1:]
    return tiles
