"""Dense: the reference. LDLᵀ without pivoting of full matrices, column by column, all lanes at once, in plain torch.

Slow and obvious; any device. Every operation is element by element, so no lane's bits depend on another: batched LAPACK
would be faster and could not promise that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from snapfm.linear.base import Index, PivotRule
from snapfm.linear.pivots import Tally, scales
from snapfm.linear.whole import Task, Whole, task
from snapfm.structure.pattern import Pattern


@dataclass(frozen=True)
class Dense:
    """Settings: what to do about weak pivots, and how often to refine a solution against the matrix itself."""

    pivots: PivotRule = field(default_factory=PivotRule)
    refinements: int = 0

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> PreparedDense:
        """Keep the pattern; there is nothing to plan."""
        return PreparedDense(task(self.pivots, self.refinements, pattern, signs))


@dataclass(frozen=True)
class PreparedDense:
    """One pattern, and how its systems are to be solved."""

    task: Task

    @property
    def pattern(self) -> Pattern:
        """The lower triangle it was prepared for."""
        return self.task.pattern

    @property
    def fill(self) -> int:
        """Entries of the factor, the diagonal included."""
        return self.pattern.rows * (self.pattern.rows + 1) // 2

    def workspace(self) -> DenseWorkspace:
        """Give room for factors of its own, for one call at a time."""
        return DenseWorkspace(self.task)


class DenseWorkspace(Whole):
    """Full matrices (n, n, lanes)."""

    def _factorize(self, values: Tensor, tally: Tally) -> None:
        pattern, device = self.task.pattern, values.device
        size = pattern.rows
        row, column = (torch.from_numpy(a).to(device) for a in (pattern.row_of(), pattern.indices))
        scale = scales(row, column, values, size, self.task.signed)
        signs = self.task.signs.to(values)
        lower = values.new_zeros(size, size, values.shape[1])
        lower[row, column] = values
        self._matrix = lower.clone()
        self._matrix[column, row] = values
        self._inverse = values.new_empty(size, values.shape[1])
        for j in range(size):
            self._inverse[j] = tally.invert(lower[j, j].unsqueeze(0), scale[j].unsqueeze(0), signs[j].view(1, 1))[0]
            below = lower[j + 1 :, j].clone()
            scaled = below * self._inverse[j]
            lower[j + 1 :, j + 1 :] -= below.unsqueeze(1) * scaled.unsqueeze(0)
            lower[j + 1 :, j] = scaled
        self._lower = lower

    def _substitute(self, x: Tensor) -> Tensor:
        for j in range(len(x)):
            x[j + 1 :] -= self._lower[j + 1 :, j] * x[j]
        x *= self._inverse
        for j in range(len(x) - 1, 0, -1):
            x[:j] -= self._lower[j, :j] * x[j]
        return x

    def _residual(self, b: Tensor, x: Tensor) -> Tensor:
        left = b.clone()
        for j in range(len(x)):
            left -= self._matrix[:, j] * x[j]
        return left
