"""The kinks of lanes during one attempt: what is seen of them at a point, and how they are put on sides or held.

States, gates, shifts and multipliers of kinks live in tiles of the kinked part (compile.kinks). Used by solve.kinks.search and
the three steps of its search: smoothing, path and sides. Must not import them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snapfm.arrays import Mask, Values
from snapfm.compile.derivatives import Rows
from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.kernels.operations import LANES
from snapfm.solve.attempts.attempt import Search, newton
from snapfm.solve.budget import certified
from snapfm.solve.tiles import IterationBudget, Tiles, tiles_for

_STRENGTH = 1e3  # of a hold, relative to the slope of its switch, which is off by 1/strength² of a multiplier's change
ON = 1e-11  # a held switch is zero within this share of the field, along its slope
_NEAR = 1e-2  # a switch nearer to zero than this, along its slope and in the lane's unit, may be held
_VANISHED = 1e-9  # jump of a switch that is zero, in the lane's unit
TINY = 1e-30


@dataclass(frozen=True)
class Seen:
    """Kinks at a point, (lanes, kinks) each, in the lane's unit."""

    switch: Values
    slope: Values  # ‖∇s‖
    # What the other side's slope adds along ∇s, relative to ‖∇s‖². A minimum may lie on the kink where it is positive.
    reach: Values


class KinkedLanes:
    """The lanes of `tiles`, copied to tiles of the kinked part, and how far they have come."""

    def __init__(self, search: Search) -> None:
        kinked, tiles = search.part.kinked(), search.tiles
        self.kinked, self.spec, self.loops = kinked, kinked.spec, search.loops.of(kinked.part)
        self.stopping, self.deadline = certified(search.stopping.tolerance), search.deadline
        self.budget = IterationBudget(search.allowed, search.budget.limit)
        lanes, part = tiles.lanes, kinked.part
        self.tiles = Tiles(np.zeros((tiles_for(lanes), int(part.at[core.KEPT]))), part.at, lanes)
        self.used = np.zeros(lanes, np.int64)
        self.status = np.full(lanes, int(Status.STALLED))
        self.second = np.full(lanes, core.UNKNOWN)
        for number in (core.X, core.TARGET, core.UNIT, core.LOWER, core.UPPER):
            self.tiles.section(number)[:] = tiles.section(number)
        self.tiles.packs(core.SHIFT)[:, : self.spec.rows] = tiles.packs(core.SHIFT)
        self.tiles.section(core.JACOBIAN)[:] = np.repeat(self.spec.system.program.constants, LANES)
        cells = self.tiles.packs(core.CELLS)
        cells[:, 0] = 1.0
        spec, program, own = self.spec, self.spec.system.program, tiles.packs(core.CELLS)
        cells[:, 1 : 1 + len(spec.params)] = own[:, 1 + spec.params]
        first = 1 + search.part.system.params.shape[1]
        cells[:, 1 + len(program.params) : program.code.first] = own[:, first + spec.unknowns]
        cells[:, spec.system.places] = self.tiles.packs(core.UNIT)[:, :1] * self.tiles.packs(core.X)

    def hold(self, tiles: Tiles, seen: Seen, held: Mask, side: Mask, nu: Values, lanes: Mask | None = None) -> None:
        """Put kinks on sides, or hold them with multipliers near `nu`. Written: tiles (cells, shift, multiplier)."""
        spec = self.spec
        state, gate = np.where(held | ~side, -1.0, -2.0), np.where(held, _STRENGTH / np.maximum(seen.slope, TINY), 0.0)
        share = np.where(held, nu / np.where(held, gate, 1.0), 0.0)
        some = np.arange(len(state)) if lanes is None else np.flatnonzero(lanes)
        for number, packs, value in (
            (core.CELLS, spec.state, state),
            (core.CELLS, spec.gate, gate),
            (core.SHIFT, spec.holds, share),
            (core.MULTIPLIER, spec.holds, share),
        ):
            tiles.write(number, value[some], some, packs)

    def see(self, tiles: Tiles) -> Seen:
        """Evaluate switches, jumps and their slopes where the tiles are, and their reach as if near switches were zero.

        Where a slope fades as the kink is approached (the square of a relu), the reach beside the kink has any sign.
        """
        spec, count, cells = self.spec, self.kinked.count, tiles.by_lane(core.CELLS)
        inside = np.ascontiguousarray(cells[:, : spec.system.program.code.first])
        read = Rows(spec.switches, spec.switch_unknowns[None], spec.switch_params[None])
        values, entries = read.evaluate(inside, inside), read.slopes(inside, inside)
        kinked = self.kinked
        square = (kinked.by_switch @ (entries[:, : kinked.by_switch.shape[1]] ** 2).T).T
        along = (kinked.by_both @ (entries[:, kinked.of_jump] * entries[:, kinked.of_switch]).T).T
        switch, jump, slope = values[:, :count], values[:, count:], np.sqrt(square)
        inverse = tiles.by_lane(core.UNIT)[:, 1:]
        away = np.abs(switch * inverse) / np.maximum(slope, TINY)
        ratio = along / np.maximum(square, TINY)
        # A jump that does not vanish with the switch is no kink.
        vanishes = np.abs(jump) <= 2.0 * np.abs(ratio * switch) + _VANISHED / inverse
        # To first order in the switch: the jump is ratio·s and half the change of the ratio, times s.
        beside = away > ON
        ratio = np.where(beside, 2.0 * jump / np.where(beside, switch, 1.0) - ratio, ratio)
        adjoint = self._adjoint(tiles, switch, (away <= _NEAR) & (slope > TINY))
        return Seen(switch * inverse, slope, np.where(vanishes, ratio * adjoint, 0.0))

    def _adjoint(self, tiles: Tiles, switch: Values, near: Mask) -> Values:
        """Return what a change of each kink's result adds to the Lagrangian, as if `near` switches and wrong ones were zero."""
        state = tiles.by_lane(core.CELLS)[:, self.spec.state]
        smooth = 0.5 * (1.0 + switch / np.maximum(np.hypot(switch, 2.0 * state), TINY))
        weight = np.where(state >= 0.0, smooth, -1.0 - state)
        wrong = (weight > 0.5) != (switch > 0.0)
        there = tiles.take(np.arange(tiles.lanes))
        there.write(core.CELLS, np.where(near | wrong, -3.0 - weight, state), packs=self.spec.state)
        newton(self.loops, there, self.stopping, np.zeros(tiles.lanes, np.int64), self.deadline)
        return there.by_lane(core.ADJOINT)[:, self.spec.result]

    def between(self, before: Tiles, after: Tiles, length: Values) -> None:
        """Move lanes back to a share `length` (lanes,) of the way from `before`. Written: after (x, multipliers, cells)."""
        for number in (core.X, core.MULTIPLIER):
            old, new = before.by_lane(number), after.by_lane(number)
            moved = np.where(length[:, None] > 0.0, old + length[:, None] * (new - old), old)
            after.write(number, np.where(length[:, None] == 1.0, new, moved))
        place = self.spec.system.places
        after.write(core.CELLS, after.by_lane(core.UNIT)[:, :1] * after.by_lane(core.X), packs=place)
