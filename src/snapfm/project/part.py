"""Part: one system of the reduction, iterated on for a piece of a batch; what fails is tried again in other ways.

Owns the memory of the iterations and lends it out call by call, so that threads never meet in it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.kernels.interior import interior_tiles
from snapfm.kernels.lanes import fill, gather, scatter
from snapfm.kernels.ldl import TALLY
from snapfm.kernels.newton import solve_tiles
from snapfm.kernels.operations import LANES
from snapfm.kernels.restoration import restore_tiles
from snapfm.kernels.runs import Runs, join, products_to_tiles, tiles_to_field
from snapfm.kernels.sections import starts
from snapfm.project.aim import Aim, sharp
from snapfm.project.frame import prepare
from snapfm.project.tiles import Index, Rows, Values, tiles_for
from snapfm.structure.reduce import System

Counts = npt.NDArray[np.int64]

ITERATIONS = 100  # benchmark inputs need 2 to 12, pathological ones have shown their nature by then
_SETS_CYCLE = 8  # iterations with inequalities or bounds after which their active sets are taken to cycle
# Trials of a step: of one towards a wrong active set no length is any good, and from near an answer full steps find the sets
# in fewer iterations than any search would let them.
_MANY, _FEW, _NONE = 50, 4, 0
_BARRIER = 150  # iterations of the interior point
_GIVES = 6  # tenths of the give that are tried


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

    def solve(
        self, start: Values, u: Values, externals: Values, aim: Aim, warm: Values | None, multipliers: Values
    ) -> tuple[Counts, Counts]:
        """Iterate from u towards the nearest point to `start`; give statuses and iterations per sample.

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
            for limit, number in ((self.lower, core.LOWER), (self.upper, core.UPPER)):
                gather(np.repeat(limit, len(u), axis=0), system.unknowns, at[number], space)
        if warm is None:
            self._section(space, core.MULTIPLIER)[:] = 0.0
        else:
            gather(warm, system.rows, at[core.MULTIPLIER], space)
        if self.crowded:  # an unknown short of its limit has no certificate at all: these go all the way
            aim = sharp(aim.tolerance)
        status, iterations = self._attempts(space, lanes, aim, near=warm is not None)
        scatter(space, at[core.X], system.unknowns, u)
        tiles_to_field(self.still, parts, rows, space, at[core.MULTIPLIER], -1.0, u)
        scatter(space, at[core.MULTIPLIER], system.rows, multipliers)
        self.give_back(space)
        shape = (len(u), parts)
        return status.reshape(shape).max(axis=1), iterations.reshape(shape).max(axis=1)

    def _attempts(self, space: Values, lanes: int, aim: Aim, near: bool) -> tuple[Counts, Counts]:
        """Iterate as given; then, for what failed, follow a barrier or start elsewhere. Written: space.

        `near`: what is given comes from an answer to much the same question.
        """
        first = np.array(self._section(space, core.X))
        if self.crowded:
            status, iterations = self._run(space, lanes, aim, _SETS_CYCLE, _NONE if near else _FEW)
        else:
            status, iterations = self._run(space, lanes, aim)
        for attempt in self._others():
            failed = np.flatnonzero((status != Status.CONVERGED) & (status != Status.NONFINITE))
            if not len(failed):
                break
            again = _lanes(space, failed)
            self._section(again, core.MULTIPLIER)[:] = 0.0
            outcome, more = attempt(again, _lanes(first, failed), len(failed), aim)
            iterations[failed] += more
            # An attempt that shows why there is no answer says more than one that ran out.
            shown = outcome == Status.INFEASIBLE
            better = np.flatnonzero((outcome == Status.CONVERGED) | shown)
            _put_lanes(space, failed[better], again, better)
            status[failed[better]] = outcome[better]
        # Every way was tried: what still breaks a law is stuck, not short of iterations.
        left = np.abs(_by_lane(self._section(space, core.RESIDUAL), lanes)).max(axis=1, initial=0.0)
        status[(status == Status.ITERATION_LIMIT) & (left > aim.tolerance)] = Status.STALLED
        return status, iterations

    def _others(self) -> list[Callable[[Values, Values, int, Aim], tuple[Counts, Counts]]]:
        """What is tried in turn by samples that did not arrive from û."""
        barrier = [self._barrier] if self.crowded else []
        return [*barrier, self._scattered, self._from_zero, self._giving, self._restored]

    def _barrier(self, space: Values, first: Values, lanes: int, aim: Aim) -> tuple[Counts, Counts]:
        """Follow a barrier from `first` to where the active set is plain, and finish from there."""
        self._section(space, core.X)[:] = first
        live, status, iterations = _blank(space, lanes)
        code, one = self.system.program.code, self.prepared
        interior_tiles(
            code, one.frame, one.schedule, one.signs, _BARRIER, 0, len(space), live, space, self.at, status, iterations
        )
        outcome, more = self._run(space, lanes, aim)
        return outcome, more + iterations.ravel()[:lanes]

    def _giving(self, space: Values, first: Values, lanes: int, aim: Aim) -> tuple[Counts, Counts]:
        """Let rows give way a little: where they can only almost hold, no multiplier is large enough to hold them.

        A row gives way by `give` times its multiplier, which has to stay within the tolerance; less is tried until it does.
        """
        self._section(space, core.X)[:] = first
        give, (status, iterations) = 0.1 * aim.tolerance, _nothing(lanes)
        for _ in range(_GIVES):
            self._section(space, core.GIVE)[:] = give
            self._section(space, core.BARRIER)[:] = give
            outcome, more = self._run(space, lanes, sharp(0.1 * aim.tolerance))
            left = give * np.abs(_by_lane(self._section(space, core.MULTIPLIER), lanes)).max(axis=1, initial=0.0)
            iterations += more
            status[:] = np.where(left <= 0.8 * aim.tolerance, outcome, Status.STALLED)
            if (status == Status.CONVERGED).all():
                break
            give *= 0.1
        self._section(space, core.GIVE)[:] = 0.0
        self._section(space, core.BARRIER)[:] = 0.0
        return status, iterations

    def _scattered(self, space: Values, first: Values, lanes: int, aim: Aim) -> tuple[Counts, Counts]:
        """Go on beside the point where it stopped."""
        _scatter(self._section(space, core.X))
        return self._run(space, lanes, aim)

    def _from_zero(self, space: Values, first: Values, lanes: int, aim: Aim) -> tuple[Counts, Counts]:
        """Start from nothing: noise is the worst start for transport laws, zero often the best."""
        x = self._section(space, core.X)
        x[:] = 0.0
        _scatter(x)
        return self._run(space, lanes, aim)

    def _restored(self, space: Values, first: Values, lanes: int, aim: Aim) -> tuple[Counts, Counts]:
        """Lower the violation alone from û; go on from where a law holds, or report that nothing lowers it further."""
        self._section(space, core.X)[:] = first
        live, status, iterations = _blank(space, lanes)
        code, one = self.system.program.code, self.prepared
        restore_tiles(
            code, one.frame, one.schedule, one.signs, aim.tolerance, ITERATIONS, 0, len(space), live, space, self.at, status,
            iterations,
        )  # fmt: skip
        found = status.ravel()[:lanes]
        lawful = np.flatnonzero(found == Status.CONVERGED)
        if len(lawful):
            again = _lanes(space, lawful)
            if self.crowded:
                outcome, more = self._barrier(again, np.array(self._section(again, core.X)), len(lawful), aim)
            else:
                outcome, more = self._run(again, len(lawful), aim)
            _put_lanes(space, lawful, again, np.arange(len(lawful)))
            found[lawful], iterations.ravel()[lawful] = outcome, iterations.ravel()[lawful] + more
        return found, iterations.ravel()[:lanes]

    def _run(
        self, space: Values, lanes: int, aim: Aim, limit: int = ITERATIONS, trials: int = _MANY
    ) -> tuple[Counts, Counts]:
        """Iterate on the first `lanes` lanes of a space; give their statuses and iterations."""
        live, status, iterations = _blank(space, lanes)
        settings = core.Settings(*aim, limit, trials)
        code, one = self.system.program.code, self.prepared
        solve_tiles(
            code, one.frame, one.schedule, one.signs, settings, 0, len(space), live, space, self.at, status, iterations
        )
        return status.ravel()[:lanes], iterations.ravel()[:lanes]

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
            (core.BARRIER,): m,
            (core.GIVE,): 1,
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


def _blank(space: Values, lanes: int) -> tuple[npt.NDArray[np.bool_], Counts, Counts]:
    """Make (tiles, LANES) arrays: which lanes hold a sample, statuses, iterations."""
    shape = (len(space), LANES)
    live = np.zeros(shape, bool)
    live.ravel()[:lanes] = True
    return live, np.empty(shape, np.int64), np.empty(shape, np.int64)


def _nothing(lanes: int) -> tuple[Counts, Counts]:
    return np.full(lanes, int(Status.STALLED), np.int64), np.zeros(lanes, np.int64)


def _by_lane(part: Values, lanes: int) -> Values:
    """See a section as (lanes, packs)."""
    packs = part.shape[1] // LANES
    return part.reshape(len(part), packs, LANES).transpose(0, 2, 1).reshape(-1, packs)[:lanes]


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
