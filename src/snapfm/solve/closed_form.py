"""What Newton does without iterations: change coordinates, substitute, solve affine parts in closed form.

Part of stop 4 of the walk. Must not import solve.newton or solve.system.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array, diags_array, tril

from snapfm.arrays import Index, Values
from snapfm.compile.program import Program, build_program
from snapfm.compile.sparsity.pattern import Pattern, gram
from snapfm.kernels import batches
from snapfm.kernels.coordinates import condense, expand, rotate
from snapfm.kernels.run_length import add_batch, join, products
from snapfm.linear.fronts import Factor, Fronts
from snapfm.reduce.cascade import Level
from snapfm.reduce.reduce import Reduction


@dataclass(frozen=True)
class Rows:
    """A program and, one line per part, the unknowns and the columns of params that it reads."""

    program: Program
    inputs: Index
    outside: Index

    def evaluate(self, u: Values, externals: Values) -> Values:
        """Evaluate the rows of a program of one part: (b, rows)."""
        program = self.program
        out = np.empty((len(u), program.pattern.rows))
        batches.evaluate(program.code, program.cells, self.inputs, self.outside, externals, u, out)
        return out

    def substitute(self, level: Level, u: Values, externals: Values) -> None:
        """Set the unknowns that a level's rows determine. Written: u."""
        program = self.program
        batches.substitute(
            program.code, program.cells, self.inputs, self.outside, externals, level.unknowns, level.weights, u
        )

    def pull(self, index: Index, u: Values, externals: Values, multipliers: Values, rest: Values) -> None:
        """Add Jᵀλ to `rest`, with λ = multipliers[:, index]. Written: rest."""
        program = self.program
        if self.inputs.shape[1]:
            batches.pull(program.code, program.cells, self.inputs, self.outside, externals, index, multipliers, u, rest)


class Coordinates:
    """Between a field and the unknowns of its reduction. `same`: they are the same; `wider`: the reduction has more."""

    def __init__(self, reduction: Reduction, unknowns: int) -> None:
        self.rotations, self.groups = reduction.rotations, reduction.aggregates
        self.unknowns = unknowns
        self.same = not (len(self.rotations) or len(self.groups))
        self.wider = reduction.tape.unknowns > unknowns
        sizes = np.diff(self.groups.ptr)
        self.runs = join(
            self.groups.members, np.repeat(np.arange(len(sizes)), sizes), np.ones(len(self.groups.members))
        )

    def enter(self, given: npt.NDArray[np.float32] | npt.NDArray[np.float64], start: Values) -> None:
        """Convert fields (b, n) to the reduction's unknowns. Written: start."""
        rotations, groups = self.rotations, self.groups
        start[:, : self.unknowns] = given
        if len(rotations):
            rotate(rotations.first, rotations.second, rotations.cos, rotations.sin, start)
        if len(groups):
            condense(self.runs, groups.ptr, groups.first, start)

    def leave(self, start: Values, u: Values) -> None:
        """Convert back: members of aggregates along `start`, then rotations. Written: u."""
        groups = self.groups
        if len(groups):
            expand(self.runs, groups.ptr, groups.members, groups.first, start, u)
        self.rotate_back(u)

    def rotate_back(self, u: Values) -> None:
        """Undo the rotations alone. Written: u."""
        rotations = self.rotations
        if len(rotations):
            rotate(rotations.first, rotations.second, rotations.cos, -rotations.sin, u)


class Gram:
    """The factor of AAᵀ. If it is diagonal, as for totals over disjoint slices, a solve is a division.

    Raises TooLarge for a factor of more than `largest` bytes.
    """

    def __init__(self, matrix: csr_array, largest: float) -> None:
        whole = gram(matrix)
        self.diagonal: Values | None = None
        self.factor: Factor | None = None
        if whole.nnz == np.count_nonzero(whole.diagonal()):
            self.diagonal = whole.diagonal()
        else:
            lower = csr_array(tril(whole))
            lower.sort_indices()
            pattern = Pattern(
                whole.shape[0], whole.shape[1], lower.indptr.astype(np.int64), lower.indices.astype(np.int64)
            )
            self.factor = Fronts(largest).prepare(pattern).factor(lower.data)

    def solve(self, right: Values) -> Values:
        """Solve for every sample (b, m); one that is not finite has no solution."""
        if self.diagonal is not None:
            return right / self.diagonal
        assert self.factor is not None
        out = self.factor.solve(right)
        out[~np.isfinite(right).all(axis=1)] = np.nan
        return out


class AffinePart:
    """The affine rows of a reduction; does nothing if there are none. Raises TooLarge, like Gram."""

    def __init__(self, reduction: Reduction, largest: float) -> None:
        self.rows = reduction.affine
        tape, free = reduction.tape, reduction.cascade.free
        whole = csr_array(reduction.rows[self.rows])
        moving = np.zeros(tape.cells)
        moving[: tape.unknowns] = free
        matrix = csr_array(csr_array(whole @ diags_array(moving))[:, : tape.unknowns])
        matrix.eliminate_zeros()
        entries = matrix.tocoo()
        self.runs = join(entries.col.astype(np.int64), entries.row.astype(np.int64), entries.data)
        # The rest is known beforehand: cells of params, and substituted unknowns.
        known = csr_array(whole @ diags_array(1.0 - moving))
        known.eliminate_zeros()
        program = build_program(tape, known, np.zeros(0, np.int64))
        self.known = Rows(program, program.unknowns[None], program.externals[None] - (tape.unknowns + 1))
        columns = np.flatnonzero(np.diff(csc_array(matrix).indptr))
        self.gram = Gram(csr_array(matrix[:, columns]), largest) if len(self.rows) else None

    def solve(self, u: Values, externals: Values, constants: Values | None, multipliers: Values) -> None:
        """Project u onto the rows; `constants` is their known part, if evaluated. Written: u, multipliers."""
        if self.gram is None:
            return
        base = self.known.evaluate(u, externals) if constants is None else constants
        # A second solve removes the error of an ill-conditioned factor; a diagonal one has none.
        for _ in range(1 if self.gram.factor is None else 2):
            residual = base.copy()
            products(self.runs, u, residual)
            step = self.gram.solve(residual)
            multipliers[:, self.rows] += step
            add_batch(self.runs, -step, u)

    def pull(self, u: Values, externals: Values, multipliers: Values, rest: Values) -> None:
        """Add the rows' share of Jᵀλ to `rest` for substituted unknowns; for the others it is zero."""
        if self.gram is not None:
            self.known.pull(self.rows[None], u, externals, multipliers, rest)
