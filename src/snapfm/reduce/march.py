"""March: steps of blocks that determine unknowns one after the other, each prepared as a square system.

An implicit scheme after an initial condition is solved step by step, with memory for one step and time linear in their number.
Steps with the same structure (the time steps) share one program. Consumes a tape and its rows. Knows nothing of solvers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.sparse import csc_array, csr_array, diags_array
from scipy.sparse.csgraph import maximum_bipartite_matching
from scipy.sparse.linalg import splu

from snapfm.arrays import Index, Mask
from snapfm.compile.derivatives import Rows
from snapfm.compile.lower.subtape import Subtape, cut
from snapfm.compile.lower.tape import Tape
from snapfm.compile.program import Program, program_of
from snapfm.compile.sparsity.pattern import Sets
from snapfm.kernels.factor.lu import Planned, eliminate
from snapfm.reduce.blocks import IndependentBlocks, find_steps

# Steps beyond which a march does not pay: each takes about half a millisecond to prepare.
_STEP_LIMIT = 4_096
# Fewer rows, in all or for each step, are left to the coupled system, which solves them in one compiled loop: a step takes a
# tenth of a millisecond however small it is. With 16 rows a step both took the same time (reaction–diffusion in 1-D).
_FEWEST_ROWS, _FEWEST_EACH = 256, 16
# A pivot below this share of the largest at a random point: the block is singular whatever its unknowns are.
_SINGULAR = 1e-13
# Multiply-adds up to which the matrix of a step is factorized to find that out: about a second of SuperLU. Larger ones are
# singular only if the constants, which differences do not see, are a null vector on either side.
_TRIED = 1_000_000_000
# Multiply-adds up to which the compiled elimination of eight samples is written out. With 128² points a step (56 million) it took
# half the time of a system (solve.step_solver) on eight samples, with 100² points (23 million) the same time on one.
_WRITTEN_OUT = 100_000_000
_SEARCHES = 4  # each leaves out the blocks that were found to be singular


@dataclass(frozen=True)
class Square:
    """The structure of steps: as many rows as unknowns of their own.

    `program` evaluates the rows over the step's inputs, and their slopes by its own unknowns, which are inputs `own`. Block k is
    the range starts[k] .. starts[k + 1] of both. Inputs `before` are the same unknowns one step earlier, if all are read.
    """

    program: Program
    own: Index
    starts: Index
    before: Index
    plan: Planned  # of its elimination
    regular: bool  # False: the matrix is singular whatever its unknowns are

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.own)

    @property
    def affine(self) -> bool:
        """Whether no slope ever changes."""
        return len(self.program.varying) == 0


@dataclass(frozen=True)
class MarchStep:
    """One step: which structure it has (`square`), and which rows, unknowns, inputs and params are its own."""

    square: int
    rows: Index
    unknowns: Index
    inputs: Index
    params: Index


@dataclass(frozen=True)
class March:
    """Steps in the order in which they are solved; empty if there is nothing to march through."""

    squares: tuple[Square, ...] = ()
    steps: tuple[MarchStep, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)

    def rows(self) -> Index:
        """Rows of all steps."""
        return np.concatenate([np.zeros(0, np.int64), *(step.rows for step in self.steps)])

    def unknowns(self) -> Index:
        """Unknowns of all steps."""
        return np.concatenate([np.zeros(0, np.int64), *(step.unknowns for step in self.steps)])


def find_march(tape: Tape, rows: csr_array, reads: Sets, usable: Mask, free: Mask) -> March:
    """Find the unknowns, among the free ones, that blocks of `usable` rows determine, if marching through them pays."""
    usable = usable.copy()
    for _ in range(_SEARCHES):
        steps = find_steps(reads, usable, free, _STEP_LIMIT)
        if sum(len(step.rows) for step in steps) < max(_FEWEST_ROWS, _FEWEST_EACH * len(steps)):
            break
        march = _prepared(tape, rows, steps)
        if all(square.regular for square in march.squares):
            return march
        spoilt = [np.zeros(0, np.int64) if square.regular else _singular_rows(square) for square in march.squares]
        for step in march.steps:
            usable[step.rows[spoilt[step.square]]] = False
    return March()


def _prepared(tape: Tape, rows: csr_array, steps: tuple[IndependentBlocks, ...]) -> March:
    """Build the program of every structure once."""
    numbers = dict[bytes, int]()
    plans: dict[bytes, Planned] = {}  # structures that differ in coefficients alone have one pattern
    squares: list[Square] = []
    found = []
    sizes = [len(step.rows) for step in steps]
    parts = cut(tape, csr_array(rows[np.concatenate([step.rows for step in steps])]), sizes)
    for step, part in zip(steps, parts, strict=True):
        own = np.searchsorted(part.unknowns, step.unknowns)
        key = part.fingerprint(own) + step.starts.tobytes()
        number = numbers.setdefault(key, len(squares))
        if number == len(squares):
            squares.append(_square(part.local(), own, step.starts, plans))
        found.append(MarchStep(number, step.rows, step.unknowns, part.unknowns, part.params))
    return March(tuple(_following(squares, found)), tuple(found))


def _square(part: Subtape, own: Index, starts: Index, plans: dict[bytes, Planned]) -> Square:
    """Build the program of one structure and plan its elimination. Written: plans."""
    program = program_of(part, own, second=False)  # as many rows as unknowns: curvature changes no step
    pattern = program.pattern
    key = pattern.indptr.tobytes() + pattern.indices.tobytes()
    if key not in plans:
        matched = maximum_bipartite_matching(pattern.csr(np.ones(pattern.nnz)), "row").astype(np.int64)
        plans[key] = eliminate(pattern.row_of(), pattern.indices, matched, _WRITTEN_OUT)
    plan = plans[key]
    return Square(program, own, starts, np.zeros(0, np.int64), plan, _regular(program, plan))


def _following(squares: list[Square], steps: list[MarchStep]) -> list[Square]:
    """Find the inputs that are the unknowns of the step before, from two steps with the same structure."""
    found = list(squares)
    for number, square in enumerate(squares):
        same = [step for step in steps if step.square == number][:2]
        if len(same) == 2:
            place = np.searchsorted(same[1].inputs, same[0].unknowns)
            inside = np.minimum(place, len(same[1].inputs) - 1)
            if np.array_equal(same[1].inputs[inside], same[0].unknowns):
                found[number] = replace(square, before=inside)
    return found


def _regular(program: Program, plan: Planned) -> bool:
    """Whether the matrix is regular at a random point; if it is singular there, it is so everywhere."""
    matrix = _random_slopes(program)
    if not np.isfinite(matrix.data).all():
        return True  # nothing is known
    return _factorable(matrix) if plan.flops <= _TRIED else not _flat(matrix)


def _singular_rows(square: Square) -> Index:
    """List the rows of the blocks that are singular; all rows if no single block is."""
    matrix = csr_array(_random_slopes(square.program))
    blocks = [np.arange(first, last) for first, last in pairwise(square.starts)]
    if square.plan.flops > _TRIED:
        return np.concatenate(blocks)
    singular = [mine for mine in blocks if not _factorable(csc_array(csr_array(matrix[mine])[:, mine]))]
    return np.concatenate(singular or blocks)


def _random_slopes(program: Program) -> csc_array:
    random = np.random.default_rng(0)
    # Uniform in (0.1, 0.9): inside the domain of roots and logarithms, away from the kinks at 0 and 1.
    inputs, params = (random.uniform(0.1, 0.9, (1, len(some))) for some in (program.unknowns, program.params))
    return csc_array(program.pattern.csr(Rows.of(program).slopes(inputs, params)[0]))


def _factorable(matrix: csc_array) -> bool:
    """Whether a matrix is regular, whatever units its rows have."""
    size = np.maximum(abs(matrix).max(axis=1).toarray(), np.finfo(float).tiny)
    try:
        factor = splu(csc_array(diags_array(1.0 / size) @ matrix))
    except RuntimeError:  # SuperLU met a pivot that is exactly zero
        return False
    pivots = np.abs(factor.U.diagonal())
    return bool(pivots.min(initial=np.inf) > _SINGULAR * pivots.max(initial=0.0))


def _flat(matrix: csc_array) -> bool:
    """Whether all rows, or all columns, of a matrix add up to zero."""
    return any(bool((abs(matrix.sum(axis=axis)) <= _SINGULAR * abs(matrix).sum(axis=axis)).all()) for axis in (0, 1))
