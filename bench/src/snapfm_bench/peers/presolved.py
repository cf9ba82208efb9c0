"""Our own presolve, for peers: pinned unknowns and implied rows are removed before any iteration.

No more than that: with substituted unknowns a solver would no longer be itself.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from snapfm.arrays import Index, Values
from snapfm.compile import CompiledLaws
from snapfm.laws import Params
from snapfm.solve.base import Limits


class Presolved:
    """A CompiledLaws and its limits with the rows that remain: `kept`, in the order of the stack.

    Removed are rows that pin one unknown (`fixed`, by `pins`) and equality rows that others imply. Without `presolve`
    every row is kept and no unknown fixed.
    """

    def __init__(self, structure: CompiledLaws, limits: Limits, presolve: bool = True) -> None:
        self.structure, self.limits = structure, limits
        self.pins: Index = np.zeros(0, np.int64)
        self.fixed: Index = np.zeros(0, np.int64)
        self.weights: Values = np.zeros(0)
        self.kept: Index = np.arange(structure.rows)
        if presolve:
            found = structure.presolve
            if structure.scalar.transform is None:  # else coefficients are pinned, which are no unknowns of the field
                self.pins, self.fixed = found.pins, found.fixed
                matrix = structure.pattern.csr(structure.constants)
                self.weights = np.asarray(matrix[self.pins, self.fixed]).ravel() if len(self.pins) else np.zeros(0)
            self.kept = np.setdiff1d(np.arange(structure.rows), np.concatenate([self.pins, found.dropped]))

    @cached_property
    def free(self) -> Index:
        """Unknowns that no row pins."""
        return np.setdiff1d(np.arange(self.structure.unknowns), self.fixed)

    def pinned(self, params: Params, count: int) -> Values:
        """Evaluate the fixed unknowns: (b, fixed). A pinning row is weight·u + constant, so its residual at 0 is the constant."""
        zero = torch.zeros(count, *self.structure.shape, dtype=torch.float64)
        constant: Values = self.structure.residual(zero, params).numpy()[:, self.pins]
        return -constant / self.weights
