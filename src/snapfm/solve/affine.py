"""Affine: rows that are affine equalities and share no unknown with others, in closed form: u = û − Aᵀ(AAᵀ)⁻¹(Aû − b).

Must not import other stages.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csc_array, csr_array, diags_array, tril

from snapfm.arrays import Index, Values
from snapfm.compile.program import build_program
from snapfm.compile.sparsity.pattern import Pattern, gram
from snapfm.kernels.run_length import add_batch, join, products
from snapfm.linear.fronts import Factor, Fronts
from snapfm.reduce.reduce import Reduction
from snapfm.solve.stage import Ended, LinearState, Rows, State
from snapfm.text import plural


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


class Affine:
    """The affine rows of a reduction that has some; params alone determine the `pinned` unknowns. Raises TooLarge, like Gram."""

    def __init__(self, number: int, reduction: Reduction, pinned: Index, largest: float) -> None:
        self.number, self.rows = number, reduction.affine
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
        self.gram = Gram(csr_array(matrix[:, columns]), largest)
        self.steady = set(self.known.inputs[0]) <= set(pinned)

    def solve(self, state: State, ended: Ended) -> None:
        """Project u onto the rows. Written: state's u, multipliers."""
        constants = state.known[self.number]
        base = self.known.evaluate(state.u, state.externals) if constants is None else constants
        self._project(base, state.u, state.multipliers)

    def _project(self, base: Values, u: Values, multipliers: Values) -> None:
        """Project u (b, n) onto A u + base = 0. Written: u; added to multipliers (b, m)."""
        # A second solve removes the error of an ill-conditioned factor; a diagonal one has none.
        for _ in range(1 if self.gram.factor is None else 2):
            residual = base.copy()
            products(self.runs, u, residual)
            step = self.gram.solve(residual)
            multipliers[:, self.rows] += step
            add_batch(self.runs, -step, u)

    def pull(self, state: State, rest: Values) -> None:
        """Add the rows' share of Jᵀλ to `rest` for substituted unknowns; for the others it is zero."""
        self.known.pull(self.rows[None], state.u, state.externals, state.multipliers, rest)

    def linear(self, at: LinearState) -> None:
        """Project w onto A w = 0. Written: w, ν."""
        self._project(np.zeros((len(at.w), len(self.rows))), at.w, at.nu)

    def pull_linear(self, at: LinearState) -> None:
        """Add the rows' share for substituted unknowns and params. Written: rest, by_params."""
        self.known.pull_linear(self.rows[None], at)

    def from_params(self, u: Values, externals: Values) -> Values | None:
        """Return the known part of the rows, if it reads nothing but params and what they determine."""
        return self.known.evaluate(u, externals) if self.steady else None

    def bytes(self, samples: int) -> float:
        """Predict no memory beside the batches."""
        return 0.0

    def describe(self) -> str:
        """Say how many rows it solves."""
        return f"solve {plural(len(self.rows), 'affine row')} in closed form"
