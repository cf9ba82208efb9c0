"""Lanes: sparse LDLᵀ with the batch as the SIMD lane, eight samples to a tile, tiles spread over the cores.

The solver of choice on a CPU. One symbolic analysis serves all lanes and calls; buffers grow to the largest batch seen
and are then reused. The arithmetic is in kernels.ldl and kernels.substitution.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from snapfm.kernels.ldl import TALLY, factorize
from snapfm.kernels.ordering import Order, best
from snapfm.kernels.packs import WIDTH
from snapfm.kernels.panels import Schedule, schedule
from snapfm.kernels.substitution import WORK, solve
from snapfm.linear.base import Array, Index, PivotRule, Pivots, Values, check_pattern, check_rhs, check_values, host
from snapfm.structure.pattern import Pattern

_LINE = 64  # bytes of a cache line: a pack that straddles two costs two loads


@dataclass(frozen=True)
class Lanes:
    """Settings: what to do about weak pivots, and how often to refine a solution against the matrix itself."""

    pivots: PivotRule = field(default_factory=PivotRule)
    refinements: int = 0

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> PreparedLanes:
        """Order the unknowns, plan the elimination."""
        check_pattern(pattern, signs)
        return PreparedLanes(self, pattern, signs)


class PreparedLanes:
    """The workspace of one pattern."""

    def __init__(self, solver: Lanes, pattern: Pattern, signs: Index | None) -> None:
        self.solver, self.pattern = solver, pattern
        self.order: Order = best(pattern.indptr, pattern.indices, signs)
        self.plan: Schedule = schedule(pattern.indptr, pattern.indices, self.order.perm)
        self._signed = signs is not None
        self._signs = np.zeros(self.plan.slots)
        if signs is not None:
            self._signs[self.plan.slot] = signs
        self._lanes = 0
        self._tiles = 0
        self._solve_tiles = 0
        self._records: dict[tuple[int, bool], Pivots] = {}

    @property
    def fill(self) -> int:
        """Entries of the factor, the diagonal included."""
        return self.order.fill

    @property
    def flops(self) -> int:
        """Multiply-adds of one lane's factorisation."""
        return self.order.flops

    def factorize(self, values: Array) -> Pivots:
        """Factorise every lane of values (nnz, lanes)."""
        lanes = check_values(values, self.pattern.nnz)
        self._grow(lanes)
        record = self._record(lanes, False)
        rule = self.solver.pivots
        factorize(
            self.plan, host(values).reshape(-1), lanes, self._signs, self._signed, rule.tiny, rule.stand_in,
            self._factor, self._inverse, self._matrix, self._scale, self._tally,
            record.status, record.negative, record.weak, record.smallest,
        )  # fmt: skip
        self._lanes = lanes
        return record if isinstance(values, np.ndarray) else self._record(lanes, True)

    def solve(self, rhs: Array, out: Array | None = None) -> Array:
        """Solve for rhs (n, lanes) or (n, sides, lanes), into `out` or else in place; gives where the answer is."""
        sides, lanes = check_rhs(rhs, out, self.pattern.rows, self._lanes)
        self._grow_work(lanes)
        answer = rhs if out is None else out
        solve(
            self.plan, self._factor, self._inverse, self._matrix, self._lanes == 1, self.solver.refinements,
            host(rhs).reshape(-1), sides, lanes, self._work, host(answer).reshape(-1),
        )  # fmt: skip
        return answer

    def _grow(self, lanes: int) -> None:
        tiles = -(-lanes // WIDTH)
        if tiles > self._tiles:
            self._tiles = tiles
            self._factor = _aligned(tiles, self.plan.packs * WIDTH)
            self._inverse = _aligned(tiles, self.plan.slots * WIDTH)
            self._matrix = _aligned(tiles, self.pattern.nnz * WIDTH if self.solver.refinements else 0)
            self._scale = _aligned(tiles, self.plan.slots * WIDTH)
            self._tally = _aligned(tiles, TALLY * WIDTH)

    def _grow_work(self, lanes: int) -> None:
        tiles = -(-lanes // WIDTH)
        if tiles > self._solve_tiles:
            self._solve_tiles = tiles
            self._work = _aligned(tiles, WORK if self.solver.refinements else 1, self.plan.slots * WIDTH)

    def _record(self, lanes: int, as_torch: bool) -> Pivots:
        """Give the result arrays for this many lanes: made once, then the same ones."""
        found = self._records.get((lanes, as_torch))
        if found is None:
            if as_torch:
                found = self._record(lanes, False).of_kind(torch.empty(0))
            else:
                counts = np.zeros((2, lanes), np.int64)
                found = Pivots(np.zeros(lanes, np.int8), counts[0], counts[1], np.zeros(lanes))
            self._records[lanes, as_torch] = found
        return found


def _aligned(*shape: int) -> Values:
    """Allocate float64 on a cache line."""
    size = int(np.prod(shape))
    room = np.empty(size + _LINE // 8)
    skip = (-room.ctypes.data % _LINE) // 8
    return room[skip : skip + size].reshape(shape)
