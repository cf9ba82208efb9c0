"""Part: one System of the reduction, prepared for the compiled loops, and stop 6 of the walk: batch (b, n) to tiles and back.

Owns the memory of the iterations and lends it to one call at a time. Must not import solve.newton.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.derivatives import Rows
from snapfm.kernels import layout as core
from snapfm.kernels.callback import Callback
from snapfm.kernels.coupled import SCALARS
from snapfm.kernels.factor.ldl import TALLY
from snapfm.kernels.lanes import enter_units, fill, gather, leave_units, scatter
from snapfm.kernels.operations import LANES, SPILL
from snapfm.kernels.run_length import RunLengthMatrix, join, products_to_tiles, tiles_to_field
from snapfm.kernels.threads import Deadline
from snapfm.linear import Lanes, Solver, Workspace
from snapfm.linear.bordered import PreparedBordered
from snapfm.reduce.kinked_system import KinkedRows, kinked_system
from snapfm.reduce.reduce import System
from snapfm.solve.attempts.order import LONGEST
from snapfm.solve.budget import certified
from snapfm.solve.infeasible import Proof
from snapfm.solve.kinks.generalized import NO_WEIGHT, Kinked
from snapfm.solve.kkt import KKT, prepare
from snapfm.solve.linearized import solve_linearized
from snapfm.solve.memory import Workspaces
from snapfm.solve.nearest import Nearest, solve_nearest
from snapfm.solve.nullspace import NullSpace
from snapfm.solve.stage import LinearState, State
from snapfm.solve.tiles import AttemptOutcome, Tiles, tiles_for

if TYPE_CHECKING:
    from snapfm.solve.opaque import LawEvaluator

_PACKS_A_SECOND = 8e8  # least speed of one thread, from profiles of the six problems
_COUPLED = 4  # factorizations that take as long as one with conjugate gradients
_ON_KINKS = (
    2_000  # packs of arithmetic per unknown, row and kink of an augmented matrix: of a grid of some thousand points
)
_CALLBACK = 4_000_000  # packs of arithmetic that take as long as one callback, about 5 ms


class Part:
    """Prepared for one system; `lower` and `upper` are the limits of all unknowns.

    `lengths` are the unknowns that are the length y₂ of an aggregate; those of this System are kept. `kinks` is the System with
    its kinks as smooth pieces, if it has any.
    """

    def __init__(
        self, system: System, lower: Values, upper: Values, lengths: Index, solver: Solver,
        kinks: KinkedRows | None = None,
    ) -> None:  # fmt: skip
        self.system, self.kinks = system, kinks
        self._kinked: Kinked | None = None
        self.lengths: Index = np.intersect1d(system.unknowns, lengths)
        self.rows = Rows(system.program, system.inputs, system.params)
        self.lower, self.upper = lower[None], upper[None]
        bounded = np.isfinite(lower[system.unknowns]) | np.isfinite(upper[system.unknowns])
        self.kkt: KKT = prepare(system, bool(bounded.any()), solver)
        self.inequalities = bool(self.kkt.frame.mixed or self.kkt.frame.bounded)
        bordered = self.kkt.linear if isinstance(self.kkt.linear, PreparedBordered) and system.quadratic else None
        useful = bordered is not None and len(bordered.border) > 0
        self.nullspace = NullSpace(system, bordered, self.rows.outside) if bordered is not None and useful else None
        self.nearest = None if len(self.lengths) else Nearest.of(system, bool(bounded.any()))  # or Iterate knows
        self.at = self._sections()
        self._packs = (self.at // LANES).tolist()
        self.eliminated = _eliminated(system)
        self.spaces: Workspaces[Values] = Workspaces(self._space)
        self.scratch: Workspaces[Values] = Workspaces(self.new_scratch)
        self._factors: Workspaces[Workspace] = Workspaces(self.kkt.linear.workspace)
        self._proof = Proof(system)

    def kinked(self) -> Kinked:
        """Return the part with its kinks as smooth pieces, made at first use: threads that meet here each make one."""
        made = self._kinked
        if made is None:
            assert self.kinks is not None
            nothing = np.zeros(0, np.int64)
            spec = kinked_system(self.kinks)
            own = Part(spec.system, self.lower[0], self.upper[0], nothing, Lanes())
            self._kinked = made = Kinked(spec, own, self, self.kinks.columns)
        return made

    def _with_kinks(self, weights: Values | None) -> Kinked | None:
        """Return the part with its kinks as smooth pieces, if any sample has `weights` (b, kinks of the plan) for these."""
        if weights is None or self.kinks is None or not (weights[:, self.kinks.columns] != NO_WEIGHT).any():
            return None
        return self.kinked()

    def seconds(self, samples: int, limit: int, opaque: bool) -> float:
        """Estimate the longest time of one compiled call on so many samples."""
        program = self.system.program
        packs = 40 * program.operations + 20 * self.kkt.entries + LANES * _CALLBACK * opaque
        packs += 30 * (program.pattern.nnz + program.pattern.columns + program.pattern.rows)
        once = packs / _PACKS_A_SECOND + (_COUPLED if self.kkt.frame.coupled else 1) * self.kkt.seconds()
        return once * tiles_for(samples * self.system.parts) * LONGEST * limit

    def bytes(self, samples: int) -> float:
        """Predict the memory of a piece of so many samples: tiles, twice, as attempts copy lanes; scratch; factors."""
        lanes = samples * self.system.parts
        numbers = 2 * tiles_for(lanes) * int(self.at[core.KEPT]) + int(self.at[-1])
        return 8.0 * numbers + self.kkt.bytes(min(lanes, LANES))

    @property
    def seconds_on_kinks(self) -> float:
        """Estimate the longest time of a compiled call in the search for answers on kinks, per sample and iteration."""
        size = self.system.program.pattern.columns + self.system.program.pattern.rows + 2 * self.kink_count
        return self.system.parts * _ON_KINKS * size * LONGEST / _PACKS_A_SECOND if self.kink_count else 0.0

    def solve(self, state: State) -> AttemptOutcome:
        """Iterate from u to the feasible point nearest to û; return how every sample ended.

        Written: state's u (this part's unknowns), multipliers (its rows).
        """
        if self.nullspace is not None and len(state.u):
            return self.nullspace.solve_state(state, self._in_tiles)
        return self._in_tiles(state)

    def _in_tiles(self, state: State) -> AttemptOutcome:
        lanes = len(state.u) * self.system.parts
        with self.spaces.lend(tiles_for(lanes)) as space:
            return self._solve(Tiles(space, self.at, lanes), state)

    def _fill(self, tiles: Tiles, u: Values, params: Values, target: Values) -> None:
        """Write the point, what the rows read, and û or what takes its place. Written: tiles."""
        system, space, at = self.system, tiles.space, self._packs
        fill(system.inputs, self.rows.outside, u, params, at[core.CELLS], space)
        gather(u, system.unknowns, at[core.X], space)
        gather(target, system.unknowns, at[core.TARGET], space)
        products_to_tiles(self.eliminated, system.parts, system.rows.shape[1], target, at[core.SHIFT], space)
        tiles.section(core.JACOBIAN)[:] = np.repeat(system.program.constants, LANES)
        if self.kkt.frame.bounded:
            for bound, number in ((self.lower, core.LOWER), (self.upper, core.UPPER)):
                gather(np.repeat(bound, len(u), axis=0), system.unknowns, at[number], space)

    def _empty(self, tiles: Tiles, u: Values, multipliers: Values) -> None:
        """Read x and multipliers, and what follows for eliminated unknowns. Written: u, multipliers."""
        system, space, at = self.system, tiles.space, self._packs
        scatter(space, at[core.X], system.unknowns, u)
        tiles_to_field(self.eliminated, system.parts, system.rows.shape[1], space, at[core.MULTIPLIER], -1.0, u)
        scatter(space, at[core.MULTIPLIER], system.rows, multipliers)

    def _solve(self, tiles: Tiles, state: State) -> AttemptOutcome:
        space, count = tiles.space, len(state.u)
        self._fill(tiles, state.u, state.params, state.u_hat)
        if state.warm is None:
            tiles.section(core.MULTIPLIER)[:] = 0.0
        else:
            gather(state.warm, self.system.rows, self._packs[core.MULTIPLIER], space)
        if self.kinks is not None:
            tiles.section(core.WEIGHT)[:] = NO_WEIGHT
        scaled = enter_units(space, self.at)
        ended = self._iterate(tiles, state)
        if scaled:
            leave_units(space, self.at)
        self._empty(tiles, state.u, state.multipliers)
        weights = None
        if self.kinks is not None:
            weights = tiles.by_lane(core.WEIGHT).reshape(count, self.system.parts, self.kink_count)
            weights = weights if (weights != NO_WEIGHT).any() else None
        return ended.joined(count, self.system.parts, weights)

    def linear(self, at: LinearState) -> None:
        """Solve the linearized problem of this part at its answers. Written: w (this part's unknowns), ν (its rows)."""
        kinked, lanes = self._with_kinks(at.weights), len(at.u) * self.system.parts
        if kinked is not None:
            kinked.linear(at)
            return
        if not lanes:
            return
        with self.spaces.lend(tiles_for(lanes)) as space:
            tiles = Tiles(space, self.at, lanes)
            self._fill(tiles, at.u, at.params, at.g)
            gather(at.multipliers, self.system.rows, self._packs[core.MULTIPLIER], space)
            tiles.section(core.UNIT)[:] = 1.0
            with self._loops(at.deadline, at.evaluator) as loops:
                solve_linearized(loops, tiles)
            tiles.section(core.BARRIER)[:] = 0.0  # as every call leaves it for the next
            self._empty(tiles, at.w, at.nu)

    def pull_linear(self, at: LinearState) -> None:
        """Add Jᵀν + Hw of this part's rows, for unknowns and params. Written: rest, by_params."""
        kinked = self._with_kinks(at.weights)
        if kinked is None:
            at.pull(self.rows, self.system.rows)
        else:
            kinked.pull_linear(at)

    def pull(self, u: Values, params: Values, multipliers: Values, rest: Values, weights: Values) -> None:
        """Add Jᵀλ of this part's rows to `rest`, with generalized slopes where there are `weights` (b, kinks of the plan)."""
        kinked = self._with_kinks(weights)
        if kinked is None:
            self.rows.pull(self.system.rows, u, params, multipliers, rest)
        else:
            kinked.pull(u, params, multipliers, rest, weights)

    @property
    def kink_count(self) -> int:
        """Number of kinks of one part."""
        return 0 if self.kinks is None else self.kinks.count

    def _iterate(self, tiles: Tiles, state: State) -> AttemptOutcome:
        """Make all attempts, with callbacks for this call alone."""
        stopping = state.stopping
        if self.inequalities:  # an unknown close to its bound has no certificate: iterate until it is at the bound
            stopping = certified(stopping.tolerance)
        with self._loops(state.deadline, state.evaluator) as loops:
            return solve_nearest(loops, tiles, stopping, state)

    @contextmanager
    def _loops(self, deadline: Deadline, evaluator: LawEvaluator | None) -> Iterator[Loops]:
        """Lend scratch memory, factors and callbacks to the compiled loops of one call."""
        code, frame = self.system.program.code, self.kkt.frame
        if evaluator is not None:
            code = code._replace(callback=evaluator.callback.address)
        with self.scratch.lend() as work:
            if self.kkt.fused:
                yield Loops(self, code, frame, deadline, work)
                return
            with self._factors.lend() as factors:
                callback = Callback(_factorization_callback(factors, self.at, self.kkt.entries, deadline.stop))
                yield Loops(self, code, frame._replace(callback=callback.address), deadline, work)
                callback.check()

    def prove_infeasible(self, tiles: Tiles, tolerance: float) -> Mask:
        """Mark the lanes, where restoration ended, for which it is proven that the laws cannot hold."""
        unit = tiles.by_lane(core.UNIT)[:, :1]
        rows, weights = unit * tiles.by_lane(core.RESIDUAL), tiles.by_lane(core.ROW_WEIGHT) ** 2
        cells = tiles.by_lane(core.CELLS)[:, :-SPILL]
        nothing = np.full((tiles.lanes, self.system.unknowns.shape[1]), np.inf)
        lower, upper = -nothing, nothing
        if self.kkt.frame.bounded:
            lower, upper = unit * tiles.by_lane(core.LOWER), unit * tiles.by_lane(core.UPPER)
        return self._proof.holds(cells, rows, weights, unit * tiles.by_lane(core.TARGET), lower, upper, tolerance)

    def _space(self, tiles: int) -> Values:
        return np.zeros((tiles, int(self.at[core.KEPT])))

    def new_scratch(self) -> Values:
        """Make the scratch memory of a tile."""
        return np.zeros(int(self.at[-1]))

    def _sections(self) -> Index:
        """Return where each section of a tile's memory begins."""
        program, plan, frame = self.system.program, self.kkt.schedule, self.kkt.frame
        unknowns, rows = program.pattern.columns, program.pattern.rows
        return core.tile_starts({
            "cells": program.cells, "entries": program.pattern.nnz, "unknowns": unknowns, "rows": rows,
            "limits": unknowns if frame.bounded else 0, "slacks": rows if frame.mixed else 0,
            "one": 1, "two": 2, "kinks": self.kink_count, "tally": TALLY,
            "operations": program.operations, "partials": 5 * program.operations, "hessian": program.hessian.nnz,
            "slots": program.slots, "slots_and_one": program.slots + 1,
            "matrix": self.kkt.entries, "right_side": unknowns + rows if frame.augmented else rows,
            "factor": plan.packs, "pivots": plan.slots,
            "conjugate_unknowns": unknowns if frame.coupled else 0, "conjugate_rows": rows if frame.coupled else 0,
            "scalars": SCALARS if frame.coupled else 0, "conjugate_one": 1 if frame.coupled else 0,
        })  # fmt: skip


class Loops:
    """The compiled loops of a part during one call."""

    def __init__(self, part: Part, code: Any, frame: Any, deadline: Deadline, work: Values) -> None:
        self.part, self.deadline, self._work = part, deadline, work
        self._read = (code, frame, part.kkt.schedule)

    def scratch(self, number: int) -> Values:
        """View a section of the scratch memory after the last tile: (lanes, packs)."""
        at = self.part.at
        return self._work[at[number] : at[number + 1]].reshape(-1, LANES).T

    def of(self, part: Part) -> Loops:
        """Return the loops of another part during the same call."""
        return Loops(part, part.system.program.code, part.kkt.frame, self.deadline, part.new_scratch())

    def run(self, kernel: Any, given: tuple[Any, ...], tiles: Tiles, written: tuple[Values | Index, ...]) -> None:
        """Run a kernel on all tiles; its compilation at first use is not counted."""
        if not kernel.overloads:
            with self.deadline.clock.paused():
                kernel(*self._read, *given, tiles.space[:0], tiles.at, self._work, *written)
        kernel(*self._read, *given, tiles.space, tiles.at, self._work, *written)


def _factorization_callback(factors: Workspace, at: Index, entries: int, stop: Index) -> Any:
    """Return a callback that factorizes and solves the running lanes of tiles with a workspace of any solver."""

    def serve(task: int, memory: int) -> None:
        tile = np.ctypeslib.as_array((ctypes.c_double * int(at[-1])).from_address(memory))
        if task == core.TO_FACTORIZE:
            matrix = tile[at[core.MATRIX] : at[core.MATRIX + 1]].reshape(entries, LANES)
            tally = tile[at[core.TALLY] : at[core.TALLY + 1]].reshape(-1, LANES)
            pivots = factors.factorize(matrix, tally[0] > 0.0, stop)
            tally[0], tally[1] = pivots.negative, pivots.weak
        else:
            right = tile[at[core.RHS] : at[core.RHS + 1]].reshape(-1, LANES)
            factors.solve(right)

    return serve


def _eliminated(system: System) -> RunLengthMatrix:
    """Join the linear entries of eliminated unknowns for all parts: row r of part k becomes row k·m + r."""
    entries, rows = system.linear.tocoo(), system.rows.shape[1]
    place = system.eliminated[:, entries.col].ravel()
    row = (rows * np.arange(system.parts)[:, None] + entries.row).ravel()
    return join(place, row, np.tile(entries.data, system.parts))
