"""AffinePart: the rows of a reduction that are solved in closed form, one factor for all samples."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csc_array, csr_array, diags_array

from snapfm.kernels.runs import add_batch, join, products
from snapfm.linear.gram import Gram
from snapfm.project.rows import Rows, Values
from snapfm.structure.program import build_program
from snapfm.structure.reduce import Reduction


class AffinePart:
    """Prepared for one reduction; does nothing where it has no such rows."""

    def __init__(self, reduction: Reduction) -> None:
        self.rows = reduction.affine
        listing, free = reduction.listing, reduction.cascade.free
        whole = csr_array(reduction.rows[self.rows])
        moving = np.zeros(listing.cells)
        moving[: listing.unknowns] = free
        matrix = csr_array(csr_array(whole @ diags_array(moving))[:, : listing.unknowns])
        matrix.eliminate_zeros()
        entries = matrix.tocoo()
        self.runs = join(entries.col.astype(np.int64), entries.row.astype(np.int64), entries.data)
        # What is left is known before: cells of params, and unknowns that were substituted.
        known = csr_array(whole @ diags_array(1.0 - moving))
        known.eliminate_zeros()
        program = build_program(listing, known, np.zeros(0, np.int64))
        self.known = Rows(program, program.unknowns[None], program.externals[None] - (listing.unknowns + 1))
        columns = np.flatnonzero(np.diff(csc_array(matrix).indptr))
        self.gram = Gram(csr_array(matrix[:, columns])) if len(self.rows) else None

    def solve(self, u: Values, externals: Values, constants: Values | None, multipliers: Values) -> None:
        """Move u onto the rows; `constants` is the share that they do not move, if known. Written: u, multipliers."""
        if self.gram is None:
            return
        base = self.known.evaluate(u, externals) if constants is None else constants
        # A second solve takes out what the condition of the factor left; a diagonal one leaves nothing.
        for _ in range(1 if self.gram.factor is None else 2):
            residual = base.copy()
            products(self.runs, u, residual)
            step = self.gram.solve(residual)
            multipliers[:, self.rows] += step
            add_batch(self.runs, -step, u)

    def pull(self, u: Values, externals: Values, multipliers: Values, rest: Values) -> None:
        """Add the rows' share of Jᵀλ to `rest`, for unknowns that were substituted; it vanishes for the others."""
        if self.gram is not None:
            self.known.pull(self.rows[None], u, externals, multipliers, rest)
