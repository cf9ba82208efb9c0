"""Marching: solve for the unknowns that blocks of rows determine, stage by stage, and find their multipliers backwards.

A stage of the plan, between substitutions and iterations (math.md, "Reduction"). Each stage is a square system: Newton's
method with a line search per block, on a sparse LU that is kept from stage to stage while it contracts. Small blocks go through
kernels.march, eight samples at once. Large ones, and what fails there, have the same method with the pivoting of SuperLU, from
several starts, and then the attempts that serve coupled systems (solve.stage_newton, solve.stage_solver). A sample that gets
stuck at a stage is tried once more with all stages together. Time is linear in the number of stages, and the factors of one stage
are in memory. Must not import solve.newton.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import SuperLU

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.derivatives import Rows
from snapfm.compile.lower.tape import Tape, Unlowerable
from snapfm.compile.program import build_program
from snapfm.errors import Status
from snapfm.kernels.layout import HOLDS
from snapfm.kernels.march import (
    FAILED,
    NOT_BEGUN,
    OUT_OF_ITERATIONS,
    SOLVED,
    Rule,
    Structure,
    determine_stage,
    solve_stage,
)
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import Deadline
from snapfm.linear import Automatic
from snapfm.reduce.march import March, MarchStage
from snapfm.reduce.reduce import System
from snapfm.solve.budget import Stopping
from snapfm.solve.stage import Determined, Ended, LinearState, Stage, State
from snapfm.solve.stage_newton import StageNewton, share
from snapfm.solve.stage_solver import ENTRY_BYTES, RESCUED_ROWS, StageSolver
from snapfm.solve.system import Part
from snapfm.solve.tiles import AttemptOutcome
from snapfm.text import plural

_KEPT = 4  # structures whose factors are kept from stage to stage; with more, as for coefficients that change, none are
_FACTOR_MEMORY = 400e6  # bytes of factors that the samples of one piece may keep


class Marching(Stage):
    """Prepared for the march of a reduction. It never changes; a call's state is a `MarchState`."""

    def __init__(self, number: int, march: March, tape: Tape, rows: csr_array) -> None:
        self.number, self.march = number, march
        self._tape, self._rows = tape, rows
        self.solvers = [StageSolver(square) for square in march.squares]
        self._coupled: Coupled | None = None

    def __len__(self) -> int:
        return len(self.march)

    @property
    def keeps(self) -> bool:
        """Whether factors of all structures are kept from stage to stage; else only those of the stage before."""
        return len(self.solvers) <= _KEPT

    @property
    def samples(self) -> int:
        """Number of samples whose factors fit into the memory of one piece."""
        large = [one.square.plan.fill for one in self.solvers if one.structure is None and not one.square.affine]
        bytes_each = ENTRY_BYTES * (sum(large) if self.keeps else max(large, default=0))
        return max(1, int(_FACTOR_MEMORY / max(bytes_each, 1.0)))

    @property
    def determined(self) -> Sequence[Determined]:
        """The unknowns of every stage."""
        return [Determined(stage.rows, stage.unknowns, True) for stage in self.march.stages]

    def bytes(self, samples: int) -> float:
        """Predict the memory of the factors that a piece of so many samples keeps."""
        each = [one.bytes(samples) for one in self.solvers]
        return sum(each) if self.keeps else max(each)

    def solve(self, state: State, ended: Ended) -> None:
        """Solve all stages. Written: state's u, ended."""
        assert state.kept is not None
        state.kept[self.number] = walk = MarchState(self, len(state.u))
        outcome = walk.solve(state)
        ended.status[:], ended.iterations[:] = outcome.status, outcome.iterations

    def pull(self, state: State, rest: Values) -> None:
        """Find the multipliers of all stages, last first. Written: state's multipliers, rest."""
        assert state.kept is not None

        def pull(rows: Rows, index: Index) -> None:
            rows.pull(index, state.u, state.externals, state.multipliers, rest)

        state.kept[self.number].determine(state.u, state.externals, state.multipliers, rest, pull)

    def linear(self, at: LinearState) -> None:
        """Hold the unknowns. Written: w."""
        at.w[:, self.march.unknowns()] = 0.0

    def pull_linear(self, at: LinearState) -> None:
        """Find the ν of all stages, last first. Written: ν, rest, by_params."""
        walk = MarchState(self, len(at.u))
        walk.determine(at.u, at.externals, at.nu, at.rest, at.pull)

    def describe(self) -> str:
        """Say how many unknowns are solved for, and in how many stages."""
        march = self.march
        sizes = np.concatenate([np.diff(march.squares[stage.square].starts) for stage in march.stages])
        return (
            f"march: {plural(len(march.unknowns()), 'unknown')} determined in {plural(len(march), 'stage')}, one after the "
            f"other: {plural(len(sizes), 'block')} of at most {plural(int(sizes.max()), 'row')}"
        )

    def coupled(self) -> Coupled | None:
        """Prepare all stages together as one system, at first use; None where that would take too long, or is one stage."""
        unknowns = self.march.unknowns()
        if len(self.march) < 2 or len(unknowns) > RESCUED_ROWS:
            return None
        if self._coupled is None:
            try:
                program = build_program(self._tape, csr_array(self._rows[self.march.rows()]), unknowns)
            except Unlowerable:  # derivatives of all stages together are too much to write out
                return None
            own = np.searchsorted(program.unknowns, unknowns)
            infinite = np.full(len(program.unknowns), np.inf)
            part = Part(System.from_program(program, own), -infinite, infinite, np.zeros(0, np.int64), Automatic())
            self._coupled = Coupled(part, program.unknowns, program.params)
        return self._coupled

    def stages(self, count: int) -> tuple[MarchStage, ...]:
        """Return the stages to solve; for no samples one of each structure, which compiles what the others need."""
        if count:
            return self.march.stages
        return tuple({stage.square: stage for stage in self.march.stages}.values())


