"""Kinked laws: an attempt that finds answers which lie on kinks, where one-sided slopes certify nothing (math.md, "Kinks").

Every kink is a smooth piece (compile.kinks). First all kinks are smoothed, less and less (smoothing.py). Then each is on one
of its sides, or held: the switch is zero, by an augmented Lagrangian, and its multiplier ν, divided by what one side's slope
would add, is the weight of the two slopes (sides.py). Where many sides change at once, the weights are followed as the duals
of an interior-point method are (path.py). Lanes that converge leave their weights in the tiles (layout.WEIGHT); −1 − weight is
the state of a kink. Must not import solve.system.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Index, Values
from snapfm.compile.derivatives import Rows
from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.kernels.operations import LANES
from snapfm.reduce.kinked_system import KinkedSystem
from snapfm.reduce.reduce import System
from snapfm.solve.attempts.attempt import Attempt, Search
from snapfm.solve.kinks.path import follow
from snapfm.solve.kinks.sides import TOGETHER, choose
from snapfm.solve.kinks.smoothing import EARLY, LAST, Smoothing
from snapfm.solve.kinks.states import ON, TINY, KinkedLanes
from snapfm.solve.tiles import AttemptOutcome, Tiles, tiles_for

if TYPE_CHECKING:
    from snapfm.solve.system import Part

NO_WEIGHT = -1.0  # in layout.WEIGHT: the lane's slopes are those of its operators


class Kinked:
    """A Part whose kinks are smooth pieces, beside the part it was made from."""

    def __init__(self, spec: KinkedSystem, part: Part) -> None:
        self.spec, self.part = spec, part
        pattern, count = spec.switches.pattern, len(spec.state)
        # Entries of a switch and of its jump that belong to the same unknown.
        row, column = pattern.row_of(), pattern.indices
        keys = row * pattern.columns + column
        jump = np.flatnonzero(row >= count)
        wanted = keys[jump] - count * pattern.columns
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        both = keys[at] == wanted if len(keys) else np.zeros(0, bool)
        self.of_jump, self.of_switch = jump[both], at[both]
        # What sums up over the entries of each kink.
        self.by_switch, self.by_both = _sums(row[row < count], count), _sums(row[self.of_switch], count)

    @property
    def count(self) -> int:
        """Number of kinks."""
        return len(self.spec.state)

    def pull(
        self, rows: Rows, system: System, u: Values, externals: Values, multipliers: Values, rest: Values, weights: Values
    ) -> None:  # fmt: skip
        """Add Jᵀλ to `rest`, with the slopes that `weights` (b, parts, kinks) choose, and elsewhere those of `rows`.

        Part by part: each has its own samples with weights. Written: rest.
        """
        spec, (many, count) = self.spec, (externals.shape[1], self.count)
        program = spec.system.program
        outside = np.full((1, len(program.params)), many)
        outside[0, spec.state - 1] = many + 1 + np.arange(count)
        nothing = np.zeros((len(u), 1))
        for part in range(system.parts):
            weighted = (weights[:, part] != NO_WEIGHT).any(axis=1)
            inside = system.inputs[part, spec.unknowns]
            outside[0, : len(spec.params)] = rows.outside[part, spec.params]
            index = np.concatenate([system.rows[part], np.full(count, multipliers.shape[1])])
            for chosen in (True, False):
                some = np.flatnonzero(weighted == chosen)
                if not len(some):
                    continue
                added = np.zeros((len(some), rest.shape[1]))
                if chosen:
                    known = np.concatenate([externals[some], nothing[some], -1.0 - weights[some, part]], axis=1)
                    factors = np.concatenate([multipliers[some], nothing[some]], axis=1)
                    own_rows = Rows(program, inside[None], outside)
                    own_rows.pull(index[None], u[some], known, factors, added)
                else:
                    alone = Rows(rows.program, rows.inputs[part : part + 1], rows.outside[part : part + 1])
                    alone.pull(system.rows[part : part + 1], u[some], externals[some], multipliers[some], added)
                rest[some] += added


def _has_kinks(part: Part) -> bool:
    return part.kinks is not None


def _from_input(search: Search) -> AttemptOutcome:
    search.begin()
    return _search(search)


def _from_zero(search: Search) -> AttemptOutcome:
    search.begin_at_zero()
    return _search(search)


def _search(search: Search) -> AttemptOutcome:
    """Smooth, then choose sides. Where all kinks that matter may hold a point, their weights are followed first, else last."""
    on = KinkedLanes(search)
    lanes, smoothing = np.arange(on.tiles.lanes), Smoothing(on)
    smoothing.run(lanes, EARLY)
    holding = smoothing.holding()
    early, late = np.flatnonzero(holding), np.flatnonzero(~holding)
    follow(on, early, smoothing.widths())
    late = np.union1d(late, choose(on, early, TOGETHER))
    smoothing.run(late, LAST)
    late = choose(on, late)
    follow(on, late, smoothing.widths())
    choose(on, late)
    _leave(on, search.tiles)
    return AttemptOutcome(on.status, on.used, on.second)


def _leave(on: KinkedLanes, source: Tiles) -> None:
    """Copy answers and weights back. Written: source."""
    tiles, spec, count = on.tiles, on.spec, on.kinked.count
    done = np.flatnonzero(on.status == Status.CONVERGED)
    source.section(core.X)[:] = tiles.section(core.X)
    source.section(core.MULTIPLIER)[:] = tiles.section(core.MULTIPLIER)[:, : LANES * spec.rows]
    weights = np.full((tiles_for(tiles.lanes) * LANES, count), NO_WEIGHT)
    found, seen = -1.0 - on.cells(tiles)[:, spec.state], on.see(tiles)
    size = np.abs(tiles.by_lane(core.X)).max(axis=1, initial=1.0, keepdims=True)
    # Elsewhere the slope is that of the operator.
    near = (np.abs(seen.switch) <= ON * size * seen.slope) & (seen.slope > TINY)
    done = done[near[done].any(axis=1)]
    weights[done] = found[done]
    source.section(core.WEIGHT)[:] = weights.reshape(-1, LANES, count).transpose(0, 2, 1).reshape(len(source.space), -1)


def _sums(row: Index, rows: int) -> csr_array:
    """Return the matrix that sums up entries by their row."""
    return csr_array((np.ones(len(row)), (row, np.arange(len(row)))), shape=(rows, len(row)))


KINKS = Attempt("kinks", 0.45, _from_input, _has_kinks)
KINKS_FROM_ZERO = replace(KINKS, name="kinks from zero", run=_from_zero)
