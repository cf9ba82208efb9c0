"""The lanes of one System during a call: their memory, how they ended, and how many iterations they have left.

Used by solve.system and solve.attempts; must not import them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snapfm.arrays import Index, Values
from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.kernels.operations import LANES

GOLDEN = 0.6180339887498949  # its multiples fall into no pattern


def tiles_for(lanes: int) -> int:
    """Return how many tiles hold so many lanes."""
    return (lanes + LANES - 1) // LANES


class Tiles:
    """The first `lanes` lanes of a space (tiles, numbers); `at` says where each section of a tile begins."""

    def __init__(self, space: Values, at: Index, lanes: int) -> None:
        self.space, self.at, self.lanes = space, at, lanes

    def section(self, number: int) -> Values:
        """View a section of all tiles: (tiles, packs · LANES)."""
        return self.space[:, self.at[number] : self.at[number + 1]]

    def packs(self, number: int) -> Values:
        """View a section as (tiles, packs, LANES)."""
        part = self.section(number)
        return part.reshape(len(part), part.shape[1] // LANES, LANES)

    def by_lane(self, number: int) -> Values:
        """Return a section as (lanes, packs)."""
        packs = self.packs(number)
        return packs.transpose(0, 2, 1).reshape(len(packs) * LANES, packs.shape[1])[: self.lanes]

    def write(self, number: int, values: Values, lanes: Index | None = None, packs: Index | None = None) -> None:
        """Write a section as by_lane returns it, or the values (lanes, packs) of some lanes and packs of it."""
        view = self.packs(number)
        lane = (np.arange(self.lanes) if lanes is None else lanes)[:, None]
        view[lane // LANES, np.arange(view.shape[1]) if packs is None else packs, lane % LANES] = values

    def take(self, which: Index) -> Tiles:
        """Copy chosen lanes into tiles of their own."""
        return Tiles(taken(self.space, which), self.at, len(which))

    def put(self, to: Index, source: Tiles, lanes: Index) -> None:
        """Copy some lanes of other tiles to lanes `to` of these."""
        width = self.space.shape[1] // LANES
        whole = self.space.reshape(len(self.space), width, LANES)
        part = source.space.reshape(len(source.space), width, LANES)
        whole[to // LANES, :, to % LANES] = part[lanes // LANES, :, lanes % LANES]

    def scatter(self, number: int) -> None:
        """Move a section off a point where rows are flat or parallel, by a fixed scatter of a hundredth of the field's size."""
        x = self.packs(number)
        scatter = np.modf(np.arange(1, x.shape[1] + 1) * GOLDEN)[0] * 2.0 - 1.0
        size = np.maximum(np.abs(x).max(axis=1, keepdims=True, initial=0.0), 1.0)
        x += 1e-2 * size * scatter[:, None]


def taken(space: Values, which: Index) -> Values:
    """Copy chosen lanes; copies of the last lane fill the last tile."""
    filled = np.concatenate([which, np.repeat(which[-1:], -len(which) % LANES)])
    tiles, width = len(filled) // LANES, space.shape[1] // LANES
    lanes = space.reshape(len(space), width, LANES)[filled // LANES, :, filled % LANES]
    return np.ascontiguousarray(lanes.reshape(tiles, LANES, width).transpose(0, 2, 1)).reshape(tiles, width * LANES)


# The status of a sample whose parts ended in different ways: the last in this order. One part that is proven infeasible
# makes the whole sample infeasible.
SEVERITY = (Status.CONVERGED, Status.STALLED, Status.ITERATION_LIMIT, Status.INFEASIBLE, Status.NONFINITE)
RANK = np.argsort([int(status) for status in SEVERITY])


@dataclass(frozen=True)
class AttemptOutcome:
    """Status, iterations and sign of the curvature (layout.HOLDS, …) of lanes or samples."""

    status: Index
    iterations: Index
    second: Index
    weights: Values | None = None  # (samples, parts, kinks) of generalized gradients: see solve.kinks.search

    @classmethod
    def unfinished(cls, lanes: int) -> AttemptOutcome:
        """Return lanes on which nothing was done."""
        return cls(np.full(lanes, int(Status.ITERATION_LIMIT)), np.zeros(lanes, np.int64), np.full(lanes, core.UNKNOWN))

    @classmethod
    def stalled(cls, lanes: int) -> AttemptOutcome:
        """Return lanes that an attempt has not helped, so far."""
        return cls(np.full(lanes, int(Status.STALLED)), np.zeros(lanes, np.int64), np.full(lanes, core.UNKNOWN))

    def after(self, used: Index) -> AttemptOutcome:
        """Add iterations (lanes,) made before."""
        return AttemptOutcome(self.status, self.iterations + used, self.second)

    def joined(self, samples: int, parts: int, weights: Values | None) -> AttemptOutcome:
        """Combine the parts of each sample."""
        if parts == 1:
            return self if weights is None else AttemptOutcome(self.status, self.iterations, self.second, weights)
        status, iterations, second = (
            one.reshape(samples, parts) for one in (self.status, self.iterations, self.second)
        )
        return AttemptOutcome(worst_status(status), iterations.max(axis=1), second.min(axis=1), weights)


@dataclass(frozen=True)
class IterationBudget:
    """Iterations that lanes have left, and the limit that attempts are shares of."""

    left: Index
    limit: int

    def share(self, share: float) -> Index:
        """Return how many iterations one attempt may use."""
        return np.minimum(np.maximum(self.left, 0), most(share, self.limit))

    def spend(self, used: Index) -> IterationBudget:
        """Subtract used iterations."""
        return IterationBudget(self.left - used, self.limit)

    def at(self, lanes: Index) -> IterationBudget:
        """Choose lanes."""
        return IterationBudget(self.left[lanes], self.limit)


def most(share: float, limit: int) -> int:
    """Return the iterations that are a share of a limit, at least one."""
    return max(1, round(share * limit))


def worst_status(status: Index) -> Index:
    """Combine the statuses (b, parts) of the parts of samples."""
    if not status.any():
        return status[:, 0]
    found: Index = np.array([int(status) for status in SEVERITY])[RANK[status].max(axis=1)]
    return found
