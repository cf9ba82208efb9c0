"""Lanes with factors in float32, sixteen samples to a tile, and answers with the accuracy of float64.

Every answer is refined against the matrix in float64 until its backward error is that of rounding (kernels.mixed). It
has three ways to end up with float64 factors instead, each by lane, and is then to the bit what those give:

- a pivot is weak in float32, or a value beyond its range: factorize does the lane again, by the given PivotRule, which
  therefore means exactly what it means in float64;
- refinement stalls, because the matrix is too ill-conditioned for float32: solve does the lane again, and the Pivots
  that factorize gave are brought up to date, their status included;
- the right-hand side is not finite: the same.

`doubled` says which lanes those are. What an answer is depends on matrix and right-hand side only, not on lanes doubled
before. Pivots of the other lanes are rounded to float32. May import linear.base, .buffers, .planned, .double, and kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from snapfm.kernels.ldl import TALLY, factorize
from snapfm.kernels.mixed import BEST, HALVES, STATE, WORK, keep, solve
from snapfm.kernels.packs import SINGLE_WIDTH, WIDTH
from snapfm.linear.base import Array, Index, Outcome, Pivots, Values, check_rhs, check_values, host
from snapfm.linear.buffers import Records, aligned
from snapfm.linear.double import DoubleWorkspace
from snapfm.linear.planned import Plan
from snapfm.structure.pattern import Pattern

# Relative to its scale, a pivot this small in float32 may be nothing but rounding: as PivotRule.tiny has it in float64.
_TINY = 64 * float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class PreparedSingle:
    """The plan of one pattern, the same as in float64."""

    plan: Plan

    @property
    def pattern(self) -> Pattern:
        """The lower triangle it was prepared for."""
        return self.plan.pattern

    @property
    def fill(self) -> int:
        """Entries of the factor, the diagonal included."""
        return self.plan.fill

    def workspace(self) -> SingleWorkspace:
        """Give memory for factors of its own, for one call at a time."""
        return SingleWorkspace(self.plan)


class SingleWorkspace:
    """Factors and buffers, and those in float64 for the lanes that need them."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self._double = plan, DoubleWorkspace(plan)
        self._records = Records()
        self._lanes = 0  # factorised at present
        self._tiles = 0  # that there is room for the factors of,
        self._solve_tiles = 0  # and to solve with
        # Rounding errors of a row's residual add up like a random walk, over n terms at the most. As in LAPACK's dsgesv.
        self._enough = max(BEST, float(np.sqrt(plan.pattern.rows) * np.finfo(np.float64).eps))
        self._doubled = np.empty(0, np.int64)

    @property
    def doubled(self) -> Index:
        """Lanes that have needed float64 factors since the last factorize, ascending."""
        return self._doubled

    def factorize(self, values: Array) -> Pivots:
        """Factorise every lane of values (nnz, lanes) in float32, and those where that fails in float64."""
        plan = self.plan
        lanes = check_values(values, plan.pattern.nnz)
        self._grow(lanes)
        record, flat = self._records.of(lanes), host(values).reshape(-1)
        # Weak pivots are only found here; what to do about them is decided in float64.
        factorize(
            plan.schedule, flat, lanes, plan.signs, plan.signed, plan.rule.tiny + _TINY, np.inf,
            self._factor, self._inverse, self._no_matrix, self._scale, self._tally,
            record.status, record.negative, record.weak, record.smallest,
        )  # fmt: skip
        keep(plan.schedule, flat, lanes, self._matrix, self._norms)
        self._lanes = lanes
        failed = record.status != Outcome.FACTORED
        self._usable[:lanes] = ~failed
        self._doubled = np.empty(0, np.int64)
        if failed.any():
            self._redo(np.flatnonzero(failed))
        return self._records.of_kind(values, lanes)

    def solve(self, rhs: Array, out: Array | None = None) -> Array:
        """Solve for rhs (n, lanes) or (n, sides, lanes), into `out` or else in place; gives where the answer is."""
        sides, lanes = check_rhs(rhs, out, self.plan.pattern.rows, self._lanes)
        self._grow_work(lanes)
        answer, shared = rhs if out is None else out, self._lanes == 1
        error = np.empty(sides * lanes)
        solve(
            self.plan.schedule, self._factor, self._inverse, self._matrix, self._norms, self._usable, shared,
            self._enough, host(rhs).reshape(-1), sides, lanes, self._work, self._correction, self._state,
            host(answer).reshape(-1), error,
        )  # fmt: skip
        failed = ~(error.reshape(sides, lanes) <= self._enough)
        if failed.any():
            self._solve_again(host(answer).reshape(-1, sides, lanes), failed, shared)
        return answer

    def _solve_again(self, x: Values, failed: npt.NDArray[np.bool_], shared: bool) -> None:
        """Solve in float64 where `failed` (sides, lanes) says so; x holds the right-hand sides there. Written: x."""
        needed = np.flatnonzero(failed.any(axis=0))
        missing = np.setdiff1d([0] if shared else needed, self._doubled)
        if len(missing):
            self._redo(missing)
        own = needed if shared else self._doubled
        again = self._double.solve(np.ascontiguousarray(x[:, :, own]))
        x[:, :, own] = np.where(failed[:, own], again, x[:, :, own])

    def _redo(self, lanes: Index) -> None:
        """Factorise these lanes in float64, with those that already were, and report the pivots found."""
        self._doubled = np.union1d(self._doubled, lanes)
        half, at = np.divmod(self._doubled, WIDTH)
        nnz = self.plan.pattern.nnz
        values = np.empty((nnz, len(self._doubled)))
        values[self.plan.schedule.entry_from] = self._matrix.reshape(-1, nnz, WIDTH)[half, :, at].T
        found, record = self._double.factorize(values), self._records.of(self._lanes)
        for mine, theirs in (
            (record.status, found.status),
            (record.negative, found.negative),
            (record.weak, found.weak),
            (record.smallest, found.smallest),
        ):
            host(mine)[self._doubled] = host(theirs)

    def _grow(self, lanes: int) -> None:
        tiles = -(-lanes // SINGLE_WIDTH)
        if tiles > self._tiles:
            slots, single = self.plan.schedule.slots, np.float32
            self._factor = aligned(tiles, self.plan.schedule.packs * SINGLE_WIDTH, dtype=single)
            self._inverse = aligned(tiles, slots * SINGLE_WIDTH, dtype=single)
            self._no_matrix = aligned(tiles, 0, dtype=single)  # kept in float64 instead
            self._scale = aligned(tiles, slots * SINGLE_WIDTH, dtype=single)
            self._tally = aligned(tiles, TALLY * SINGLE_WIDTH, dtype=single)
            self._matrix = aligned(tiles * HALVES, self.plan.pattern.nnz * WIDTH)
            self._norms = aligned(tiles * HALVES, slots * WIDTH)
            self._usable = np.empty(tiles * SINGLE_WIDTH)
            self._tiles = tiles

    def _grow_work(self, lanes: int) -> None:
        tiles = -(-lanes // SINGLE_WIDTH)
        if tiles > self._solve_tiles:
            slots = self.plan.schedule.slots
            self._work = aligned(tiles, HALVES, WORK, slots * WIDTH)
            self._correction = aligned(tiles, slots * SINGLE_WIDTH, dtype=np.float32)
            self._state = aligned(tiles, HALVES, STATE * WIDTH)
            self._solve_tiles = tiles
