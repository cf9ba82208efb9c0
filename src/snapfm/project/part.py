"""Part: one system of the reduction, iterated on for a piece of a batch; what fails is tried again in other ways.

Owns the memory of the iterations and lends it out call by call, so that threads never meet in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.kernels.interior import interior_tiles
from snapfm.kernels.lanes import fill, gather, scatter
from snapfm.kernels.ldl import TALLY
from snapfm.kernels.newton import solve_tiles
from snapfm.kernels.operations import LANES, SPILL
from snapfm.kernels.restoration import restore_tiles
from snapfm.kernels.runs import Runs, join, products_to_tiles, tiles_to_field
from snapfm.kernels.sections import starts
from snapfm.kernels.threads import Turn
from snapfm.kernels.units import enter_units, leave_units
from snapfm.project.aim import Aim, sharp
from snapfm.project.frame import prepare
from snapfm.project.proof import Proof
from snapfm.project.tiles import Index, Rows, Values, tiles_for
from snapfm.structure.reduce import System

Counts = npt.NDArray[np.int64]

# Iterations of one attempt, as shares of a sample's limit. Benchmark inputs need 2 to 12 of the 100 that the default gives,
# pathological ones have shown their nature by then.
_ATTEMPT, _SCATTERED, _BARRIER, _GIVING = 0.2, 0.1, 0.3, 0.4
_SETS_CYCLE = 8  # iterations with inequalities or bounds after which their active sets are taken to cycle
# Trials of a step: of one towards a wrong active set no length is any good, and from near an answer full steps find the sets
# in fewer iterations than any search would let them.
_MANY, _FEW, _NONE = 50, 4, 0
# Rows of sizes from this to one over it are added up as they are, at first: measuring all by their size takes more iterations
# where that is not needed (Heat-2 from noise), and fewer where it is (a total and an energy of a field of a thousandth).
_ORDINARY, _ALL = 1e-3, 1.0
_GIVES = 6  # tenths of the give that are tried
_PACKS_A_SECOND = 8e8  # arithmetic on packs that one thread does at least, from the profiles of the six problems


_OPEN = (int(Status.STALLED), int(Status.ITERATION_LIMIT))  # of lanes that another attempt may help
# What a sample is called when its parts ended in different ways: the later in this order. One part that is proven infeasible
# makes the sample so, whatever the others would have done.
_GRAVITY = (Status.CONVERGED, Status.STALLED, Status.ITERATION_LIMIT, Status.INFEASIBLE, Status.NONFINITE)
_RANK = np.argsort([int(status) for status in _GRAVITY])


def gravest(status: Counts) -> Counts:
    """Join the statuses (b, parts) of the parts of samples."""
    if not status.any():
        return status[:, 0]
    found: Counts = np.array([int(status) for status in _GRAVITY])[_RANK[status].max(axis=1)]
    return found


@dataclass(frozen=True)
class Ended:
    """What became of lanes or samples: status, iterations, what is known of second order."""

    status: Counts
    iterations: Counts
    second: Counts

    @classmethod
    def unfinished(cls, lanes: int) -> Ended:
        """Begin with nothing done."""
        return cls(np.full(lanes, int(Status.ITERATION_LIMIT)), np.zeros(lanes, np.int64), np.full(lanes, core.UNKNOWN))


@dataclass(frozen=True)
class Room:
    """Iterations that lanes have left, and the limit that attempts are shares of."""

    left: Counts
    limit: int

    def upto(self, share: float) -> Counts:
        """Give what one attempt may use."""
        return np.clip(self.left, 0, max(1, round(share * self.limit)))

    def less(self, used: Counts) -> Room:
        """Give what is left after so many more."""
        return Room(self.left - used, self.limit)

    def at(self, lanes: Index) -> Room:
        """Give that of some lanes."""
        return Room(self.left[lanes], self.limit)


Attempt = Callable[[Values, Values, Aim, Room, Turn], Ended]


class Part:
    """Prepared for one system; `lower` and `upper` are the limits of all unknowns, `first_external` the first cell of params.

    `lengths`: the unknowns that are the length y₂ of a group; kept are those of this system.
    """

    def __init__(self, system: System, lower: Values, upper: Values, first_external: int, lengths: Index) -> None:
        self.system = system
        self.lengths: Index = np.intersect1d(system.unknowns, lengths)
        self.rows = Rows(system.program, system.inputs, system.externals - first_external)
        self.still = _still(system)
        self.lower, self.upper = lower[None], upper[None]
        bounded = np.isfinite(lower[system.unknowns]) | np.isfinite(upper[system.unknowns])
        self.prepared = prepare(system, bool(bounded.any()))
        self.crowded = bool(self.prepared.frame.mixed or self.prepared.frame.bounded)
        self.at = self._sections()
        self._free: list[Values] = []
        self._proof = Proof(system)

    def seconds(self, samples: int, limit: int) -> float:
        """Say how long one compiled call on so many samples may take at most, roughly."""
        program, plan = self.system.program, self.prepared.schedule
        once = (
            16 * int(plan.updates[:, 1].sum()) + 10 * plan.packs + 40 * program.operations + 20 * self.prepared.entries
        )
        once += 30 * (program.pattern.nnz + program.pattern.columns + program.pattern.rows)
        return once * tiles_for(samples * self.system.parts) * max(_ATTEMPT, _BARRIER) * limit / _PACKS_A_SECOND

    def solve(
        self, start: Values, u: Values, externals: Values, aim: Aim, warm: Values | None, multipliers: Values, limit: int,
        turn: Turn,
    ) -> Ended:  # fmt: skip
        """Iterate from u towards the nearest point to `start`; say what became of every sample.

        Written: u (this part's unknowns), multipliers (its rows).
        """
        system, parts, rows = self.system, self.system.parts, self.system.rows.shape[1]
        lanes = len(u) * parts
        space = self.borrow(tiles_for(lanes))
        at = self.at // LANES
        fill(system.inputs, self.rows.outside, u, externals, at[core.CELLS], space)
        gather(u, system.unknowns, at[core.X], space)
        gather(start, system.unknowns, at[core.TARGET], space)
        products_to_tiles(self.still, parts, rows, start, at[core.SHIFT], space)
        self._section(space, core.JACOBIAN)[:] = np.repeat(system.program.constants, LANES)
        if self.prepared.frame.bounded:
            for bound, number in ((self.lower, core.LOWER), (self.upper, core.UPPER)):
                gather(np.repeat(bound, len(u), axis=0), system.unknowns, at[number], space)
        if warm is None:
            self._section(space, core.MULTIPLIER)[:] = 0.0
        else:
            gather(warm, system.rows, at[core.MULTIPLIER], space)
        if self.crowded:  # an unknown short of its limit has no certificate at all: these go all the way
            aim = sharp(aim.tolerance)
        other = enter_units(space, self.at)
        ended = self._attempts(space, lanes, aim, warm is not None, limit, turn)
        if other:
            leave_units(space, self.at)
        scatter(space, at[core.X], system.unknowns, u)
        tiles_to_field(self.still, parts, rows, space, at[core.MULTIPLIER], -1.0, u)
        scatter(space, at[core.MULTIPLIER], system.rows, multipliers)
        self.give_back(space)
        if parts == 1:
            return ended
        shape = (len(u), parts)
        return Ended(
            gravest(ended.status.reshape(shape)),
            ended.iterations.reshape(shape).max(axis=1),
            ended.second.reshape(shape).min(axis=1),
        )

    def _attempts(self, space: Values, lanes: int, aim: Aim, near: bool, limit: int, turn: Turn) -> Ended:
        """Iterate as given; then, for what failed, follow a barrier or start elsewhere. Written: space.

        `near`: what is given comes from an answer to much the same question.
        """
        if turn.over:
            return Ended.unfinished(lanes)
        first = np.array(self._section(space, core.X))
        most = max(1, round(_ATTEMPT * limit))
        if self.crowded:
            room = np.full(lanes, min(_SETS_CYCLE, limit))
            ended = self._run(space, lanes, aim, room, turn, _NONE if near else _FEW)
        else:
            ended = self._run(space, lanes, aim, np.full(lanes, most), turn)
        status, iterations, second = ended.status, ended.iterations, ended.second
        if not status.any():  # all converged, as they mostly do
            return ended
        for attempt in self._others():
            failed = np.flatnonzero(np.isin(status, _OPEN) & (iterations < limit))
            if turn.over or not len(failed):
                break
            again = _lanes(space, failed)
            self._section(again, core.MULTIPLIER)[:] = 0.0
            outcome = attempt(again, _lanes(first, failed), aim, Room(limit - iterations[failed], limit), turn)
            iterations[failed] += outcome.iterations
            better = np.flatnonzero((outcome.status == Status.CONVERGED) | (outcome.status == Status.INFEASIBLE))
            _put_lanes(space, failed[better], again, better)
            status[failed[better]], second[failed[better]] = outcome.status[better], outcome.second[better]
        # With iterations and time left every way was tried: what has not arrived is stuck.
        stuck = np.isin(status, _OPEN)
        short = (iterations >= limit) | turn.over
        status[stuck] = np.where(short[stuck], int(Status.ITERATION_LIMIT), int(Status.STALLED))
        return Ended(status, iterations, second)

    def _others(self) -> list[Attempt]:
        """What is tried in turn by samples that did not arrive from û.

        With inequalities or bounds the way over a lawful point is the one that helps most often; without them starts
        elsewhere are cheaper and do as well.
        """
        if self.crowded:
            return [self._barrier, self._restored, self._scattered, self._from_zero, self._giving]
        return [self._scattered, self._from_zero, self._giving, self._restored]

    def _barrier(
        self, space: Values, first: Values, aim: Aim, room: Room, turn: Turn, ordinary: float = _ORDINARY
    ) -> Ended:
        """Follow a barrier from `first` to where the active set is plain, and finish from there."""
        self._section(space, core.X)[:] = first
        lanes, allowed = len(room.left), room.upto(_BARRIER)
        live, limits, status, iterations = _blank(space, allowed)
        self._call(interior_tiles, turn, (ordinary, limits, turn.stop, live), space, (status, iterations))
        used = iterations.ravel()[:lanes]
        ended = self._run(space, lanes, aim, room.less(used).upto(_ATTEMPT), turn, ordinary=ordinary)
        return Ended(ended.status, ended.iterations + used, ended.second)

    def _giving(self, space: Values, first: Values, aim: Aim, room: Room, turn: Turn) -> Ended:
        """Let rows give way a little: where they can only almost hold, no multiplier is large enough to hold them.

        A row gives way by `give` times its multiplier, which has to stay within the tolerance; less is tried until it does.
        """
        self._section(space, core.X)[:] = first
        lanes = len(room.left)
        ended = Ended(np.full(lanes, int(Status.STALLED)), np.zeros(lanes, np.int64), np.full(lanes, core.UNKNOWN))
        give, tolerance = 0.1 * aim.tolerance, aim.tolerance / self._units(space, lanes)
        room = Room(room.upto(_GIVING), room.limit)
        waiting = np.arange(lanes)
        for _ in range(_GIVES):
            if turn.over or not len(waiting):
                break
            some = _lanes(space, waiting)
            self._section(some, core.GIVE)[:] = give
            self._section(some, core.BARRIER)[:] = give
            left = room.less(ended.iterations).at(waiting).upto(_ATTEMPT)
            found = self._run(some, len(waiting), sharp(0.1 * aim.tolerance), left, turn)
            way = give * np.abs(_by_lane(self._section(some, core.MULTIPLIER), len(waiting))).max(axis=1, initial=0.0)
            _put_lanes(space, waiting, some, np.arange(len(waiting)))
            ended.iterations[waiting] += found.iterations
            ended.status[waiting] = np.where(way <= 0.8 * tolerance[waiting], found.status, int(Status.STALLED))
            ended.second[waiting] = found.second
            waiting = waiting[ended.status[waiting] != Status.CONVERGED]
            give *= 0.1
        self._section(space, core.GIVE)[:] = 0.0
        self._section(space, core.BARRIER)[:] = 0.0
        return ended

    def _scattered(self, space: Values, first: Values, aim: Aim, room: Room, turn: Turn) -> Ended:
        """Go on beside the point where it stopped."""
        _scatter(self._section(space, core.X))
        return self._run(space, len(room.left), aim, room.upto(_SCATTERED), turn)

    def _from_zero(self, space: Values, first: Values, aim: Aim, room: Room, turn: Turn) -> Ended:
        """Start from nothing: noise is the worst start for transport laws, zero often the best."""
        x = self._section(space, core.X)
        x[:] = 0.0
        _scatter(x)
        return self._run(space, len(room.left), aim, room.upto(_ATTEMPT), turn)

    def _restored(self, space: Values, first: Values, aim: Aim, room: Room, turn: Turn) -> Ended:
        """Lower the violation alone from û; go on from where a law holds, or report that nothing lowers it further."""
        self._section(space, core.X)[:] = first
        lanes = len(room.left)
        live, limits, status, used = _blank(space, room.upto(_BARRIER))
        self._call(restore_tiles, turn, (aim.tolerance, limits, turn.stop, live), space, (status, used))
        found, iterations = status.ravel()[:lanes], used.ravel()[:lanes]
        broken = np.flatnonzero((found != Status.CONVERGED) & (found != Status.NONFINITE))
        if len(broken):  # a violation that nothing nearby lowers is no proof
            proven = self._proven(_lanes(space, broken), len(broken), aim.tolerance)
            found[broken] = np.where(proven, int(Status.INFEASIBLE), int(Status.STALLED))
        second = np.full(lanes, core.UNKNOWN)
        lawful = np.flatnonzero(found == Status.CONVERGED)
        if len(lawful):
            again, left = _lanes(space, lawful), room.less(iterations).at(lawful)
            if self.crowded:
                ended = self._barrier(again, np.array(self._section(again, core.X)), aim, left, turn, _ALL)
            else:
                ended = self._run(again, len(lawful), aim, left.upto(_ATTEMPT), turn, ordinary=_ALL)
            _put_lanes(space, lawful, again, np.arange(len(lawful)))
            found[lawful], second[lawful] = ended.status, ended.second
            iterations[lawful] += ended.iterations
        return Ended(found, iterations, second)

    def _run(
        self,
        space: Values,
        lanes: int,
        aim: Aim,
        limit: Counts,
        turn: Turn,
        trials: int = _MANY,
        ordinary: float = _ORDINARY,
    ) -> Ended:
        """Iterate on the first `lanes` lanes of a space; say what became of them."""
        live, limits, status, iterations = _blank(space, limit)
        second = np.empty_like(status)
        settings = core.Settings(*aim, ordinary, trials)
        self._call(solve_tiles, turn, (settings, limits, turn.stop, live), space, (status, iterations, second))
        return Ended(status.ravel()[:lanes], iterations.ravel()[:lanes], second.ravel()[:lanes])

    def _call(
        self, kernel: Any, turn: Turn, given: tuple[Any, ...], space: Values, written: tuple[Counts, ...]
    ) -> None:
        """Run a kernel on all tiles; what it takes to compile when it is first used is not counted."""
        one = self.prepared
        read = (self.system.program.code, one.frame, one.schedule, one.signs, *given)
        if not kernel.overloads:
            with turn.clock.paused():
                kernel(*read, space[:0], self.at, *written)
        kernel(*read, space, self.at, *written)

    def _proven(self, space: Values, lanes: int, tolerance: float) -> npt.NDArray[np.bool_]:
        """Say for which lanes, where restoration ended, it is proven that the laws cannot hold."""
        unit = self._units(space, lanes)[:, None]

        def at(number: int) -> Values:
            return _by_lane(self._section(space, number), lanes)

        rows, weights = unit * at(core.RESIDUAL), at(core.ROW_WEIGHT) ** 2
        cells = at(core.CELLS)[:, :-SPILL]
        nothing = np.full((lanes, self.system.unknowns.shape[1]), np.inf)
        lower, upper = (
            (unit * at(core.LOWER), unit * at(core.UPPER)) if self.prepared.frame.bounded else (-nothing, nothing)
        )
        return self._proof.holds(cells, rows, weights, unit * at(core.TARGET), lower, upper, tolerance)

    def _units(self, space: Values, lanes: int) -> Values:
        return _by_lane(self._section(space, core.UNIT), lanes)[:, 0]

    def _section(self, space: Values, number: int) -> Values:
        return space[:, self.at[number] : self.at[number + 1]]

    def borrow(self, tiles: int) -> Values:
        """Lend memory of so many tiles; pieces of a batch come in few sizes, so most calls find theirs."""
        while self._free:
            try:
                space = self._free.pop()
            except IndexError:  # another thread took it
                break
            if len(space) == tiles:
                return space
        return np.zeros((tiles, int(self.at[-1])))

    def give_back(self, space: Values) -> None:
        """Take back what was lent."""
        self._free.append(space)

    def _sections(self) -> Index:
        """Say where each section of a tile's memory begins."""
        program, plan, frame = self.system.program, self.prepared.schedule, self.prepared.frame
        v, m, ops = program.pattern.columns, program.pattern.rows, program.operations
        limits, slacks = v if frame.bounded else 0, m if frame.mixed else 0
        packs = [0] * core.SECTIONS
        for sections, count in {
            (core.CELLS,): program.cells,
            (core.SLOTS,): program.slots + 1,
            (core.LEFT, core.RIGHT): program.slots,
            (core.PARTIAL,): 5 * ops,
            (core.ADJOINT,): ops,
            (core.BENDS,): program.bends.nnz,
            (core.JACOBIAN, core.SCALED): program.pattern.nnz,
            (core.X, core.TARGET, core.SLOPE, core.WEIGHT, core.INVERSE, core.STEP, core.PLAIN_STEP, core.BEFORE): v,
            (core.BEST_STEP,): v,
            (core.LOWER, core.UPPER, core.TO_BOUND, core.LOWER_DUAL, core.UPPER_DUAL, core.BOUND_WEIGHT): limits,
            (core.ROWS, core.MULTIPLIER, core.DIRECTION, core.PLAIN_DIRECTION, core.SHIFT, core.RESIDUAL): m,
            (core.ACTIVE, core.IDLE, core.NORM, core.BEFORE_MULTIPLIER, core.BEFORE_RESIDUAL, core.BEST_DIRECTION): m,
            (core.SLACK, core.BEFORE_SLACK): slacks,
            (core.ROW_SIZE, core.ROW_WEIGHT): m,
            (core.BARRIER,): m,
            (core.GIVE,): 1,
            (core.UNIT,): 2,
            (core.MATRIX,): self.prepared.entries,
            (core.RHS,): v + m if frame.augmented else m,
            (core.FACTOR,): plan.packs,
            (core.PIVOTS, core.SCALE, core.WORK): plan.slots,
            (core.TALLY,): TALLY,
        }.items():
            for section in sections:
                packs[section] = count
        return starts([LANES * count for count in packs])


def _still(system: System) -> Runs:
    """Join the entries of `still` for all parts: row r of part k becomes row k·m + r."""
    entries, rows = system.still.tocoo(), system.rows.shape[1]
    place = system.eliminated[:, entries.col].ravel()
    row = (rows * np.arange(system.parts)[:, None] + entries.row).ravel()
    return join(place, row, np.tile(entries.data, system.parts))


def _blank(space: Values, limit: Counts) -> tuple[npt.NDArray[np.bool_], Counts, Counts, Counts]:
    """Make (tiles, LANES) arrays: which lanes hold a sample and may iterate, how often, statuses, iterations."""
    shape = (len(space), LANES)
    live, limits = np.zeros(shape, bool), np.zeros(shape, np.int64)
    live.ravel()[: len(limit)] = True
    limits.ravel()[: len(limit)] = limit
    return live, limits, np.empty(shape, np.int64), np.empty(shape, np.int64)


def _by_lane(part: Values, lanes: int) -> Values:
    """See a section as (lanes, packs)."""
    packs = part.shape[1] // LANES
    return part.reshape(len(part), packs, LANES).transpose(0, 2, 1).reshape(len(part) * LANES, packs)[:lanes]


_GOLDEN = 0.6180339887498949


def _scatter(x: Values) -> None:
    """Move off a point where rows are flat or parallel: a fixed scatter without symmetry, a hundredth of the field's size."""
    unknowns = x.shape[1] // LANES
    scatter = np.modf(np.arange(1, unknowns + 1) * _GOLDEN)[0] * 2.0 - 1.0
    lanes = x.reshape(len(x), unknowns, LANES)
    size = np.maximum(np.abs(lanes).max(axis=1, keepdims=True, initial=0.0), 1.0)
    x += (1e-2 * size * scatter[:, None]).reshape(x.shape)


def _lanes(space: Values, which: Index) -> Values:
    """Copy chosen lanes into a space of their own; the last tile is filled up with copies of its last lane."""
    filled = np.concatenate([which, np.repeat(which[-1:], -len(which) % LANES)])
    tiles, width = len(filled) // LANES, space.shape[1] // LANES
    lanes = space.reshape(len(space), width, LANES)[filled // LANES, :, filled % LANES]
    return np.ascontiguousarray(lanes.reshape(tiles, LANES, width).transpose(0, 2, 1)).reshape(tiles, width * LANES)


def _put_lanes(space: Values, to: Index, source: Values, come: Index) -> None:
    """Copy lanes back. Written: space."""
    width = space.shape[1] // LANES
    whole, part = space.reshape(len(space), width, LANES), source.reshape(len(source), width, LANES)
    whole[to // LANES, :, to % LANES] = part[come // LANES, :, come % LANES]
