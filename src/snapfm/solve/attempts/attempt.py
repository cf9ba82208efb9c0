"""What an attempt is: the record Attempt, the Search it is handed, and Newton's iterations, with which most attempts end.

Used by every attempt; must not import one, solve.system or solve.newton.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from snapfm.arrays import Index, Values
from snapfm.kernels import layout as core
from snapfm.kernels.newton import solve_tiles
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import Deadline
from snapfm.solve.budget import Stopping
from snapfm.solve.tiles import AttemptOutcome, IterationBudget, Tiles, taken

if TYPE_CHECKING:
    from snapfm.solve.system import Loops, Part

# Iterations of Newton's method, as shares of a sample's limit: from û or from far, and from where another loop has led.
NEWTON, AFTERWARDS = 0.2, 0.1
# Trials of a step. Towards a wrong active set no step length helps, and near an answer full steps find the active set in fewer
# iterations than a line search.
MANY, SOME, FEW, NONE = 50, 24, 4, 0
# Short or rejected steps in a row after which a lane is left to other attempts: a merit function whose penalty has grown with
# the multipliers rarely recovers. Damping has then grown from none to the size of W.
PATIENCE, ENDLESS = 4, 0
# Rows of sizes from this to one over it are not scaled at first. Scaling all rows takes more iterations where it is not needed
# (Heat-2 from noise), and fewer where it is (a total and an energy of a field of size 1e-3).
ORDINARY, ALL = 1e-3, 1.0


@dataclass(frozen=True)
class Search:
    """The lanes that an attempt is made on, and what it may spend."""

    loops: Loops
    tiles: Tiles  # written
    first: Values  # x of all tiles at the start of the call
    stopping: Stopping
    budget: IterationBudget
    deadline: Deadline
    near: bool = False  # the given multipliers belong to an answer for a nearby input
    share: float = 1.0  # of the attempt that is made

    @property
    def part(self) -> Part:
        """The part that the lanes belong to."""
        return self.loops.part

    @property
    def allowed(self) -> Index:
        """Iterations of the attempt's own loop: its share of the limit, as far as that is left."""
        return self.budget.share(self.share)

    def begin(self) -> None:
        """Go back to the start of the call. Written: x."""
        self.tiles.section(core.X)[:] = self.first

    def begin_at_zero(self) -> None:
        """Go to zero, and off it by a fixed scatter. Written: x."""
        self.tiles.section(core.X)[:] = 0.0
        self.tiles.scatter(core.X)

    def on(self, lanes: Index, used: Index) -> Search:
        """Copy some lanes into tiles of their own, with what `used` iterations have left of the budget."""
        budget = self.budget.spend(used).at(lanes)
        return replace(self, tiles=self.tiles.take(lanes), first=taken(self.first, lanes), budget=budget)

    def loop(self, kernel: Any, settings: tuple[Any, ...], limit: Index) -> tuple[Index, Index]:
        """Run a compiled loop of at most `limit` (lanes,) iterations; return how lanes ended, and iterations. Written: tiles."""
        status, used = run_loop(self.loops, kernel, settings, self.tiles, limit, self.deadline, 2)
        return status, used

    def newton(self, limit: Index, **settings: Any) -> AttemptOutcome:
        """Run Newton's iterations: see newton. Written: tiles."""
        return newton(self.loops, self.tiles, self.stopping, limit, self.deadline, **settings)


@dataclass(frozen=True)
class Attempt:
    """One way to solve lanes on which earlier attempts failed."""

    name: str
    share: float
    """Iterations of its own loop, as a share of a sample's limit."""
    run: Callable[[Search], AttemptOutcome]
    applies: Callable[[Part], bool] = lambda part: True
    keeps_nearer: bool = False
    """Whether the less infeasible point is kept even if it is not certified."""

    def when(self, applies: Callable[[Part], bool]) -> Attempt:
        """Return it for parts for which both its own condition and this one hold."""
        return replace(self, applies=lambda part: self.applies(part) and applies(part))

    def make(self, search: Search) -> AttemptOutcome:
        """Make it. All attempts are made here, where a benchmark counts what they are worth."""
        return self.run(replace(search, share=self.share))


def newton(
    loops: Loops, tiles: Tiles, stopping: Stopping, limit: Index, deadline: Deadline, trials: int = MANY,
    ordinary: float = ORDINARY, filtered: bool = False, patience: int = ENDLESS,
) -> AttemptOutcome:  # fmt: skip
    """Run Newton's iterations; return how the lanes ended. `filtered`: a filter judges steps, not the merit function.

    With `patience` a lane also ends after so many short or rejected steps in a row.
    """
    settings = core.Settings(*stopping, ordinary, trials, int(filtered), patience)
    status, iterations, second = run_loop(loops, solve_tiles, (settings,), tiles, limit, deadline, 3)
    return AttemptOutcome(status, iterations, second)


def run_loop(
    loops: Loops, kernel: Any, settings: tuple[Any, ...], tiles: Tiles, limit: Index, deadline: Deadline, count: int
) -> list[Index]:
    """Run a compiled loop on all lanes, each with its limit; return the `count` numbers (lanes,) that it leaves per lane."""
    shape = (len(tiles.space), LANES)
    live, limits = np.zeros(shape, bool), np.zeros(shape, np.int64)
    live.ravel()[: tiles.lanes] = True
    limits.ravel()[: tiles.lanes] = limit
    written = np.empty((count, *shape), np.int64)
    loops.run(kernel, (*settings, limits, deadline.stop, live), tiles, tuple(written))
    return list(written.reshape(count, -1)[:, : tiles.lanes])
