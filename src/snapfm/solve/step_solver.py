"""One structure of a march's steps: eight samples at once by kernels.march, and what that leaves as a system of its own.

A step is as many rows as unknowns, so Newton's step J d = −r is that of the KKT system [[I, Jᵀ], [J, 0]], and Jᵀλ = g is solved
with the same matrix (math.md, "March"): the `Part` of the step serves blocks that are too large for the kernel, samples on which
it fails, and everything if the user gave a linear solver. Prepared once for all steps that share it. Used by solve.march,
which it must not import.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.derivatives import Rows
from snapfm.compile.program import Program
from snapfm.kernels.factor.lu import Elimination
from snapfm.kernels.march import FAILED, NOT_BEGUN, SOLVED, USEFUL, Rule, Structure, determine_step, solve_step
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import Deadline
from snapfm.linear import Automatic, Solver
from snapfm.reduce.march import MarchStep, Square
from snapfm.reduce.reduce import System
from snapfm.solve.stage import LinearState, State
from snapfm.solve.system import Part
from snapfm.solve.tiles import most, tiles_for

# What an old factor has to gain to be kept: Newton's method gains about four digits with each new one, in the time that
# takes (see _keep).
_LEAST_KEEP, _DIGITS = 1e-3, 4.0
_SHARE = 0.2  # of a sample's iterations that one start may use; most steps take 3 to 15 of 500
RESCUED_ROWS = 4_000  # beyond which the attempts for coupled systems would take minutes


class StepSolver:
    """Prepared for one structure; `linear` is the user's solver, if there is one."""

    def __init__(self, square: Square, linear: Solver | None) -> None:
        self.square, self._linear = square, linear
        program, plan = square.program, square.plan.elimination if linear is None else None
        first = len(program.params)
        self.structure = plan and Structure(
            program.code, program.cells, program.slots, program.constants, square.affine, program.pattern.row_of(),
            program.pattern.indices, first + square.own, first + square.before, square.starts, _keep(program, plan), plan,
        )  # fmt: skip
        self._rows = Rows.of(program)

    @cached_property
    def part(self) -> Part:
        """The step as a system, prepared at first use: threads that meet here each make one."""
        return square_part(self.square.program, self.square.own, self._linear)

    def bytes(self, samples: int) -> float:
        """Predict the memory of the kernel's factors of so many samples."""
        if self.structure is None:
            return 0.0
        return 8.0 * LANES * tiles_for(samples) * self.structure.plan.packs

    def begin(self, starts: list[Values], inputs: Values, outside: Values) -> Values:
        """Choose for each block the start with the least residual; zero where û is not finite."""
        square = self.square
        best, least = np.where(np.isfinite(starts[0]), starts[0], 0.0), np.full((len(inputs), 1), np.inf)
        if len(starts) == 1:
            return best
        block = np.repeat(np.arange(len(square.starts) - 1), np.diff(square.starts))
        for start in starts:
            trial = inputs.copy()
            trial[:, square.own] = start
            merit = np.add.reduceat(self._rows.evaluate(trial, outside) ** 2, square.starts[:-1], axis=1)
            better = merit < least  # not where it is NaN
            best, least = np.where(better[:, block], start, best), np.where(better, merit, least)
        return best

    def iterate(
        self, start: Values, inputs: Values, outside: Values, call: State, limit: int, retry: bool
    ) -> tuple[Index, Index]:
        """Solve some samples of a call as a system, from `start`; return status and iterations. Written: inputs (b, …)."""
        given, multipliers = inputs.copy(), np.zeros((len(inputs), self.square.size))
        inputs[:, self.square.own] = start
        own = State(given, inputs, outside, multipliers, call.stopping, None, limit, call.deadline, retry=retry)
        ended = self.part.solve(own)
        return ended.status, ended.iterations

    def multipliers(self, wanted: Values, inputs: Values, outside: Values, deadline: Deadline) -> Values:
        """Solve Jᵀλ = wanted for some samples; NaN where there is no accurate solution."""
        g, none = np.zeros_like(inputs), np.zeros((len(inputs), self.square.size))
        g[:, self.square.own] = wanted
        at = LinearState(inputs, outside, none, g, np.zeros_like(g), np.zeros_like(none), g, outside, deadline)
        self.part.linear(at)
        return at.nu


def square_part(program: Program, unknowns: Index, linear: Solver | None) -> Part:
    """Prepare as many rows as unknowns as a system; `unknowns` are those among the program's."""
    infinite, nothing = np.full(len(program.unknowns), np.inf), np.zeros(0, np.int64)
    solver = Automatic() if linear is None else linear
    return Part(System.from_program(program, unknowns), -infinite, infinite, nothing, solver)


def share(limit: int) -> int:
    """Return how many iterations one start may use."""
    return most(_SHARE, limit)


class StepTiles:
    """The state of one call for the steps of a structure that kernels.march solves."""

    def __init__(self, structure: Structure, count: int) -> None:
        self._structure, self._known = structure, False
        self._have, self._past = np.zeros(count, bool), np.zeros((count, len(structure.before)))
        self._factors = np.empty((-(-count // LANES), structure.plan.packs * LANES))

    def solve(self, step: MarchStep, state: State, through: Mask) -> tuple[Index, Index]:
        """Solve one step; return how each sample ended, and its iterations. Written: state's u."""
        stopping, u = state.stopping, state.u
        ended, used = np.where(through, NOT_BEGUN, SOLVED), np.zeros(len(u), np.int64)
        polish = stopping.polish < 1.0 and not self._structure.constant
        rule = Rule(stopping.polish * stopping.tolerance, stopping.tolerance, polish, share(state.limit))
        solve_step(
            self._structure, rule, step.inputs[None], step.params[None], state.params, step.unknowns, state.u_hat, u,
            self._past, self._known, self._have, self._factors, state.deadline.stop, ended, used,
        )  # fmt: skip
        self._known = True
        return ended, used

    def determine(
        self, step: MarchStep, u: Values, params: Values, multipliers: Values, rest: Values, through: Mask
    ) -> Index:
        """Find the multipliers of one step; return the samples that need another way. Written: multipliers."""
        ended = np.full(len(u), SOLVED)
        determine_step(
            self._structure, step.inputs[None], step.params[None], params, step.unknowns, step.rows, u, rest,
            through, self._have, self._factors, multipliers, ended,
        )  # fmt: skip
        return np.flatnonzero(ended == FAILED)


def _keep(program: Program, plan: Elimination) -> float:
    """Choose up to which share of the residual an old factor is worth keeping, by the packs that a new one and a step take."""
    slopes = 10 * program.operations + 3 * program.slots + program.pattern.nnz
    new = plan.flops + 2 * plan.packs + slopes
    step = 2 * plan.packs + 10 * program.pattern.rows + program.pattern.nnz + 4 * program.operations
    return float(np.clip(10.0 ** (-_DIGITS / (1.0 + new / step)), _LEAST_KEEP, USEFUL))
