"""Rows: a program with the unknowns and params it reads, on batches (b, n). What Newton's driver does beside its iterations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from snapfm.kernels import batches
from snapfm.structure.cascade import Level
from snapfm.structure.program import Program

Values = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """A program and, one line per part, the unknowns it reads and the columns of params it reads."""

    program: Program
    inputs: Index
    outside: Index

    def evaluate(self, u: Values, externals: Values) -> Values:
        """Give the rows of a program of one part: (b, rows)."""
        program = self.program
        out = np.empty((len(u), program.pattern.rows))
        batches.evaluate(program.code, program.cells, self.inputs, self.outside, externals, u, out)
        return out

    def march(self, level: Level, u: Values, externals: Values) -> None:
        """Set the unknowns that a level's rows determine. Written: u."""
        program = self.program
        batches.march(
            program.code, program.cells, self.inputs, self.outside, externals, level.unknowns, level.weights, u
        )

    def pull(self, index: Index, u: Values, externals: Values, multipliers: Values, rest: Values) -> None:
        """Add Jᵀλ to `rest`, with λ = multipliers[:, index]. Written: rest."""
        program = self.program
        if self.inputs.shape[1]:
            batches.pull(program.code, program.cells, self.inputs, self.outside, externals, index, multipliers, u, rest)
