"""What the solvers on whole tensors share: the doors, the sides, one factor for many lanes, and refinement.

Dense and Levels fill in the three steps. Plain torch on the device of what they are given; may import linear.base and
linear.pivots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Task:
    """A pattern, and how its systems are to be solved; nothing in it is written after it is made."""

    pattern: Pattern
    rule: PivotRule
    refinements: int
    signs: Tensor  # (n,) the pivots' expected signs, 0 where either will do
    signed: bool


def task(rule: PivotRule, refinements: int, pattern: Pattern, signs: Index | None) -> Task:
    """Check a pattern and its signs, and take them down."""
    check_pattern(pattern, signs)
    by_row = torch.zeros(pattern.rows) if signs is None else torch.as_tensor(signs)
    return Task(pattern, rule, refinements, by_row, signs is not None)


class Whole(ABC):
    """A workspace whose steps are torch operations on (rows, lanes)."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._lanes = 0

    def factorize(self, values: Array) -> Pivots:
        """Factorise every lane of values (nnz, lanes)."""
        self._lanes = check_values(values, self.task.pattern.nnz)
        given = tensor(values)
        self._values = given.clone() if self.task.refinements else given
        tally = Tally(self.task.rule, self._lanes, given)
        self._factorize(given, tally)
        return tally.pivots().of_kind(values)

    def solve(self, rhs: Array, out: Array | None = None) -> Array:
        """Solve for rhs (n, lanes) or (n, sides, lanes), into `out` or else in place; gives where the answer is."""
        sides, lanes = check_rhs(rhs, out, self.task.pattern.rows, self._lanes)
        answer = rhs if out is None else out
        given, into = tensor(rhs).view(-1, sides, lanes), tensor(answer).view(-1, sides, lanes)
        for side in range(sides):
            into[:, side] = self._refined(given[:, side].clone())
        return answer

    def _refined(self, b: Tensor) -> Tensor:
        """Solve once, then for the residual; a lane keeps what it had unless its residual shrinks."""
        x = self._substitute(b.clone())
        if self.task.refinements:
            residual = self._residual(b, x)
            for _ in range(self.task.refinements):
                trial = x + self._substitute(residual.clone())
                left = self._residual(b, trial)
                better = left.abs().amax(0) <= residual.abs().amax(0)  # false for NaN
                x, residual = torch.where(better, trial, x), torch.where(better, left, residual)
        return x

    @abstractmethod
    def _factorize(self, values: Tensor, tally: Tally) -> None:
        """Factorise and keep the factors; have the tally judge and invert every pivot."""

    @abstractmethod
    def _substitute(self, x: Tensor) -> Tensor:
        """Give L⁻ᵀ D⁻¹ L⁻¹ x; x (n, lanes) may be overwritten."""

    @abstractmethod
    def _residual(self, b: Tensor, x: Tensor) -> Tensor:
        """Give b - A x."""
