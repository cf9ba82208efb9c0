"""Affine: rows that are affine equalities and share no unknown with others, in closed form: u = û − Aᵀ(AAᵀ)⁻¹(Aû − b).

Must not import other stages.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csc_array, csr_array

from snapfm.arrays import Index, Values
from snapfm.compile.derivatives import Rows
from snapfm.compile.lower.tape import without
from snapfm.compile.program import build_program
from snapfm.kernels.run_length import add_batch, join, products
from snapfm.linear import Solver
from snapfm.linear.gram import Gram
from snapfm.reduce.reduce import Reduction
from snapfm.solve.stage import Ended, LinearState, Stage, State
from snapfm.text import plural


class Affine(Stage):
    """The affine rows of a reduction that has some; params alone determine the `pinned` unknowns. Raises TooLarge, like Gram."""

    def __init__(self, number: int, reduction: Reduction, pinned: Index, solver: Solver | None, largest: float) -> None:
        self.number, self.rows = number, reduction.affine
        tape, free = reduction.tape, reduction.cascade.free
        whole = csr_array(reduction.rows[self.rows])
        matrix = without(csr_array(whole[:, tape.unknown_cells]), ~free)
        entries = matrix.tocoo()
        self.runs = join(entries.col.astype(np.int64), entries.row.astype(np.int64), entries.data)
        # The rest is known beforehand: cells of params, and substituted unknowns.
        moving = np.zeros(tape.cells, bool)
        moving[tape.unknown_cells] = free
        self.known = Rows.of(build_program(tape, without(whole, moving), np.zeros(0, np.int64)))
        columns = np.flatnonzero(np.diff(csc_array(matrix).indptr))
        moved = csr_array(matrix[:, columns])
        gram = Gram(moved, solver, largest)
        # A second solve removes the error of an ill-conditioned factor; a diagonal one has none.
        self._solves, self._factor = 1 if gram.diagonal else 2, gram.factor(moved)
        self.steady = set(self.known.inputs[0]) <= set(pinned)

    def solve(self, state: State, ended: Ended) -> None:
        """Project u onto the rows. Written: state's u, multipliers."""
        constants = state.known[self.number]
        base = self.known.evaluate(state.u, state.params) if constants is None else constants
        self._project(base, state.u, state.multipliers)

    def _project(self, base: Values, u: Values, multipliers: Values) -> None:
        """Project u (b, n) onto A u + base = 0. Written: u; added to multipliers (b, m)."""
        for _ in range(self._solves):
            residual = base.copy()
            products(self.runs, u, residual)
            step = self._factor.solve(residual)
            if self._solves > 1:
                step[~np.isfinite(residual).all(axis=1)] = np.nan  # no solution, whatever the factor makes of it
            multipliers[:, self.rows] += step
            add_batch(self.runs, -step, u)

    def pull(self, state: State, rest: Values) -> None:
        """Add the rows' share of Jᵀλ to `rest` for substituted unknowns; for the others it is zero."""
        self.known.pull(self.rows[None], state.u, state.params, state.multipliers, rest)

    def linear(self, at: LinearState) -> None:
        """Project w onto A w = 0. Written: w, ν."""
        self._project(np.zeros((len(at.w), len(self.rows))), at.w, at.nu)

    def pull_linear(self, at: LinearState) -> None:
        """Add the rows' share for substituted unknowns and params. Written: rest, by_params."""
        at.pull(self.known, self.rows[None])

    def from_params(self, u: Values, params: Values) -> Values | None:
        """Return the known part of the rows, if it reads nothing but params and what they determine."""
        return self.known.evaluate(u, params) if self.steady else None

    def describe(self) -> str:
        """Say how many rows it solves."""
        return f"solve {plural(len(self.rows), 'affine row')} in closed form"
