"""Fronts: sparse LDLᵀ of one lane at a time in wide dense panels, on the calling thread. For few large samples.

Lanes needs the work and the memory of eight lanes for one, and its panels of four columns leave the caches when factors are
large. One sample, one thread, ms to factorize: JJᵀ of a five-point law on 126² points 12 (Lanes 52, SciPy 88), on 510² 560
(Lanes 9 600, SciPy 4 300), divergence in 32³ 340 (Lanes 5 200, SciPy 1 800). The arithmetic is in kernels.factor.fronts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.sparsity.pattern import Pattern, TooLarge
from snapfm.kernels.factor.front_solves import solve, solve_eight
from snapfm.kernels.factor.fronts import FrontScratch, factorize, scratch
from snapfm.kernels.factor.ordering import Order, best
from snapfm.kernels.factor.supernodes import Supernodes, supernodes
from snapfm.kernels.numba.packs import WIDTH
from snapfm.linear.base import TINY, Outcome, Pivots, Workspace, aligned, check_pattern

BYTES = 11  # per entry of the factor of one lane, with stored zeros


@dataclass(frozen=True)
class Fronts:
    """The solver for few large samples: one at a time, in dense panels. A factor of more than `largest` bytes is refused."""

    largest: float = math.inf

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> PreparedFronts:
        """Choose a fill-reducing order and arrange the elimination; raises TooLarge."""
        check_pattern(pattern, signs)
        order = best(pattern.indptr, pattern.indices, signs)
        refuse_factor(order, BYTES * order.fill, self.largest)
        return PreparedFronts.of(pattern, order, signs is not None)


def refuse_factor(order: Order, size: float, largest: float) -> None:
    """Raise TooLarge for a factor of more bytes than `largest`, before anything as long as the factor is listed."""
    if size > largest:
        raise TooLarge(f"factors of {size / 1e9:.0f} GB are not computed", order.fill)


@dataclass(frozen=True)
class PreparedFronts:
    """The order and the panels of one pattern."""

    pattern: Pattern
    order: Order
    plan: Supernodes
    signed: bool  # whether the scale of a pivot includes what its neighbors contribute

    @classmethod
    def of(cls, pattern: Pattern, order: Order, signed: bool) -> PreparedFronts:
        """Arrange the elimination in a given order."""
        return cls(pattern, order, supernodes(pattern.indptr, pattern.indices, order.perm), signed)

    def workspace(self) -> FrontsWorkspace:
        """Make a workspace with memory of its own."""
        return FrontsWorkspace(self)

    def factor(self, values: Values) -> Factor:
        """Factorize one matrix (nnz,) for any number of right-hand sides."""
        one = _Lane.empty(self.plan)
        one.factorize(self, values[:, None], 0, scratch(self.plan, aligned), np.zeros(1, np.int64))
        return Factor(self.plan, one.factor, one.inverse)


@dataclass(frozen=True)
class Factor:
    """The factor of one matrix. It never changes, so any number of threads may share it."""

    plan: Supernodes
    factor: Values
    inverse: Values

    @property
    def log_determinant(self) -> float:
        """The logarithm of the matrix' |det|."""
        return float(-np.log(np.abs(self.inverse)).sum())

    def solve(self, right: Values) -> Values:
        """Solve for the rows of `right` (b, n); an answer's bits do not depend on the other rows or on their number."""
        out, x = np.empty_like(right), aligned(right.shape[1] * WIDTH)
        for start in range(0, len(right), WIDTH):
            solve_eight(self.plan, self.factor, self.inverse, right, start, x, out)
        return out


@dataclass(frozen=True)
class _Lane:
    """Memory for the factor of one lane."""

    factor: Values
    inverse: Values

    @classmethod
    def empty(cls, plan: Supernodes) -> _Lane:
        return cls(aligned(plan.packs * WIDTH), aligned(len(plan.perm)))

    def factorize(self, prepared: PreparedFronts, values: Values, lane: int, room: FrontScratch, stop: Index) -> int:
        """Factorize one lane of values (nnz, lanes); return its status. Written: this memory, room."""
        status: int = factorize(
            prepared.plan, values, lane, prepared.signed, TINY, self.factor, self.inverse, room, stop
        )  # fmt: skip
        return status


class FrontsWorkspace(Workspace):
    """One factor per live lane. Memory grows to the largest number of live lanes seen and is then reused."""

    def __init__(self, prepared: PreparedFronts) -> None:
        super().__init__(prepared.pattern)
        self.prepared = prepared
        self._room: FrontScratch | None = None
        self._lanes: list[_Lane] = []
        self._of: npt.NDArray[np.int64] = np.zeros(
            0, np.int64
        )  # lanes that have a factor: _lanes[k] is that of lane _of[k]

    def _factorize(self, values: Values, found: Pivots, live: Mask, stop: Index) -> None:
        if self._room is None:
            self._room = scratch(self.prepared.plan, aligned)
        room, self._of = self._room, np.flatnonzero(live)
        found.status[:], found.negative[:], found.weak[:], found.smallest[:] = Outcome.NONFINITE, 0, 0, np.nan
        for k, lane in enumerate(self._of.tolist()):
            if k == len(self._lanes):
                self._lanes.append(_Lane.empty(self.prepared.plan))
            found.status[lane] = self._lanes[k].factorize(self.prepared, values, int(lane), room, stop)
            found.negative[lane], found.weak[lane], found.smallest[lane] = room.tally

    def _solve(self, rhs: Values, out: Values) -> None:
        plan, room = self.prepared.plan, self._room
        for k, lane in enumerate(self._of.tolist()):
            if rhs[:, lane].any():
                solve(plan, self._lanes[k].factor, self._lanes[k].inverse, rhs, lane, room, out)
            else:
                out[:, lane] = 0.0
        if len(self._of) < rhs.shape[1]:
            out[:, np.setdiff1d(np.arange(rhs.shape[1]), self._of)] = 0.0

    def _log_determinant(self, lanes: int) -> Values:
        logs = np.full(lanes, np.nan)
        for k, lane in enumerate(self._of.tolist()):
            logs[lane] = -np.log(np.abs(self._lanes[k].inverse)).sum()
        return logs
