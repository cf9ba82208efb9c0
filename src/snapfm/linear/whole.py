"""What the solvers on whole tensors share: the doors, the sides, one factor for many lanes, and refinement.

Dense and Levels fill in the three steps. Plain torch on the device of what they are given; may import linear.base and
linear.pivots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from snapfm.linear.base import (
    Array,
    Index,
    PivotRule,
    Pivots,
    check_pattern,
    check_rhs,
    check_values,
    tensor,
)
from snapfm.linear.pivots import Tally
from snapfm.structure.pattern import Pattern


class Whole(ABC):
    """A workspace whose steps are torch operations on (rows, lanes)."""

    def __init__(self, rule: PivotRule, refinements: int, pattern: Pattern, signs: Index | None) -> None:
        check_pattern(pattern, signs)
        self.pattern, self.rule, self.refinements = pattern, rule, refinements
        self.signs = torch.zeros(pattern.rows) if signs is None else torch.as_tensor(signs)
        self.signed = signs is not None
        self._lanes = 0

    def factorize(self, values: Array) -> Pivots:
        """Factorise every lane of values (nnz, lanes)."""
        self._lanes = check_values(values, self.pattern.nnz)
        given = tensor(values)
        self._values = given.clone() if self.refinements else given
        tally = Tally(self.rule, self._lanes, given)
        self._factorize(given, tally)
        return tally.pivots().of_kind(values)

    def solve(self, rhs: Array, out: Array | None = None) -> Array:
        """Solve for rhs (n, lanes) or (n, sides, lanes), into `out` or else in place; gives where the answer is."""
        sides, lanes = check_rhs(rhs, out, self.pattern.rows, self._lanes)
        answer = rhs if out is None else out
        given, into = tensor(rhs).view(-1, sides, lanes), tensor(answer).view(-1, sides, lanes)
        for side in range(sides):
            into[:, side] = self._refined(given[:, side].clone())
        return answer

    def _refined(self, b: Tensor) -> Tensor:
        """Solve once, then for the residual; a lane keeps what it had unless its residual shrinks."""
        x = self._substitute(b.clone())
        if self.refinements:
            residual = self._residual(b, x)
            for _ in range(self.refinements):
                trial = x + self._substitute(residual.clone())
                left = self._residual(b, trial)
                better = left.abs().amax(0) <= residual.abs().amax(0)  # false for NaN
                x, residual = torch.where(better, trial, x), torch.where(better, left, residual)
        return x

    @property
    @abstractmethod
    def fill(self) -> int:
        """Entries of the factor, the diagonal included."""

    @abstractmethod
    def _factorize(self, values: Tensor, tally: Tally) -> None:
        """Factorise and keep the factors; have the tally judge and invert every pivot."""

    @abstractmethod
    def _substitute(self, x: Tensor) -> Tensor:
        """Give L⁻ᵀ D⁻¹ L⁻¹ x; x (n, lanes) may be overwritten."""

    @abstractmethod
    def _residual(self, b: Tensor, x: Tensor) -> Tensor:
        """Give b - A x."""
