"""Kinked laws: an attempt that finds answers which lie on kinks, where one-sided slopes certify nothing (math.md, "Kinks").

Every kink is a smooth piece (structure.kinks). First all kinks are smoothed, less and less. Then each is on one of its sides, or
held: the switch is zero, by an augmented Lagrangian, and its multiplier ν, divided by what one side's slope would add, is the
weight of the two slopes. A side or a hold that the multiplier contradicts is changed, as an active set is. Lanes that converge
leave their weights in the tiles (layout.WEIGHT); −1 − weight is the state of a kink. Must not import project.part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from snapfm.arrays import Index, Mask, Values
from snapfm.errors import Status
from snapfm.kernels import batches
from snapfm.kernels import layout as core
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import Turn
from snapfm.project.attempts import Attempt, barrier, newton
from snapfm.project.budget import Stopping, certified
from snapfm.project.closed_form import Rows
from snapfm.project.tiles import Ended, Room, Tiles, tiles_for
from snapfm.structure.kinks import KinkedSystem
from snapfm.structure.reduce import System

if TYPE_CHECKING:
    from snapfm.project.part import Loops, Part

NO_WEIGHT = -1.0  # in layout.WEIGHT: the lane's slopes are those of its operators

# Width of the smoothing, relative to how far a switch moves with the field: at the start, and where sides are chosen.
_FIRST, _LAST = 1e-1, 1e-4
_FASTER, _FASTEST, _SLOWEST = 0.3, 0.1, 0.85  # by which it is multiplied: at first, at most, and before a lane gives up
_SEARCH = 0.45  # iterations of one attempt, as a share of the limit
# Iterations at the first width, at each other width, and
_BEGIN, _SMOOTHED, _HELD = 0.1, 0.04, 0.008  # between two changes of sides, as shares of the limit
# Rounds in which all kinks change that disagree, then the farthest, then the first; then again.
_TOGETHER, _FARTHEST, _CYCLE, _ROUNDS = 8, 20, 30, 120
_STUCK = 6  # rounds without a change, or convergence, after which a lane gives up
_STRENGTH = (
    1e3  # of a hold, relative to the slope of its switch: the switch is off by 1/strength² of a multiplier's change
)
_ON = 1e-11  # a held switch is zero within this share of the field, along its slope
_NEAR = 1e-2  # a switch nearer to zero than this, along its slope and in the lane's unit, may be held
_SURE = 1e-3  # weights of a smoothed kink nearer than this to 0 or 1 are a side
_VANISHED = 1e-9  # jump of a switch that is zero, in the lane's unit
_BOTH = 0.7  # a weight that uses both slopes of a kink; half of each would cancel in an absolute value
_TINY = 1e-30


class Kinked:
    """A Part whose kinks are smooth pieces, beside the part it was made from."""

    def __init__(self, spec: KinkedSystem, part: Part) -> None:
        self.spec, self.part = spec, part
        pattern, count = spec.switches.pattern, len(spec.state)
        self.first = pattern.indptr[:count]
        # Entries of a switch and of its jump that belong to the same unknown.
        row, column = pattern.row_of(), pattern.indices
        keys = row * pattern.columns + column
        jump = np.flatnonzero(row >= count)
        wanted = keys[jump] - count * pattern.columns
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        both = keys[at] == wanted if len(keys) else np.zeros(0, bool)
        self.of_jump, self.of_switch = jump[both], at[both]
        self.kink_of = row[self.of_switch]
        self.entry_kink = row[row < count]

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
        ordinary, own = len(spec.inputs) - len(program.unknowns), system.inputs.shape[1]
        outside = np.full((1, len(program.externals)), many)
        outside[0, spec.state - 1 - len(program.unknowns)] = many + 1 + np.arange(count)
        nothing = np.zeros((len(u), 1))
        for part in range(system.parts):
            weighted = (weights[:, part] != NO_WEIGHT).any(axis=1)
            inside = system.inputs[part, spec.inputs[: len(program.unknowns)]]
            outside[0, :ordinary] = rows.outside[part, spec.inputs[len(program.unknowns) :] - own]
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


@dataclass(frozen=True)
class _Seen:
    """Kinks at a point, (lanes, kinks) each, in the lane's unit."""

    switch: Values
    slope: Values  # ‖∇s‖
    # What the other side's slope adds along ∇s, relative to ‖∇s‖². A minimum may lie on the kink where it is positive.
    reach: Values


