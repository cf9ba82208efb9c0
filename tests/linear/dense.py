"""The slow, obvious oracle of the linear solvers: LDLᵀ without pivoting of one full matrix, column by column, in numpy.

It follows the rule for weak pivots of linear.base in the order as given. Solvers may eliminate in another order, which
keeps outcome, inertia and solution, but not the single pivots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snapfm.linear.base import TINY, Outcome


@dataclass(frozen=True)
class Dense:
    """The factors of one matrix (n, n)."""

    lower: np.ndarray  # unit lower triangle
    inverse: np.ndarray  # (n,) of the pivots; 0 where the row is left out
    status: Outcome
    negative: int
    weak: int

    def solve(self, rhs):
        x = np.array(rhs)
        for j in range(len(x)):
            x[j + 1 :] -= self.lower[j + 1 :, j] * x[j]
        x *= self.inverse
        for j in range(len(x) - 1, -1, -1):
            x[:j] -= self.lower[j, :j] * x[j]
        return x

    def log_determinant(self):
        if self.status == Outcome.NONFINITE:
            return np.nan
        return -np.log(np.abs(self.inverse)).sum() if self.status == Outcome.FACTORED else -np.inf


def factorize(matrix, signs=None):
    """Factorise one symmetric matrix (n, n)."""
    size = len(matrix)
    left, lower, inverse = np.array(matrix), np.eye(size), np.zeros(size)
    negative = weak = 0
    broken = not np.isfinite(matrix).all()
    with np.errstate(all="ignore"):
        for j in range(size):
            scale = abs(matrix[j, j])
            if signs is not None:
                scale = max([scale] + [matrix[j, i] ** 2 / abs(matrix[i, i]) for i in range(j) if matrix[i, i] != 0.0])
            pivot = left[j, j]
            broken = broken or not np.isfinite(pivot)
            if abs(pivot) <= TINY * scale:
                weak += 1
                continue
            negative += int(pivot < 0)
            inverse[j] = 1.0 / pivot
            lower[j + 1 :, j] = left[j + 1 :, j] / pivot
            left[j + 1 :, j + 1 :] -= np.outer(lower[j + 1 :, j], left[j, j + 1 :])
    status = Outcome.NONFINITE if broken else Outcome.SINGULAR if weak else Outcome.FACTORED
    return Dense(lower, inverse, status, negative, weak)
