"""Lanes with factors in float64, eight samples to a tile. May import linear.base, .buffers, .planned, and kernels."""

from __future__ import annotations

import numpy as np

from snapfm.kernels.ldl import TALLY, factorize
from snapfm.kernels.ordering import best
from snapfm.kernels.packs import WIDTH
from snapfm.kernels.panels import schedule
from snapfm.kernels.substitution import WORK, solve
from snapfm.linear.base import Array, Index, PivotRule, Pivots, check_rhs, check_values, host
from snapfm.linear.buffers import aligned
from snapfm.linear.planned import Planned
from snapfm.structure.pattern import Pattern


class PreparedDouble(Planned):
    """The workspace of one pattern; which signs pivots should have is kept by slot."""

    def __init__(self, rule: PivotRule, refinements: int, pattern: Pattern, signs: Index | None) -> None:
        order = best(pattern.indptr, pattern.indices, signs)
        super().__init__(pattern, order, schedule(pattern.indptr, pattern.indices, order.perm))
        self.rule, self.refinements = rule, refinements
        self.signed = signs is not None
        self.signs = np.zeros(self.plan.slots)
        if signs is not None:
            self.signs[self.plan.slot] = signs

    def factorize(self, values: Array) -> Pivots:
        """Factorise every lane of values (nnz, lanes)."""
        lanes = check_values(values, self.pattern.nnz)
        self._grow(lanes)
        record = self._records.of(lanes)
        factorize(
            self.plan, host(values).reshape(-1), lanes, self.signs, self.signed, self.rule.tiny, self.rule.stand_in,
            self._factor, self._inverse, self._matrix, self._scale, self._tally,
            record.status, record.negative, record.weak, record.smallest,
        )  # fmt: skip
        self._lanes = lanes
        return self._records.of_kind(values, lanes)

    def solve(self, rhs: Array, out: Array | None = None) -> Array:
        """Solve for rhs (n, lanes) or (n, sides, lanes), into `out` or else in place; gives where the answer is."""
        sides, lanes = check_rhs(rhs, out, self.pattern.rows, self._lanes)
        self._grow_work(lanes)
        answer = rhs if out is None else out
        solve(
            self.plan, self._factor, self._inverse, self._matrix, self._lanes == 1, self.refinements,
            host(rhs).reshape(-1), sides, lanes, self._work, host(answer).reshape(-1),
        )  # fmt: skip
        return answer

    def _grow(self, lanes: int) -> None:
        tiles = -(-lanes // WIDTH)
        if tiles > self._tiles:
            self._tiles = tiles
            self._factor = aligned(tiles, self.plan.packs * WIDTH)
            self._inverse = aligned(tiles, self.plan.slots * WIDTH)
            self._matrix = aligned(tiles, self.pattern.nnz * WIDTH if self.refinements else 0)
            self._scale = aligned(tiles, self.plan.slots * WIDTH)
            self._tally = aligned(tiles, TALLY * WIDTH)

    def _grow_work(self, lanes: int) -> None:
        tiles = -(-lanes // WIDTH)
        if tiles > self._solve_tiles:
            self._solve_tiles = tiles
            self._work = aligned(tiles, WORK if self.refinements else 1, self.plan.slots * WIDTH)
