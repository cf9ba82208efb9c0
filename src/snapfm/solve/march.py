"""Marching: solve for the unknowns that blocks of rows determine, step by step, and find their multipliers backwards.

A stage of the plan, between substitutions and iterations (math.md, "Reduction"). Each step is a square system: small blocks go
through kernels.march, eight samples at once, with LU factors that are kept from step to step while they contract; large ones, and
what fails there, are systems like any other (solve.step_solver). A sample that gets stuck at a step is tried once more with all
steps together. Time is linear in the number of steps, and the factors of one step are in memory. Must not import solve.newton.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Index, Values
from snapfm.compile.derivatives import Rows
from snapfm.compile.lower.tape import Tape, Unlowerable
from snapfm.compile.program import build_program
from snapfm.errors import Status
from snapfm.kernels.layout import HOLDS
from snapfm.kernels.march import FAILED, OUT_OF_ITERATIONS
from snapfm.kernels.threads import Deadline
from snapfm.linear import Solver
from snapfm.reduce.march import March, MarchStep
from snapfm.solve.stage import Determined, Ended, LinearState, Stage, State
from snapfm.solve.step_solver import RESCUED_ROWS, StepSolver, StepTiles, share, square_part
from snapfm.solve.system import Part
from snapfm.solve.tiles import AttemptOutcome
from snapfm.text import plural

_KEPT = 4  # structures whose factors are kept from step to step; with more, as for coefficients that change, none are


class Marching(Stage):
    """Prepared for the march of a reduction. It never changes; a call's state is a `MarchState`."""

    def __init__(self, number: int, march: March, tape: Tape, rows: csr_array, linear: Solver | None) -> None:
        self.number, self.march = number, march
        self._tape, self._rows, self._linear = tape, rows, linear
        self.solvers = [StepSolver(square, linear) for square in march.squares]
        self._coupled: Coupled | None = None

    def __len__(self) -> int:
        return len(self.march)

    @property
    def keeps(self) -> bool:
        """Whether factors of all structures are kept from step to step; else only those of the step before."""
        return len(self.solvers) <= _KEPT

    @property
    def parts(self) -> list[Part]:
        """The steps that are solved as systems, whatever the input is."""
        return [one.part for one in self.solvers if one.structure is None]

    @property
    def determined(self) -> Sequence[Determined]:
        """The unknowns of every step."""
        return [Determined(step.rows, step.unknowns, True) for step in self.march.steps]

    def bytes(self, samples: int) -> float:
        """Predict the memory of the factors that a piece of so many samples keeps."""
        each = [one.bytes(samples) for one in self.solvers]
        return sum(part.bytes(samples) for part in self.parts) + (sum(each) if self.keeps else max(each))

    def solve(self, state: State, ended: Ended) -> None:
        """Solve all steps. Written: state's u, ended."""
        assert state.kept is not None
        state.kept[self.number] = walk = MarchState(self, len(state.u))
        outcome = walk.solve(state)
        ended.status[:], ended.iterations[:] = outcome.status, outcome.iterations

    def pull(self, state: State, rest: Values) -> None:
        """Find the multipliers of all steps, last first. Written: state's multipliers, rest."""
        assert state.kept is not None

        def pull(rows: Rows, index: Index) -> None:
            rows.pull(index, state.u, state.params, state.multipliers, rest)

        walk: MarchState = state.kept[self.number]
        walk.determine(state.u, state.params, state.multipliers, rest, state.deadline, pull)

    def linear(self, at: LinearState) -> None:
        """Hold the unknowns. Written: w."""
        at.w[:, self.march.unknowns()] = 0.0

    def pull_linear(self, at: LinearState) -> None:
        """Find the ν of all steps, last first. Written: ν, rest, by_params."""
        walk = MarchState(self, len(at.u))
        walk.determine(at.u, at.params, at.nu, at.rest, at.deadline, at.pull)

    def describe(self) -> str:
        """Say how many unknowns are solved for, and in how many steps."""
        march = self.march
        sizes = np.concatenate([np.diff(march.squares[step.square].starts) for step in march.steps])
        return (
            f"march: {plural(len(march.unknowns()), 'unknown')} determined in {plural(len(march), 'step')}, one after the "
            f"other: {plural(len(sizes), 'block')} of at most {plural(int(sizes.max()), 'row')}"
        )

    def coupled(self) -> Coupled | None:
        """Prepare all steps together as one system, at first use; None where that would take too long, or is one step."""
        unknowns = self.march.unknowns()
        if len(self.march) < 2 or len(unknowns) > RESCUED_ROWS:
            return None
        if self._coupled is None:
            try:
                program = build_program(self._tape, csr_array(self._rows[self.march.rows()]), unknowns)
            except Unlowerable:  # derivatives of all steps together are too much to write out
                return None
            own = np.searchsorted(program.unknowns, unknowns)
            self._coupled = Coupled(square_part(program, own, self._linear), program.unknowns, program.params)
        return self._coupled

    def steps(self, count: int) -> tuple[MarchStep, ...]:
        """Return the steps to solve; for no samples one of each structure, which compiles what the others need."""
        if count:
            return self.march.steps
        return tuple({step.square: step for step in self.march.steps}.values())


@dataclass(frozen=True)
class Coupled:
    """All steps as one system, and the unknowns and params that it reads."""

    part: Part
    inputs: Index
    params: Index