@dataclass(frozen=True)
class Coupled:
    """All stages as one system, and the unknowns and params that it reads."""

    part: Part
    inputs: Index
    params: Index


class MarchState:
    """One call: the factors that its samples keep, and which samples got through."""

    def __init__(self, marching: Marching, count: int) -> None:
        self._marching, self._stages, self._solvers = marching, marching.stages(count), marching.solvers
        self._count, self.through = count, np.ones(count, bool)
        self._kept: dict[int, tuple[list[SuperLU | None], _Tiles | None]] = {}

    def _state(self, number: int) -> tuple[list[SuperLU | None], _Tiles | None]:
        """Return the factors of one structure: of large blocks or failed samples, and of tiles."""
        if number not in self._kept:
            if not self._marching.keeps:
                self._kept.clear()
            structure = self._solvers[number].structure
            tiles = None if structure is None else _Tiles(structure, self._count)
            self._kept[number] = [None] * self._count, tiles
        return self._kept[number]

    def solve(self, state: State) -> AttemptOutcome:
        """Solve all stages; the iterations of a sample are the most that a stage took. Written: state's u."""
        start, u, externals = state.u_hat, state.u, state.externals
        stopping, limit, deadline = state.stopping, state.limit, state.deadline
        count = len(u)
        status, iterations = np.full(count, int(Status.CONVERGED)), np.ones(count, np.int64)
        earlier: list[list[Values]] = [[] for _ in self._solvers]  # the last two solutions of each structure
        unique = True  # no earlier stage can have another solution
        for stage in self._stages:
            live = np.flatnonzero(self.through)
            if count and not len(live):
                break
            if deadline.over:
                status[live], self.through[live] = int(Status.ITERATION_LIMIT), False
                break
            solver, known = self._solvers[stage.square], earlier[stage.square]
            factors, tiles = self._state(stage.square)
            if tiles is not None:
                ended, used = tiles.solve(stage, start, u, externals, stopping, limit, deadline, self.through)
                iterations = np.maximum(iterations, used)
                live = np.flatnonzero((ended == FAILED) | (ended == OUT_OF_ITERATIONS))
            else:
                used = np.zeros(count, np.int64)
            if len(live):
                task = StageNewton(
                    solver, factors, live, u[np.ix_(live, stage.inputs)],
                    externals[np.ix_(live, stage.params)], used[live], stopping, limit, deadline,
                )  # fmt: skip
                found, used = task.run(start[np.ix_(live, stage.unknowns)], [one[live] for one in known])
                if not unique:  # another solution of an earlier stage might have gone on
                    found[found == Status.INFEASIBLE] = int(Status.STALLED)
                status[live] = found
                iterations[live] = np.maximum(iterations[live], used)
                u[np.ix_(live, stage.unknowns)] = task.inputs[:, solver.square.own]
            unique &= solver.square.affine
            self.through = status == Status.CONVERGED
            if tiles is None:
                earlier[stage.square] = [*known[-1:], u[:, stage.unknowns]]
        self._couple(np.flatnonzero(status == Status.STALLED), state, status, iterations)
        return AttemptOutcome(status, iterations, np.full(count, HOLDS))

    def _couple(self, failed: Index, state: State, status: Index, iterations: Index) -> None:
        """Solve all stages together for samples that got stuck: an earlier stage may have another solution, that goes on.

        Written: their u, status, iterations.
        """
        coupled = self._marching.coupled() if len(failed) else None
        if coupled is None:
            return
        part, rows, u = coupled.part, coupled.part.system.rows.shape[1], state.u
        for i in failed:  # one by one: each has iterations of its own left
            left = state.limit - int(iterations[i])
            if left < 1 or state.deadline.over:
                continue
            inputs = np.where(np.isfinite(state.u_hat[i]), state.u_hat[i], 0.0)[None, coupled.inputs]
            determined = np.setdiff1d(np.arange(inputs.shape[1]), part.system.unknowns[0])
            inputs[:, determined] = u[i, coupled.inputs[determined]]  # by substitutions before the march
            own = State(
                inputs.copy(), inputs, state.externals[[i]][:, coupled.params], np.zeros((1, rows)), state.stopping, None,
                left, state.deadline,
            )  # fmt: skip
            ended = part.solve(own)
            iterations[i] += ended.iterations[0]
            status[i] = ended.status[0]
            if status[i] == Status.CONVERGED:
                u[i, coupled.inputs] = inputs[0]
        self.through = status == Status.CONVERGED

    def determine(
        self, u: Values, externals: Values, multipliers: Values, rest: Values, pull: Callable[[Rows, Index], None]
    ) -> None:
        """Find the multipliers of all stages, last first; `pull` adds what they pull to `rest`. Written: multipliers, rest."""
        if len(u) and not self.through.any():
            return
        for stage in reversed(self._stages):
            solver, (factors, tiles) = self._solvers[stage.square], self._state(stage.square)
            live = np.flatnonzero(self.through)
            if tiles is not None:
                live = tiles.determine(stage, u, externals, multipliers, rest, self.through)
            if len(live):
                inputs, outside = u[np.ix_(live, stage.inputs)], externals[np.ix_(live, stage.params)]
                entries = solver.rows.slopes(inputs, outside)
                for i, sample in enumerate(live.tolist()):
                    multipliers[sample, stage.rows], factors[sample] = solver.multipliers(
                        entries[i], -rest[sample, stage.unknowns], factors[sample]
                    )
            pull(Rows(solver.square.program, stage.inputs[None], stage.params[None]), stage.rows[None])


