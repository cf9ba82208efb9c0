"""Lanes with factors in float64, eight samples to a tile. May import linear.base, .buffers, .planned, and kernels."""

from __future__ import annotations

from dataclasses import dataclass

from snapfm.kernels.ldl import TALLY, factorize
from snapfm.kernels.packs import WIDTH
from snapfm.kernels.substitution import WORK, solve
from snapfm.linear.base import Array, Pivots, check_rhs, check_values, host
from snapfm.linear.buffers import Records, aligned
from snapfm.linear.planned import Plan
from snapfm.structure.pattern import Pattern


@dataclass(frozen=True)
class PreparedDouble:
    """The plan of one pattern."""

    plan: Plan

    @property
    def pattern(self) -> Pattern:
        """The lower triangle it was prepared for."""
        return self.plan.pattern

    @property
    def fill(self) -> int:
        """Entries of the factor, the diagonal included."""
        return self.plan.fill

    def workspace(self) -> DoubleWorkspace:
        """Give memory for factors of its own, for one call at a time."""
        return DoubleWorkspace(self.plan)


class DoubleWorkspace:
    """Factors and buffers; they grow to the largest batch seen and are then reused."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._records = Records()
        self._lanes = 0  # factorised at present
        self._tiles = 0  # that there is room for the factors of,
        self._solve_tiles = 0  # and to solve with

    def factorize(self, values: Array) -> Pivots:
        """Factorise every lane of values (nnz, lanes)."""
        plan = self.plan
        lanes = check_values(values, plan.pattern.nnz)
        self._grow(lanes)
        record = self._records.of(lanes)
        factorize(
            plan.schedule, host(values).reshape(-1), lanes, plan.signs, plan.signed, plan.rule.tiny, plan.rule.stand_in,
            self._factor, self._inverse, self._matrix, self._scale, self._tally,
            record.status, record.negative, record.weak, record.smallest,
        )  # fmt: skip
        self._lanes = lanes
        return self._records.of_kind(values, lanes)

    def solve(self, rhs: Array, out: Array | None = None) -> Array:
        """Solve for rhs (n, lanes) or (n, sides, lanes), into `out` or else in place; gives where the answer is."""
        plan = self.plan
        sides, lanes = check_rhs(rhs, out, plan.pattern.rows, self._lanes)
        self._grow_work(lanes)
        answer = rhs if out is None else out
        solve(
            plan.schedule, self._factor, self._inverse, self._matrix, self._lanes == 1, plan.refinements,
            host(rhs).reshape(-1), sides, lanes, self._work, host(answer).reshape(-1),
        )  # fmt: skip
        return answer

    def _grow(self, lanes: int) -> None:
        tiles, slots = -(-lanes // WIDTH), self.plan.schedule.slots
        if tiles > self._tiles:
            self._factor = aligned(tiles, self.plan.schedule.packs * WIDTH)
            self._inverse = aligned(tiles, slots * WIDTH)
            self._matrix = aligned(tiles, self.plan.pattern.nnz * WIDTH if self.plan.refinements else 0)
            self._scale = aligned(tiles, slots * WIDTH)
            self._tally = aligned(tiles, TALLY * WIDTH)
            self._tiles = tiles

    def _grow_work(self, lanes: int) -> None:
        tiles = -(-lanes // WIDTH)
        if tiles > self._solve_tiles:
            self._work = aligned(tiles, WORK if self.plan.refinements else 1, self.plan.schedule.slots * WIDTH)
            self._solve_tiles = tiles
