"""Units: laws over x = u/s, each row times a weight (math.md, eq. units-of-laws). Lengths in x are those of a diagonal metric.

Applied to a tape, so that bounds stay bounds, affine rows stay affine, and every reduction applies to what is left. Derivatives
that others ask of the laws stay those by the field. Structure only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Values
from snapfm.compile.lower.lifts import Lift
from snapfm.compile.lower.tape import Block, Tape
from snapfm.compile.lower.transform import equalized
from snapfm.compile.sparsity.pattern import Pattern

_ROUNDING = 1e-11  # of coefficients, relative to the largest


@dataclass(frozen=True, eq=False)
class Units:
    """The size s of every unknown (n,), and the weight of every row (m,)."""

    unknowns: Values
    rows: Values

    def keep(self, lifts: tuple[Lift, ...]) -> bool:
        """Whether transforms of x are those of u in the same units, as they are where sizes do not change along an axis."""
        for lift in lifts:
            size, fields = self.unknowns[lift.unknowns], np.random.default_rng(0).random((1, len(lift.unknowns)))
            own = lift.forward(fields)
            if (np.abs(lift.forward(size * fields) - size * own) > _ROUNDING * size * np.abs(own).max()).any():
                return False
        return True

    def applied(self, tape: Tape, rows: csr_array, lifts: tuple[Lift, ...]) -> tuple[Tape, csr_array]:
        """Write a tape, whose coefficients of lifts follow the unknowns, and its rows over x = u/s, and weigh the rows."""
        factor = np.ones(tape.cells)
        sizes = [self.unknowns, *(self.unknowns[lift.unknowns] for lift in lifts)]
        factor[tape.unknown_cells] = np.concatenate(sizes)
        matrices = [*(operand for block in tape.blocks for operand in block.operands), rows]
        values = np.concatenate([matrix.data * factor[matrix.indices] for matrix in matrices])
        # Laws in other units may round the same coefficients in other ways; what has the same structure is found by bits.
        split = np.split(equalized(values), np.cumsum([matrix.nnz for matrix in matrices])[:-1])
        changed = iter(csr_array((one, m.indices, m.indptr), shape=m.shape) for one, m in zip(split, matrices))
        blocks = [Block(block.op, block.first, *(next(changed) for _ in block.operands)) for block in tape.blocks]
        weighted = next(changed)
        weighted.data = weighted.data * np.repeat(self.rows, np.diff(rows.indptr))
        return Tape(tape.unknowns, tape.params, blocks, tape.graphs), weighted

    def slopes(self, pattern: Pattern) -> Values:
        """Return what slopes in a pattern by the field are multiplied by, to be those of weighted rows by x."""
        found: Values = self.rows[pattern.row_of()] * self.unknowns[pattern.indices]
        return found

    def curvature(self, pattern: Pattern) -> Values:
        """Return the same for second derivatives; those of weighted rows have their multipliers."""
        found: Values = self.unknowns[pattern.row_of()] * self.unknowns[pattern.indices]
        return found
