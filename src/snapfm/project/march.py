"""Marching: solve for the unknowns that blocks of rows determine, stage by stage, and find their multipliers backwards.

Part of stop 4 of the walk, between substitutions and iterations (math.md, "Reduction"). Each stage is a square system: Newton's
method with a line search per block, on a sparse LU that is kept from stage to stage while it contracts. Small blocks go through
kernels.march, eight samples at once. Large ones, and what fails there, have the same method with the pivoting of SuperLU, from
several starts, and then the attempts that serve coupled systems. A sample that gets stuck at a stage is tried once more with all
stages together. Time is linear in the number of stages, and the factors of one
stage are in memory. Must not import project.newton.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import SuperLU, splu

from snapfm.arrays import Index, Mask, Values
from snapfm.errors import Status
from snapfm.kernels import batches
from snapfm.kernels.layout import HOLDS
from snapfm.kernels.lu import Elimination
from snapfm.kernels.march import (
    FAILED,
    HALVINGS,
    NOT_BEGUN,
    OUT_OF_ITERATIONS,
    REFINED,
    SOLVED,
    SOLVES,
    SUFFICIENT,
    USEFUL,
    Rule,
    Structure,
    determine_stage,
    solve_stage,
)
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import Turn
from snapfm.linear import Automatic
from snapfm.project.budget import Stopping
from snapfm.project.part import Batch, Part
from snapfm.project.tiles import Ended, tiles_for
from snapfm.structure.lowering.tape import Tape, Unlowerable
from snapfm.structure.march import March, MarchStage, Square, slopes_at
from snapfm.structure.program import Program, build_program
from snapfm.structure.reduce import System, lone_system

# A factor that reduces the residual to less than this share is kept. Newton's method gains about four digits with each new
# factor, so an old one has to gain as much in the time that a new one would take (see _keep).
_KEEP, _LEAST_KEEP, _DIGITS = 0.2, 1e-3, 4.0
_PIVOT = 0.1  # a diagonal pivot above this share of its column is taken: less fill than the largest pivot would cause
_SHARE = 0.2  # of a sample's iterations that one attempt from one start may use; most stages take 3 to 15 of 500
_RESCUED_ROWS = 4_000  # of a stage, beyond which the attempts for coupled systems would take minutes
_KEPT = 4  # structures whose factors are kept from stage to stage; with more, as for coefficients that change, none are
_FACTOR_MEMORY = 400e6  # bytes of factors that the samples of one piece may keep
_ENTRY_BYTES = 16.0  # of a factor: value, index and what SuperLU allocates beside them


class Marching:
    """Prepared for the march of a reduction. It never changes; a call's state is a `Walk`."""

    def __init__(self, march: March, tape: Tape, rows: csr_array, first_external: int) -> None:
        self.march, self._tape, self._rows, self._first_external = march, tape, rows, first_external
        self.solvers = [_Solver(square) for square in march.squares]
        self._coupled: Coupled | None = None

    def __len__(self) -> int:
        return len(self.march)

    @property
    def samples(self) -> int:
        """Number of samples whose factors fit into the memory of one piece."""
        large = [one.square.plan.fill for one in self.solvers if one.structure is None and not one.square.affine]
        bytes_each = _ENTRY_BYTES * (sum(large) if len(self.solvers) <= _KEPT else max(large, default=0))
        return max(1, int(_FACTOR_MEMORY / max(bytes_each, 1.0)))

    def bytes(self, samples: int) -> float:
        """Predict the memory of the factors that a piece of so many samples keeps."""
        each = [one.bytes(samples) for one in self.solvers]
        return sum(each) if len(each) <= _KEPT else max(each)

    def walk(self, count: int) -> Walk:
        """Begin a call on so many samples."""
        return Walk(self, count)

    def coupled(self) -> Coupled | None:
        """Prepare all stages together as one system, at first use; None where that would take too long, or is one stage."""
        unknowns = self.march.unknowns()
        if len(self.march) < 2 or len(unknowns) > _RESCUED_ROWS:
            return None
        if self._coupled is None:
            try:
                program = build_program(self._tape, csr_array(self._rows[self.march.rows()]), unknowns)
            except Unlowerable:  # derivatives of all stages together are too much to write out
                return None
            own = np.searchsorted(program.unknowns, unknowns)
            infinite = np.full(len(program.unknowns), np.inf)
            part = Part(lone_system(program, own), -infinite, infinite, 0, np.zeros(0, np.int64), Automatic())
            self._coupled = Coupled(part, program.unknowns, program.externals - self._first_external)
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
    externals: Index