class _Tiles:
    """The state of one call for stages that kernels.march solves."""

    def __init__(self, structure: Structure, count: int) -> None:
        self._structure, self._known = structure, False
        self._have, self._past = np.zeros(count, bool), np.zeros((count, len(structure.before)))
        self._factors = np.empty((-(-count // LANES), structure.plan.packs * LANES))

    def solve(
        self, stage: MarchStage, start: Values, u: Values, externals: Values, stopping: Stopping, limit: int, deadline: Deadline,
        through: Mask,
    ) -> tuple[Index, Index]:  # fmt: skip
        """Solve one stage; return how each sample ended, and its iterations. Written: u."""
        ended, used = np.where(through, NOT_BEGUN, SOLVED), np.zeros(len(u), np.int64)
        polish = stopping.polish < 1.0 and not self._structure.constant
        rule = Rule(stopping.polish * stopping.tolerance, stopping.tolerance, polish, share(limit))
        read = (stage.inputs[None], stage.params[None], externals, stage.unknowns, start)
        solve_stage(
            self._structure,
            rule,
            *read,
            u,
            self._past,
            self._known,
            self._have,
            self._factors,
            deadline.stop,
            ended,
            used,
        )
        self._known = True
        return ended, used

    def determine(
        self, stage: MarchStage, u: Values, externals: Values, multipliers: Values, rest: Values, through: Mask
    ) -> Index:
        """Find the multipliers of one stage; return the samples that need pivoting. Written: multipliers."""
        ended = np.full(len(u), SOLVED)
        determine_stage(
            self._structure, stage.inputs[None], stage.params[None], externals, stage.unknowns, stage.rows, u, rest,
            through, self._have, self._factors, multipliers, ended,
        )  # fmt: skip
        return np.flatnonzero(ended == FAILED)
