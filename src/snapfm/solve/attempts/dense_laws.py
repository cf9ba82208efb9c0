"""The laws of one lane as dense arrays, evaluated at any point: for attempts that are written in numpy.

Everything is in the lane's unit. Used by solve.attempts.sequential; must not import it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from snapfm.arrays import Index, Mask, Values
from snapfm.kernels import layout as core
from snapfm.kernels.operations import LANES
from snapfm.kernels.restoration import restore_tiles
from snapfm.kernels.threads import Deadline
from snapfm.solve.attempts.attempt import run_loop
from snapfm.solve.budget import stationary
from snapfm.solve.tiles import Tiles

if TYPE_CHECKING:
    from snapfm.solve.system import Loops

_LARGEST = 1e100  # slopes and unknowns beyond this overflow in products


class DensePoint(NamedTuple):
    """The laws at one point: rows, their slopes, Σλ∇²h (None if it is zero), the weighted ℓ2 violation and the objective."""

    x: Values
    rows: Values
    slopes: Values
    hessian: Values | None
    theta: float
    objective: float

    @property
    def finite(self) -> bool:
        """Whether the laws and their slopes have values, none so large that products overflow."""
        return bool(
            np.isfinite(self.theta)
            and (np.abs(self.slopes) < _LARGEST).all()
            and np.abs(self.x).max(initial=0.0) < _LARGEST
        )


@dataclass(frozen=True)
class DenseProblem:
    """One lane: evaluates its laws. Everything is in the lane's unit."""

    loops: Loops
    tile: Tiles
    target: Values
    lower: Values
    upper: Values
    equality: Mask
    weight: Values  # of the rows, in the ℓ2 violation
    deadline: Deadline
    entries: tuple[Index, Index]  # of the Jacobian: rows and columns
    pairs: tuple[Index, Index]  # of the Hessian's lower triangle

    @classmethod
    def of(cls, loops: Loops, tile: Tiles, deadline: Deadline) -> DenseProblem:
        """Read the lane of a tile, at its current point."""
        system, frame = loops.part.system, loops.part.kkt.frame
        target = tile.by_lane(core.TARGET)[0].copy()
        nothing = np.full(len(target), np.inf)
        lower, upper = (
            (tile.by_lane(core.LOWER)[0].copy(), tile.by_lane(core.UPPER)[0].copy())
            if frame.bounded
            else (-nothing, nothing)
        )
        ones = np.ones(len(system.equality))
        patterns = system.program.pattern, system.program.hessian
        entries, pairs = ((one.row_of(), one.indices) for one in patterns)
        own = cls(loops, tile, target, lower, upper, np.asarray(system.equality, bool), ones, deadline, entries, pairs)
        start = own.at(np.clip(tile.by_lane(core.X)[0], lower, upper), np.zeros(len(ones)))
        size = np.maximum(1.0, np.linalg.norm(start.slopes, axis=1))
        weight = 1.0 / np.where(np.isfinite(size), size, 1.0)
        return replace(own, weight=weight)

    def at(self, x: Values, multipliers: Values) -> DensePoint:
        """Evaluate rows and derivatives: restoration without an iteration does so, and no more."""
        for number, values in ((core.X, x), (core.MULTIPLIER, multipliers)):
            self.tile.section(number).reshape(-1, LANES)[:] = values[:, None]
        run_loop(self.loops, restore_tiles, (0.0,), self.tile, np.zeros(1, np.int64), self.deadline, 2)
        rows = self.tile.by_lane(core.RESIDUAL)[0].copy()
        slopes, hessian = np.zeros((len(rows), len(x))), None
        slopes[self.entries] = self.tile.by_lane(core.JACOBIAN)[0]
        if len(self.pairs[0]) and multipliers.any():
            row, column = self.pairs
            hessian = np.zeros((len(x), len(x)))
            hessian[row, column] = hessian[column, row] = self.loops.scratch(core.HESSIAN)[0]
        off = np.where(self.equality, np.abs(rows), np.maximum(rows, 0.0))
        away = x - self.target
        return DensePoint(x, rows, slopes, hessian, float(np.linalg.norm(self.weight * off)), 0.5 * float(away @ away))

    @property
    def stationary(self) -> float:
        """The stationarity that the judge allows, in the lane's unit."""
        unit, inverse = self.tile.by_lane(core.UNIT)[0]
        return float(inverse * stationary(unit * np.abs(self.target).max(initial=0.0)))

    def violation(self, point: DensePoint) -> float:
        """Return the largest violation of the rows; bounds hold at all points."""
        off = np.where(self.equality, np.abs(point.rows), np.maximum(point.rows, 0.0))
        return float(off.max(initial=0.0))

    def stationarity(self, point: DensePoint, multipliers: Values) -> float:
        """Return how far a point is from a KKT point with these multipliers, as kernels.point measures it."""
        left = point.x - self.target + point.slopes.T @ multipliers
        left[(point.x <= self.lower) & (left > 0.0)] = 0.0
        left[(point.x >= self.upper) & (left < 0.0)] = 0.0
        held = ~self.equality & (multipliers > 0.0)
        size = np.maximum(np.linalg.norm(point.slopes[held], axis=1), 1e-30)
        return max(float(np.abs(left).max(initial=0.0)), float((np.abs(point.rows[held]) / size).max(initial=0.0)))