class MarchState:
    """One call: the factors that its samples keep, and which samples got through."""

    def __init__(self, marching: Marching, count: int) -> None:
        self._marching, self._steps, self._solvers = marching, marching.steps(count), marching.solvers
        self._count, self.through = count, np.ones(count, bool)
        self._kept: dict[int, StepTiles | None] = {}

    def _tiles(self, number: int) -> StepTiles | None:
        """Return the factors of one structure; None if it is solved as a system."""
        if number not in self._kept:
            if not self._marching.keeps:
                self._kept.clear()
            structure = self._solvers[number].structure
            self._kept[number] = None if structure is None else StepTiles(structure, self._count)
        return self._kept[number]

    def solve(self, state: State) -> AttemptOutcome:
        """Solve all steps; the iterations of a sample are the most that a step took. Written: state's u."""
        count = len(state.u)
        status, iterations = np.full(count, int(Status.CONVERGED)), np.ones(count, np.int64)
        earlier: dict[int, list[MarchStep]] = {}  # the last two steps of each structure
        unique = True  # no earlier step can have another solution
        for step in self._steps:
            if count and not self.through.any():
                break
            if state.deadline.over:
                status[self.through], self.through[:] = int(Status.ITERATION_LIMIT), False
                break
            tiles, known = self._tiles(step.square), earlier.get(step.square, [])
            if tiles is None:
                failed, used = self._newton(step, known, state)
            else:
                ended, used = tiles.solve(step, state, self.through)
                failed = np.flatnonzero((ended == FAILED) | (ended == OUT_OF_ITERATIONS))
            if len(failed):
                self._rescue(step, failed, state, status, used)
                if not unique:  # another solution of an earlier step might have gone on
                    status[failed[status[failed] == Status.INFEASIBLE]] = int(Status.STALLED)
            iterations = np.maximum(iterations, used)
            unique &= self._solvers[step.square].square.affine
            self.through = status == Status.CONVERGED
            earlier[step.square] = [*known[-1:], step]
        self._couple(np.flatnonzero(status == Status.STALLED), state, status, iterations)
        return AttemptOutcome(status, iterations, np.full(count, HOLDS))

    def _newton(self, step: MarchStep, known: list[MarchStep], state: State) -> tuple[Index, Index]:
        """Iterate on a step as a system, from û, the step before or what continues the two before.

        Return the samples that failed, and iterations. Written: state's u.
        """
        solver, u, live = self._solvers[step.square], state.u, np.flatnonzero(self.through)
        square, used = solver.square, np.zeros(len(u), np.int64)
        starts = [state.u_hat[np.ix_(live, step.unknowns)]]
        if known and len(square.before) and not square.affine:
            before = [u[np.ix_(live, one.unknowns)] for one in known]
            starts += [before[-1], *(2.0 * before[-1] - one for one in before[:-1])]
        inputs, outside = u[np.ix_(live, step.inputs)], state.params[np.ix_(live, step.params)]
        begin = solver.begin(starts, inputs, outside)
        found, used[live] = solver.iterate(begin, inputs, outside, state, share(state.limit), False)
        u[np.ix_(live, step.unknowns)] = inputs[:, square.own]
        return live[found != Status.CONVERGED], used

    def _rescue(self, step: MarchStep, failed: Index, state: State, status: Index, used: Index) -> None:
        """Make the attempts that serve all systems on samples that failed, from û. Written: state's u, status, used."""
        solver, u = self._solvers[step.square], state.u
        for i in failed:  # one by one: each has iterations of its own left
            left = state.limit - int(used[i])
            inputs, outside = u[i][None, step.inputs], state.params[i][None, step.params]
            status[i] = int(Status.ITERATION_LIMIT if left < 1 or state.deadline.over else Status.STALLED)
            others = np.delete(inputs, solver.square.own)
            usable = solver.square.size <= RESCUED_ROWS and not solver.square.affine
            usable &= bool(np.isfinite(others).all() and np.isfinite(outside).all())
            if status[i] != Status.STALLED or not usable:
                continue
            wanted = state.u_hat[i, step.unknowns]
            begin = np.where(np.isfinite(wanted), wanted, 0.0)[None]
            inputs[:, solver.square.own] = begin
            ended, more = solver.iterate(begin, inputs, outside, state, left, True)
            status[i], used[i] = ended[0], used[i] + more[0]
            u[i, step.unknowns] = inputs[0, solver.square.own]

    def _couple(self, failed: Index, state: State, status: Index, iterations: Index) -> None:
        """Solve all steps together for samples that got stuck: an earlier step may have another solution, that goes on.

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
                inputs.copy(), inputs, state.params[[i]][:, coupled.params], np.zeros((1, rows)), state.stopping, None,
                left, state.deadline,
            )  # fmt: skip
            ended = part.solve(own)
            iterations[i] += ended.iterations[0]
            status[i] = ended.status[0]
            if status[i] == Status.CONVERGED:
                u[i, coupled.inputs] = inputs[0]
        self.through = status == Status.CONVERGED

    def determine(
        self, u: Values, params: Values, multipliers: Values, rest: Values, deadline: Deadline,
        pull: Callable[[Rows, Index], None],
    ) -> None:  # fmt: skip
        """Find the multipliers of all steps, last first; `pull` adds what they pull to `rest`. Written: multipliers, rest."""
        if len(u) and not self.through.any():
            return
        for step in reversed(self._steps):
            solver, tiles, live = self._solvers[step.square], self._tiles(step.square), np.flatnonzero(self.through)
            if tiles is not None:
                live = tiles.determine(step, u, params, multipliers, rest, self.through)
            if len(live):
                inputs, outside = u[np.ix_(live, step.inputs)], params[np.ix_(live, step.params)]
                wanted = -rest[np.ix_(live, step.unknowns)]
                multipliers[np.ix_(live, step.rows)] = solver.multipliers(wanted, inputs, outside, deadline)
            pull(Rows(solver.square.program, step.inputs[None], step.params[None]), step.rows[None])
