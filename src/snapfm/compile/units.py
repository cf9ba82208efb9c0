"""Units: laws over x = u/s, each row times a weight (math.md, eq. units-of-laws). Lengths in x are those of a diagonal metric.

Applied to a tape, so that bounds stay bounds, affine rows stay affine, and every reduction applies to what is left. Derivatives
that others ask of the laws stay those by the field. Structure only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Values
from snapfm.compile.lower.tape import Tape
from snapfm.compile.sparsity.pattern import Pattern


@dataclass(frozen=True, eq=False)
class Units:
    """The size s of every unknown (n,), and the weight of every row (m,)."""

    unknowns: Values
    rows: Values

    def applied(self, tape: Tape, rows: csr_array) -> tuple[Tape, csr_array]:
        """Write a tape and its rows over x = u/s, and weigh the rows."""
        factor = np.ones(tape.cells)
        factor[tape.unknown_cells] = self.unknowns

        def over(matrix: csr_array) -> csr_array:
            return csr_array((matrix.data * factor[matrix.indices], matrix.indices, matrix.indptr), shape=matrix.shape)

        weighted = over(rows)
        weighted.data *= np.repeat(self.rows, np.diff(rows.indptr))
        blocks = [block.mapped(over, block.first) for block in tape.blocks]
        return Tape(tape.unknowns, tape.params, blocks, tape.graphs), weighted

    def slopes(self, pattern: Pattern) -> Values:
        """Return what slopes in a pattern by the field are multiplied by, to be those of weighted rows by x."""
        found: Values = self.rows[pattern.row_of()] * self.unknowns[pattern.indices]
        return found

    def curvature(self, pattern: Pattern) -> Values:
        """Return the same for second derivatives; those of weighted rows have their multipliers."""
        found: Values = self.unknowns[pattern.row_of()] * self.unknowns[pattern.indices]
        return found