def attempts_on(kinked: Callable[[], Kinked]) -> tuple[Attempt, ...]:
    """Return the attempts to find answers on kinks: from û, then from zero (see attempts)."""

    def from_input(loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, room: Room, turn: Turn) -> Ended:
        tiles.section(core.X)[:] = first
        return _Search(kinked(), loops, tiles, stopping, room, turn).run()

    def from_zero(loops: Loops, tiles: Tiles, first: Values, stopping: Stopping, room: Room, turn: Turn) -> Ended:
        tiles.section(core.X)[:] = 0.0
        tiles.scatter(core.X)
        return _Search(kinked(), loops, tiles, stopping, room, turn).run()

    return from_input, from_zero


class _Search:
    """One attempt: the lanes of `tiles`, copied to tiles of the kinked part."""

    def __init__(self, kinked: Kinked, loops: Loops, tiles: Tiles, stopping: Stopping, room: Room, turn: Turn) -> None:
        self.kinked, self.spec, self.loops = kinked, kinked.spec, loops.of(kinked.part)
        self.source, self.stopping, self.turn = tiles, certified(stopping.tolerance), turn
        self.room = Room(room.upto(_SEARCH), room.limit)
        lanes, part = tiles.lanes, kinked.part
        self.tiles = Tiles(np.zeros((tiles_for(lanes), int(part.at[core.KEPT]))), part.at, lanes)
        self.used = np.zeros(lanes, np.int64)
        self.status = np.full(lanes, int(Status.STALLED))
        self.second = np.full(lanes, core.UNKNOWN)
        for number in (core.X, core.TARGET, core.UNIT, core.LOWER, core.UPPER):
            self.tiles.section(number)[:] = tiles.section(number)
        m = LANES * self.spec.rows
        self.tiles.section(core.SHIFT)[:, :m] = tiles.section(core.SHIFT)
        self.tiles.section(core.JACOBIAN)[:] = np.repeat(self.spec.system.program.constants, LANES)
        cells, own = self._packs(self.tiles, core.CELLS), self._packs(tiles, core.CELLS)
        cells[:, 0] = 1.0
        cells[:, 1 : 1 + len(self.spec.inputs)] = own[:, 1 + self.spec.inputs]
        place = self._place()
        cells[:, place] = self._packs(self.tiles, core.UNIT)[:, :1] * self._packs(self.tiles, core.X)

    def run(self) -> Ended:
        """Smooth, then choose sides."""
        lanes = np.arange(self.tiles.lanes)
        self._smooth()
        if not self.turn.over:
            self._choose(lanes)
        done = np.flatnonzero(self.status == Status.CONVERGED)
        m = LANES * self.spec.rows
        self.source.section(core.X)[:] = self.tiles.section(core.X)
        self.source.section(core.MULTIPLIER)[:] = self.tiles.section(core.MULTIPLIER)[:, :m]
        weights = np.full((tiles_for(len(lanes)) * LANES, self.kinked.count), NO_WEIGHT)
        found, seen = -1.0 - self._cells(self.tiles)[:, self.spec.state], self._see(self.tiles)
        size = np.abs(self.tiles.by_lane(core.X)).max(axis=1, initial=1.0, keepdims=True)
        near = (np.abs(seen.switch) <= _ON * size * seen.slope) & (
            seen.slope > _TINY
        )  # elsewhere the slope is that of the operator
        done = done[near[done].any(axis=1)]
        weights[done] = found[done]
        self.source.section(core.WEIGHT)[:] = (
            weights.reshape(-1, LANES, self.kinked.count).transpose(0, 2, 1).reshape(len(self.source.space), -1)
        )
        return Ended(self.status, self.used, self.second)

    def _smooth(self) -> None:
        """Solve with all kinks smoothed, less and less, each lane at its own pace; end on sides and holds. Written: tiles."""
        spec, tiles = self.spec, self.tiles
        fixed = -1.0 - (self._see(tiles).switch > 0.0)
        unit = tiles.by_lane(core.UNIT)[:, :1]
        size = np.abs(tiles.by_lane(core.TARGET)).max(axis=1, initial=0.0, keepdims=True)
        # Both sides of every kink count: one within another has no slope on one side of it.
        self._write(tiles, spec.state, np.full_like(fixed, -1.0 - _BOTH))
        slope = self._see(tiles).slope
        scale, flat = slope * np.where(size > 0.0, size, 1.0) * unit, slope <= _TINY
        width, factor = np.full(tiles.lanes, np.inf), np.full(tiles.lanes, _FASTER)
        left = np.arange(tiles.lanes)
        while len(left) and not self.turn.over:
            aim = np.where(np.isinf(width), _FIRST, np.maximum(_LAST, width * factor))[left]
            some = tiles.take(left)
            self._write(some, spec.state, np.where(flat[left], fixed[left], aim[:, None] * scale[left]))
            share = _SMOOTHED if np.isfinite(width[left]).all() else _BEGIN
            limit = np.minimum(self.room.upto(share), self.room.left - self.used)[left].clip(0)
            ended = newton(self.loops, some, self.stopping, limit, self.turn)
            self.used[left] += ended.iterations
            good = ended.status == Status.CONVERGED
            if self.kinked.part.inequalities:
                self._inside(left, some, good)
            tiles.put(left[good], some, np.flatnonzero(good))
            width[left[good]] = aim[good]
            factor[left] = np.where(good, np.maximum(_FASTEST, factor[left] ** 1.5), np.sqrt(factor[left]))
            going = (width[left] > _LAST) & (factor[left] < _SLOWEST) & (self.used[left] < self.room.left[left])
            left = left[going & ~np.isinf(width[left])]
        seen = self._see(tiles)
        state = np.where(np.isinf(width), 0.0, width)[:, None] * scale
        weight = 0.5 * (1.0 + seen.switch * unit / np.maximum(np.hypot(seen.switch * unit, 2.0 * state), _TINY))
        held = ~flat & (weight > _SURE) & (weight < 1.0 - _SURE) & (seen.reach > 0.0)
        self._hold(tiles, seen, held, seen.switch > 0.0, weight * seen.reach)

    def _inside(self, left: Index, some: Tiles, good: Mask) -> None:
        """Follow a barrier on lanes whose active sets cycle. Written: some, good, used."""
        failed = np.flatnonzero(~good)
        if not len(failed):
            return
        again = some.take(failed)
        again.section(core.MULTIPLIER)[:] = 0.0
        begin = self.tiles.take(left[failed]).section(core.X)
        room = Room((self.room.left - self.used)[left[failed]], self.room.limit)
        ended = barrier(self.loops, again, begin, self.stopping, room, self.turn)
        self.used[left[failed]] += ended.iterations
        good[failed] = ended.status == Status.CONVERGED
        some.put(failed, again, np.arange(len(failed)))

    def _choose(self, lanes: Index) -> None:
        """Change sides and holds until multipliers agree with them. Written: tiles, status, second."""
        states = np.concatenate([self.spec.state, self.spec.gate])
        left, stuck = lanes, np.zeros(len(lanes), np.int64)
        for number in range(_ROUNDS):
            if not len(left) or self.turn.over:
                break
            some = self.tiles.take(left)
            limit = np.minimum(self.room.upto(_HELD), self.room.left - self.used)[left].clip(0)
            ended = newton(self.loops, some, self.stopping, limit, self.turn)
            self.used[left] += ended.iterations
            before = self._cells(some)[:, states]
            agreed = self._agree(some, ended.status == Status.CONVERGED, number)
            still = (ended.status != Status.CONVERGED) & (before == self._cells(some)[:, states]).all(axis=1)
            stuck[left] = np.where(still, stuck[left] + 1, 0)
            self.tiles.put(left, some, np.arange(len(left)))
            self.status[left[agreed]] = int(Status.CONVERGED)
            self.second[left] = ended.second
            left = left[~agreed & (self.used[left] < self.room.left[left]) & (stuck[left] < _STUCK)]

    def _agree(self, tiles: Tiles, converged: Mask, number: int) -> Mask:
        """Compare sides and holds with multipliers; change what disagrees, mark lanes where nothing does. Written: tiles.

        In later rounds of lanes that cycle (a shock that stays at one face ties its kinks at all times) one kink changes at a
        time: the one that is farthest off, and last the first in order, which ends for convex laws (Murty's rule).
        """
        spec, seen = self.spec, self._see(tiles)
        cells = self._cells(tiles)
        weight, gate = -1.0 - cells[:, spec.state], cells[:, spec.gate]
        was_held = gate > 0.0
        nu = gate * tiles.by_lane(core.MULTIPLIER)[:, spec.rows :]
        convex = (seen.reach > 0.0) & (seen.slope > _TINY)
        now = np.where(was_held, nu, weight * seen.reach)
        aim = now + seen.switch / np.maximum(seen.slope, _TINY) ** 2
        held = convex & (aim > 0.0) & (aim < seen.reach)
        side = np.where(convex, aim >= seen.reach, seen.switch > 0.0)
        size = np.abs(tiles.by_lane(core.X)).max(axis=1, initial=1.0, keepdims=True)
        away = np.abs(seen.switch) / np.maximum(seen.slope, _TINY)
        was, close = weight > 0.0, away <= _ON * size
        slack = _ON * (1.0 + np.abs(seen.reach))
        within = was_held & convex & (aim > -slack) & (aim < seen.reach + slack)
        kept = within | (~was_held & ((was == (seen.switch > 0.0)) | close))
        held, side = np.where(kept, was_held, held), np.where(kept, was, side)
        same = (held == was_held) & (held | (side == was))
        on = ~held | close
        turn = number % _CYCLE
        if turn >= _TOGETHER:
            off = np.where(was_held, np.maximum(-aim, aim - seen.reach) * seen.slope, away)
            off = np.where(same, -1.0, off if turn < _FARTHEST else 1.0)
            stay = np.arange(off.shape[1]) != off.argmax(axis=1)[:, None]
            held, side = np.where(stay, was_held, held), np.where(stay, was, side)
        agreed: Mask = converged & (same & on).all(axis=1)
        if not agreed.all():
            self._hold(tiles, seen, held, side, np.clip(aim, 0.0, np.maximum(seen.reach, 0.0)), ~agreed)
        if agreed.any():
            share = np.clip(nu / np.where(held, seen.reach, 1.0), 0.0, 1.0)
            final = np.where(held, share, side)
            state = np.where(agreed[:, None], -1.0 - final, self._cells(tiles)[:, spec.state])
            self._write(tiles, spec.state, state)
        return agreed

    def _hold(self, tiles: Tiles, seen: _Seen, held: Mask, side: Mask, nu: Values, lanes: Mask | None = None) -> None:
        """Put kinks on sides, or hold them with multipliers near `nu`. Written: tiles (cells, shift, multiplier)."""
        spec = self.spec
        state, gate = np.where(held | ~side, -1.0, -2.0), np.where(held, _STRENGTH / np.maximum(seen.slope, _TINY), 0.0)
        share = np.where(held, nu / np.where(held, gate, 1.0), 0.0)
        for number, first, value in (
            (core.CELLS, spec.state, state), (core.CELLS, spec.gate, gate),
            (core.SHIFT, spec.rows + np.arange(len(spec.state)), share),
            (core.MULTIPLIER, spec.rows + np.arange(len(spec.state)), share),
        ):  # fmt: skip
            packs = self._packs(tiles, number)
            lane = np.arange(len(value)) if lanes is None else np.flatnonzero(lanes)
            for k in range(len(first)):
                packs[lane // LANES, first[k], lane % LANES] = value[lane, k]

    def _see(self, tiles: Tiles) -> _Seen:
        """Evaluate switches, jumps and their slopes where the tiles are, and their reach as if near switches were zero.

        Where a slope fades as the kink is approached (the square of a relu), the reach beside the kink has any sign.
        """
        spec, switches, count = self.spec, self.spec.switches, self.kinked.count
        cells, lanes = self._cells(tiles), tiles.lanes
        inside = np.ascontiguousarray(cells[:, 1 : spec.system.program.code.first])
        inputs, outside = (part[None] for part in np.split(spec.switch_inputs, [len(switches.unknowns)]))
        values = np.empty((lanes, 2 * count))
        batches.evaluate(switches.code, switches.cells, inputs, outside, inside, inside, values)
        entries = np.tile(switches.constants, (lanes, 1))
        nothing = np.empty((lanes, 0))
        batches.derivatives(
            switches.code, switches.cells, switches.slots, inputs, outside, inside, inside, np.zeros((lanes, 2 * count)),
            entries, nothing,
        )  # fmt: skip
        kinked = self.kinked
        square, along = np.zeros((lanes, count)), np.zeros((lanes, count))
        mine = len(kinked.entry_kink)
        np.add.at(square.T, kinked.entry_kink, (entries[:, :mine] ** 2).T)
        np.add.at(along.T, kinked.kink_of, (entries[:, kinked.of_jump] * entries[:, kinked.of_switch]).T)
        switch, jump, slope = values[:, :count], values[:, count:], np.sqrt(square)
        inverse = tiles.by_lane(core.UNIT)[:, 1:]
        away = np.abs(switch * inverse) / np.maximum(slope, _TINY)
        ratio = along / np.maximum(square, _TINY)
        # A jump that does not vanish with the switch is no kink.
        vanishes = np.abs(jump) <= 2.0 * np.abs(ratio * switch) + _VANISHED / inverse
        # To first order in the switch: the jump is ratio·s and half the change of the ratio, times s.
        beside = away > _ON
        ratio = np.where(beside, 2.0 * jump / np.where(beside, switch, 1.0) - ratio, ratio)
        adjoint = self._adjoint(tiles, switch, (away <= _NEAR) & (slope > _TINY))
        return _Seen(switch * inverse, slope, np.where(vanishes, ratio * adjoint, 0.0))

    def _adjoint(self, tiles: Tiles, switch: Values, near: Mask) -> Values:
        """Return what a change of each kink's result adds to the Lagrangian, as if `near` switches and wrong ones were zero."""
        state = self._cells(tiles)[:, self.spec.state]
        smooth = 0.5 * (1.0 + switch / np.maximum(np.hypot(switch, 2.0 * state), _TINY))
        weight = np.where(state >= 0.0, smooth, -1.0 - state)
        wrong = (weight > 0.5) != (switch > 0.0)
        there = tiles.take(np.arange(tiles.lanes))
        self._write(there, self.spec.state, np.where(near | wrong, -3.0 - weight, state))
        newton(self.loops, there, self.stopping, np.zeros(tiles.lanes, np.int64), self.turn)
        return there.by_lane(core.ADJOINT)[:, self.spec.result]

    def _place(self) -> Index:
        system = self.spec.system
        place: Index = 1 + np.searchsorted(system.inputs[0], system.unknowns[0])
        return place

    def _write(self, tiles: Tiles, cells: Index, value: Values) -> None:
        """Write cells (lanes, …) of all lanes."""
        packs = self._packs(tiles, core.CELLS)
        lane = np.arange(len(value))
        packs[lane[:, None] // LANES, cells[None], lane[:, None] % LANES] = value

    def _cells(self, tiles: Tiles) -> Values:
        return tiles.by_lane(core.CELLS)

    @staticmethod
    def _packs(tiles: Tiles, number: int) -> Values:
        """View a section as (tiles, packs, LANES)."""
        part = tiles.section(number)
        return part.reshape(len(part), part.shape[1] // LANES, LANES)