class Walk:
    """One call: the factors that its samples keep, and which samples got through."""

    def __init__(self, marching: Marching, count: int) -> None:
        self._marching, self._stages, self._solvers = marching, marching.stages(count), marching.solvers
        self._count, self.through = count, np.ones(count, bool)
        self._kept: dict[int, tuple[list[SuperLU | None], _Tiles | None]] = {}

    def _state(self, number: int) -> tuple[list[SuperLU | None], _Tiles | None]:
        """Return the factors of one structure: of large blocks or failed samples, and of tiles."""
        if number not in self._kept:
            if len(self._solvers) > _KEPT:
                self._kept.clear()
            structure = self._solvers[number].structure
            tiles = None if structure is None else _Tiles(structure, self._count)
            self._kept[number] = [None] * self._count, tiles
        return self._kept[number]

    def solve(self, start: Values, u: Values, externals: Values, stopping: Stopping, limit: int, turn: Turn) -> Ended:
        """Solve all stages; the iterations of a sample are the most that a stage took. Written: u."""
        count = len(u)
        status, iterations = np.full(count, int(Status.CONVERGED)), np.ones(count, np.int64)
        earlier: list[list[Values]] = [[] for _ in self._solvers]  # the last two solutions of each structure
        unique = True  # no earlier stage can have another solution
        for stage in self._stages:
            live = np.flatnonzero(self.through)
            if count and not len(live):
                break
            if turn.over:
                status[live], self.through[live] = int(Status.ITERATION_LIMIT), False
                break
            solver, known = self._solvers[stage.square], earlier[stage.square]
            factors, tiles = self._state(stage.square)
            if tiles is not None:
                ended, used = tiles.solve(stage, start, u, externals, stopping, limit, turn, self.through)
                iterations = np.maximum(iterations, used)
                live = np.flatnonzero((ended == FAILED) | (ended == OUT_OF_ITERATIONS))
            else:
                used = np.zeros(count, np.int64)
            if len(live):
                task = _Task(
                    solver, factors, live, u[np.ix_(live, stage.inputs)],
                    externals[np.ix_(live, stage.externals)], used[live], stopping, limit, turn,
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
        self._couple(
            np.flatnonzero(status == Status.STALLED), start, u, externals, stopping, limit, turn, status, iterations
        )
        return Ended(status, iterations, np.full(count, HOLDS))

    def _couple(
        self, failed: Index, start: Values, u: Values, externals: Values, stopping: Stopping, limit: int, turn: Turn,
        status: Index, iterations: Index,
    ) -> None:  # fmt: skip
        """Solve all stages together for samples that got stuck: an earlier stage may have another solution, that goes on.

        Written: their u, status, iterations.
        """
        coupled = self._marching.coupled() if len(failed) else None
        if coupled is None:
            return
        part, rows = coupled.part, coupled.part.system.rows.shape[1]
        for i in failed:  # one by one: each has iterations of its own left
            left = limit - int(iterations[i])
            if left < 1 or turn.over:
                continue
            inputs = np.where(np.isfinite(start[i]), start[i], 0.0)[None, coupled.inputs]
            determined = np.setdiff1d(np.arange(inputs.shape[1]), part.system.unknowns[0])
            inputs[:, determined] = u[i, coupled.inputs[determined]]  # by substitutions before the march
            batch = Batch(inputs.copy(), externals[[i]][:, coupled.externals], stopping, None, left, turn)
            ended = part.solve(batch, inputs, np.zeros((1, rows)))
            iterations[i] += ended.iterations[0]
            status[i] = ended.status[0]
            if status[i] == Status.CONVERGED:
                u[i, coupled.inputs] = inputs[0]
        self.through = status == Status.CONVERGED

    def determine(self, u: Values, externals: Values, multipliers: Values, rest: Values) -> None:
        """Find the multipliers of all stages, last first, and add their Jᵀλ to `rest`. Written: multipliers, rest."""
        if len(u) and not self.through.any():
            return
        for stage in reversed(self._stages):
            solver, (factors, tiles) = self._solvers[stage.square], self._state(stage.square)
            live = np.flatnonzero(self.through)
            if tiles is not None:
                live = tiles.determine(stage, u, externals, multipliers, rest, self.through)
            if len(live):
                inputs, outside = u[np.ix_(live, stage.inputs)], externals[np.ix_(live, stage.externals)]
                entries = slopes_at(solver.square.program, inputs, outside)
                for i, sample in enumerate(live.tolist()):
                    multipliers[sample, stage.rows], factors[sample] = solver.multipliers(
                        entries[i], -rest[sample, stage.unknowns], factors[sample]
                    )
            _pull(solver.square, stage, u, externals, multipliers, rest)


class _Tiles:
    """The state of one call for stages that kernels.march solves."""

    def __init__(self, structure: Structure, count: int) -> None:
        self._structure, self._known = structure, False
        self._have, self._past = np.zeros(count, bool), np.zeros((count, len(structure.before)))
        self._factors = np.empty((-(-count // LANES), structure.plan.packs * LANES))

    def solve(
        self, stage: MarchStage, start: Values, u: Values, externals: Values, stopping: Stopping, limit: int, turn: Turn,
        through: Mask,
    ) -> tuple[Index, Index]:  # fmt: skip
        """Solve one stage; return how each sample ended, and its iterations. Written: u."""
        ended, used = np.where(through, NOT_BEGUN, SOLVED), np.zeros(len(u), np.int64)
        polish = stopping.polish < 1.0 and not self._structure.constant
        rule = Rule(stopping.polish * stopping.tolerance, stopping.tolerance, polish, _share(limit))
        read = (stage.inputs[None], stage.externals[None], externals, stage.unknowns, start)
        solve_stage(
            self._structure, rule, *read, u, self._past, self._known, self._have, self._factors, turn.stop, ended, used
        )
        self._known = True
        return ended, used

    def determine(
        self, stage: MarchStage, u: Values, externals: Values, multipliers: Values, rest: Values, through: Mask
    ) -> Index:
        """Find the multipliers of one stage; return the samples that need pivoting. Written: multipliers."""
        ended = np.full(len(u), SOLVED)
        determine_stage(
            self._structure, stage.inputs[None], stage.externals[None], externals, stage.unknowns, stage.rows, u, rest,
            through, self._have, self._factors, multipliers, ended,
        )  # fmt: skip
        return np.flatnonzero(ended == FAILED)


class _Solver:
    """Prepared for one structure: how its entries become a matrix whose diagonal has no structural zero."""

    def __init__(self, square: Square) -> None:
        self.square = square
        pattern, size = square.program.pattern, square.size
        self.order = square.matched  # row order[k] is put at place k, where the unknown is that it is matched with
        place = np.empty(size, np.int64)
        place[self.order] = np.arange(size)
        numbered = csc_array(
            (np.arange(1.0, pattern.nnz + 1), (place[pattern.row_of()], pattern.indices)), shape=(size, size)
        )
        self._source = numbered.data.astype(np.int64) - 1
        self._indices, self._indptr = numbered.indices, numbered.indptr
        self.block = np.repeat(np.arange(len(square.starts) - 1), np.diff(square.starts))  # of every row and unknown
        self._places = np.arange(len(square.program.unknowns))[None], np.arange(len(square.program.externals))[None]
        self.structure = self._small(pattern.row_of(), pattern.indices)
        self._constant: SuperLU | None = None  # the factor of an affine structure, made at first use
        self._part: Part | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_constant": None}  # SuperLU cannot be pickled

    def _small(self, row: Index, column: Index) -> Structure | None:
        """Prepare the structure for the kernels; None if its factors are too large for them."""
        square, program, plan = self.square, self.square.program, self.square.plan.elimination
        if plan is None:
            return None
        return Structure(
            program.code, program.cells, program.slots, program.constants, square.affine, row, column, square.own,
            square.before, square.starts, _keep(program, plan), plan,
        )  # fmt: skip

    def bytes(self, samples: int) -> float:
        """Predict the memory of the factors of so many samples."""
        if self.structure is not None:
            return 8.0 * LANES * tiles_for(samples) * self.structure.plan.packs
        return _ENTRY_BYTES * self.square.plan.fill * (1 if self.square.affine else samples)

    def evaluate(self, inputs: Values, outside: Values) -> Values:
        """Evaluate the rows (b, m)."""
        program = self.square.program
        out = np.empty((len(inputs), self.square.size))
        batches.evaluate(program.code, program.cells, *self._places, outside, inputs, out)
        return out

    def merit(self, residual: Values) -> Values:
        """Sum the squares of each block's rows (b, blocks)."""
        total: Values = np.add.reduceat(residual**2, self.square.starts[:-1], axis=1)
        return total

    def factor(self, entries: Values) -> SuperLU | None:
        """Factorize one sample's matrix; None if it is singular or not finite."""
        if self.square.affine and self._constant is not None:
            return self._constant
        made = self._factorized(entries)
        if self.square.affine:
            self._constant = made
        return made

    def _factorized(self, entries: Values) -> SuperLU | None:
        if not np.isfinite(entries).all():
            return None
        try:
            return splu(
                self._matrix(entries), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=_PIVOT,
                options={"SymmetricMode": True},
            )  # fmt: skip
        except RuntimeError:  # SuperLU met a pivot that is exactly zero
            return None

    def step(self, factor: SuperLU, residual: Values) -> Values:
        """Solve J d = −residual."""
        d: Values = factor.solve(-residual[self.order])
        return d

    def multipliers(self, entries: Values, wanted: Values, factor: SuperLU | None) -> tuple[Values, SuperLU | None]:
        """Solve Jᵀλ = wanted with corrections; return λ and the factor that was good enough, NaN and None without one."""
        matrix, allowed = self._matrix(entries), REFINED * np.abs(wanted).max(initial=0.0)
        for fresh in (False, True) if factor is not None else (True,):
            used = self.factor(entries) if fresh else factor
            if used is None:
                break
            found, left, before = np.zeros_like(wanted), wanted, np.inf
            for _ in range(SOLVES):
                size = np.abs(left).max(initial=0.0)
                if size <= allowed or not size < USEFUL * before:
                    break
                found, before = found + used.solve(left, "T"), size
                left = wanted - matrix.T @ found
            # A factor of these very entries cannot be improved on: what is left is rounding.
            if fresh or self.square.affine or np.abs(left).max(initial=0.0) <= allowed:
                by_row = np.empty_like(found)
                by_row[self.order] = found
                return by_row, used
        return np.full_like(wanted, np.nan), None

    def _matrix(self, entries: Values) -> csc_array:
        size = self.square.size
        return csc_array((entries[self._source], self._indices, self._indptr), shape=(size, size))

    def part(self) -> Part | None:
        """Prepare the stage as a coupled system, at first use; None where that would take too long."""
        square = self.square
        if square.size > _RESCUED_ROWS or square.affine or not square.curved:
            return None
        if self._part is None:
            system: System = lone_system(square.program, square.own)
            infinite = np.full(len(square.program.unknowns), np.inf)
            self._part = Part(system, -infinite, infinite, 0, np.zeros(0, np.int64), Automatic())
        return self._part


class _Task:
    """One stage for the samples that got this far. `inputs` are written as iterations go on."""

    def __init__(
        self, solver: _Solver, factors: list[SuperLU | None], live: Index, inputs: Values, outside: Values, used: Index,
        stopping: Stopping, limit: int, turn: Turn,
    ) -> None:  # fmt: skip
        self.solver, self.inputs, self.outside = solver, inputs, outside
        self._factors, self._live = factors, live
        self._stopping, self._limit, self._turn = stopping, limit, turn
        self._goal = stopping.polish * stopping.tolerance
        self._used = used
        self._status = np.full(len(live), int(Status.STALLED))

    def run(self, wanted: Values, earlier: list[Values]) -> tuple[Index, Index]:
        """Solve the stage from the best of some starts, then from each; return status and iterations.

        The starts are `wanted`, û, the previous stage's values, and what continues the values of two `earlier` stages.
        """
        starts, square = [wanted], self.solver.square
        if not square.affine:
            if len(square.before):
                starts.append(self.inputs[:, square.before])
            if len(earlier) == 2:
                starts.append(2.0 * earlier[1] - earlier[0])
        everything = np.arange(len(self._live))
        self._iterate(everything, self._best(starts))
        for begin in starts[::-1]:
            failed = self._failed()
            if not len(failed) or square.affine:
                break
            self._iterate(failed, begin[failed])
        self._rescue(wanted)
        # With iterations and time left all attempts were made: a sample that is not solved has stalled.
        short = (self._status == Status.STALLED) & ((self._used >= self._limit) | self._turn.over)
        self._status[short] = int(Status.ITERATION_LIMIT)
        return self._status, self._used

    def _failed(self) -> Index:
        known = np.isfinite(self.inputs).all(axis=1) & np.isfinite(self.outside).all(axis=1)
        return np.flatnonzero((self._status == Status.STALLED) & known)

    def _best(self, starts: list[Values]) -> Values:
        """Choose for each block the start with the least residual."""
        solver, own = self.solver, self.solver.square.own
        best, least = np.where(np.isfinite(starts[0]), starts[0], 0.0), np.full((len(self._live), 1), np.inf)
        if len(starts) == 1:
            return best
        for begin in starts:
            trial = self.inputs.copy()
            trial[:, own] = begin
            merit = solver.merit(solver.evaluate(trial, self.outside))
            better = merit < least  # not where it is NaN
            best = np.where(better[:, solver.block], begin, best)
            least = np.where(better, merit, least)
        return best

    def _iterate(self, some: Index, begin: Values) -> None:
        """Run Newton's method on some samples. Written: their inputs, status, iterations and factors."""
        solver, own, tolerance = self.solver, self.solver.square.own, self._stopping.tolerance
        self.inputs[np.ix_(some, own)] = begin
        allowed = np.minimum(self._used + _share(self._limit), self._limit)
        residual = np.empty((len(self._live), solver.square.size))
        residual[some] = solver.evaluate(self.inputs[some], self.outside[some])
        outdated = np.full(len(self._live), not solver.square.affine)  # the factor belongs to an earlier point
        final = np.zeros(len(self._live), bool)  # within the goal: one more step, which makes the rest rounding
        now = some
        while len(now):
            size = np.abs(residual[now]).max(axis=1, initial=0.0)
            self._status[now[~np.isfinite(size)]] = int(Status.STALLED)
            met = size <= self._goal
            self._status[now[met]] = int(Status.CONVERGED)
            last = self._stopping.polish >= 1.0 or solver.square.affine
            going = np.isfinite(size) & ~(met & (final[now] | last)) & (size > 0.0)
            final[now] |= met
            now = now[going]
            now = now[(self._used[now] < allowed[now]) & (not self._turn.over)]
            missing = self._missing(now)
            outdated[now[missing]] = False
            now = self._factorized(now[~(missing & final[now])])  # a last step is not worth a factor
            if not len(now):
                break
            self._used[now] += 1
            step = np.stack([solver.step(self._factor(i), residual[i]) for i in now])
            reduced = self._move(now, step, residual, outdated[now])
            # An old factor that does too little is replaced. One of this very point that does nothing ends the iterations.
            useless = ~(reduced <= USEFUL) & ~outdated[now]
            rounding = np.abs(residual[now]).max(axis=1, initial=0.0) <= tolerance
            halted = useless & (rounding | ~(reduced < 1.0))
            self._status[now[halted]] = np.where(rounding[halted], int(Status.CONVERGED), int(Status.STALLED))
            if not solver.square.affine:
                outdated[now] = True
                for i in now[~(reduced <= _KEEP) & ~final[now]]:
                    self._factors[self._live[i]] = None
            now = now[~halted]

    def _factor(self, i: int) -> SuperLU:
        factor = self._factors[self._live[i]]
        assert factor is not None
        return factor

    def _missing(self, now: Index) -> Mask:
        """Mark the samples without a factor."""
        return np.array([self._factors[self._live[i]] is None for i in now], bool)

    def _factorized(self, now: Index) -> Index:
        """Make the factors that are missing; return the samples whose matrix is regular."""
        some = now[self._missing(now)]
        if len(some):
            entries = slopes_at(self.solver.square.program, self.inputs[some], self.outside[some])
            for i, one in zip(some.tolist(), entries):
                self._factors[self._live[i]] = self.solver.factor(one)
        return now[~self._missing(now)]

    def _move(self, now: Index, step: Values, residual: Values, outdated: Mask) -> Values:
        """Go along steps as far as each block's residual shrinks; along old factors all the way or not at all.

        Return to what share each sample's residual shrank. Written: inputs, residual.
        """
        solver, own = self.solver, self.solver.square.own
        before = solver.merit(residual[now])
        rounding = np.diff(solver.square.starts) * self._goal**2
        length, found = np.ones_like(before), residual[now]
        searching, point = np.arange(len(now)), self.inputs[now]
        for halving in range(HALVINGS + 1):
            trial = point[searching]
            trial[:, own] += length[searching][:, solver.block] * step[searching]
            there = solver.evaluate(trial, self.outside[now[searching]])
            merit = solver.merit(there)
            enough = (1.0 - 2.0 * SUFFICIENT * length[searching]) * before[searching]
            fine = (merit <= enough) | (merit <= rounding) | (length[searching] == 0.0)
            whole = fine.all(axis=1)
            accepted = searching[whole]
            self.inputs[now[accepted]], found[accepted] = trial[whole], there[whole]
            # At last blocks that no step helps stay where they are.
            shorter = 0.5 if halving + 1 < HALVINGS else 0.0
            length[searching] *= np.where(fine, 1.0, shorter)
            searching = searching[~whole & ~outdated[searching]]
            if not len(searching):
                break
        residual[now] = found
        reduced: Values = np.sqrt(solver.merit(found).sum(axis=1) / before.sum(axis=1))
        return np.where(np.isfinite(reduced), reduced, np.inf)

    def _rescue(self, wanted: Values) -> None:
        """Try the attempts that serve coupled systems on samples that failed. Written: their inputs, status, iterations."""
        failed = self._failed()
        part = self.solver.part() if len(failed) else None
        if part is None:
            return
        for i in failed:  # one by one: each has iterations of its own left
            left = self._limit - int(self._used[i])
            if left < 1 or self._turn.over:
                continue
            inputs = self.inputs[[i]]
            inputs[:, self.solver.square.own] = np.where(np.isfinite(wanted[i]), wanted[i], 0.0)
            batch = Batch(inputs.copy(), self.outside[[i]], self._stopping, None, left, self._turn)
            ended = part.solve(batch, inputs, np.zeros((1, self.solver.square.size)))
            self._used[i] += ended.iterations[0]
            self._status[i] = ended.status[0]
            self.inputs[i] = inputs[0]


def _share(limit: int) -> int:
    """Return how many iterations one attempt may use."""
    return max(1, round(_SHARE * limit))


def _keep(program: Program, plan: Elimination) -> float:
    """Choose up to which share of the residual an old factor is worth keeping, by the packs that a new one and a step take."""
    slopes = 10 * program.operations + 3 * program.slots + program.pattern.nnz
    new = plan.flops + 2 * plan.packs + slopes
    step = 2 * plan.packs + 10 * program.pattern.rows + program.pattern.nnz + 4 * program.operations
    return float(np.clip(10.0 ** (-_DIGITS / (1.0 + new / step)), _LEAST_KEEP, USEFUL))


def _pull(square: Square, stage: MarchStage, u: Values, externals: Values, multipliers: Values, rest: Values) -> None:
    program = square.program
    batches.pull(
        program.code, program.cells, stage.inputs[None], stage.externals[None], externals, stage.rows[None], multipliers, u,
        rest,
    )  # fmt: skip
