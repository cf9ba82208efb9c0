"""One structure of a march's stages: how its rows are evaluated, factorized with pivoting, and solved with.

Prepared once for all stages that share it, and never changes. Used by solve.march and solve.stage_newton, which it must not
import.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csc_array
from scipy.sparse.linalg import SuperLU, splu

from snapfm.arrays import Index, Values
from snapfm.compile.derivatives import Rows
from snapfm.compile.program import Program
from snapfm.kernels.factor.lu import Elimination
from snapfm.kernels.march import REFINED, SOLVES, USEFUL, Structure
from snapfm.kernels.operations import LANES
from snapfm.linear import Automatic
from snapfm.reduce.march import Square
from snapfm.reduce.reduce import System
from snapfm.solve.system import Part
from snapfm.solve.tiles import tiles_for

# What an old factor has to gain to be kept: Newton's method gains about four digits with each new one, in the time that
# takes (see _keep).
_LEAST_KEEP, _DIGITS = 1e-3, 4.0
_PIVOT = 0.1  # a diagonal pivot above this share of its column is taken: less fill than the largest pivot would cause
RESCUED_ROWS = 4_000  # beyond which the attempts for coupled systems would take minutes
ENTRY_BYTES = 16.0  # of a factor: value, index and what SuperLU allocates beside them


class StageSolver:
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
        self.rows = Rows.of(square.program)
        self.structure = self._small(pattern.row_of(), pattern.indices)
        self._constant: SuperLU | None = None  # the factor of an affine structure, made at first use
        self._part: Part | None = None

    def _small(self, row: Index, column: Index) -> Structure | None:
        """Prepare the structure for the kernels; None if its factors are too large for them."""
        square, program, plan = self.square, self.square.program, self.square.plan.elimination
        if plan is None:
            return None
        return Structure(
            program.code, program.cells, program.slots, program.constants, square.affine, row, column,
            len(program.params) + square.own, len(program.params) + square.before, square.starts, _keep(program, plan), plan,
        )  # fmt: skip

    def bytes(self, samples: int) -> float:
        """Predict the memory of the factors of so many samples."""
        if self.structure is not None:
            return 8.0 * LANES * tiles_for(samples) * self.structure.plan.packs
        return ENTRY_BYTES * self.square.plan.fill * (1 if self.square.affine else samples)

    def evaluate(self, inputs: Values, outside: Values) -> Values:
        """Evaluate the rows (b, m)."""
        return self.rows.evaluate(inputs, outside)

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
        if square.size > RESCUED_ROWS or square.affine or not square.curved:
            return None
        if self._part is None:
            system = System.from_program(square.program, square.own)
            infinite = np.full(len(square.program.unknowns), np.inf)
            self._part = Part(system, -infinite, infinite, np.zeros(0, np.int64), Automatic())
        return self._part


def _keep(program: Program, plan: Elimination) -> float:
    """Choose up to which share of the residual an old factor is worth keeping, by the packs that a new one and a step take."""
    slopes = 10 * program.operations + 3 * program.slots + program.pattern.nnz
    new = plan.flops + 2 * plan.packs + slopes
    step = 2 * plan.packs + 10 * program.pattern.rows + program.pattern.nnz + 4 * program.operations
    return float(np.clip(10.0 ** (-_DIGITS / (1.0 + new / step)), _LEAST_KEEP, USEFUL))
