"""The augmented matrix of one sample, [[W, Jᵀ], [J, −D]]: factorised, its negative eigenvalues counted, solved with.

Small systems are dense, with pivoting (LAPACK's Bunch–Kaufman), so that no zero on the diagonal of W can hurt; large ones
go to the sparse LDLᵀ of `linear`, whose pivots tell signs too, and which D > 0 keeps away from zero. What is planned once
is shared by all calls; matrix and factors are a workspace's, for one call at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dsytrf, dsytrs
from scipy.sparse import csr_array, tril

from snapfm.linear import Lanes, Outcome
from snapfm.project.oracle import FULL
from snapfm.structure import Structure
from snapfm.structure.pattern import Pattern

Values = npt.NDArray[np.float64]

# Unknowns and rows up to which a dense factorisation is quicker than it is to plan a sparse one.
DENSE_LIMIT = 700
_REFINEMENTS = 3  # of a sparse solve, against what missing pivoting costs


@dataclass(frozen=True)
class DensePlan:
    """Any augmented matrix of `unknowns` + `rows`."""

    unknowns: int
    rows: int

    def workspace(self) -> DenseMatrix:
        """Give room for a matrix and its factors, for one call at a time."""
        return DenseMatrix(self)


class DenseMatrix:
    """One matrix and its factors. `negative` counts its negative eigenvalues, None if it could not be factorised."""

    def __init__(self, plan: DensePlan) -> None:
        self.unknowns, self.rows = plan.unknowns, plan.rows
        self.negative: int | None = None
        self._matrix = np.zeros((plan.unknowns + plan.rows, plan.unknowns + plan.rows), order="F")

    def factorize(self, bend: csr_array, diagonal: Values, jacobian: csr_array, soft: Values) -> bool:
        """Factorise with W = bend + diagonal, D = soft; say whether as many eigenvalues are negative as there are rows."""
        n, matrix = self.unknowns, self._matrix
        self.negative = None
        matrix[:] = 0.0
        matrix[:n, :n] = bend.toarray()
        matrix[n:, :n] = jacobian.toarray()
        place = np.arange(n + self.rows)
        matrix[place[:n], place[:n]] += diagonal
        matrix[place[n:], place[n:]] -= soft
        if not np.isfinite(matrix).all():
            return False
        self._factor, self._pivots, info = dsytrf(matrix, lower=1)
        if info != 0:
            return False
        single = self._pivots > 0
        # A pivot of two by two is chosen for a negative determinant: one eigenvalue of either sign.
        self.negative = int((np.diagonal(self._factor)[single] < 0).sum()) + int((~single).sum()) // 2
        return self.negative == self.rows

    def solve(self, right: Values) -> Values:
        """Solve with the last factors."""
        answer: Values = dsytrs(self._factor, self._pivots, right, lower=1)[0]
        return answer


class SparsePlan:
    """The augmented matrix on the pattern of one structure; nothing in it changes."""

    def __init__(self, structure: Structure) -> None:
        n, m = structure.unknowns, structure.rows
        self.unknowns, self.rows, self.size = n, m, n + m
        place = np.arange(n + m)
        row, column = [place, n + structure.pattern.row_of()], [place, structure.pattern.indices]
        for law in structure.plans:
            bends = law.curvature.pattern
            if bends is not None:
                below = bends.indices <= bends.row_of()
                row.append(bends.row_of()[below])
                column.append(bends.indices[below])
        pattern = Pattern.from_coordinates(np.concatenate(row), np.concatenate(column), (n + m, n + m))
        self._keys = pattern.row_of() * self.size + pattern.indices
        self.diagonal = pattern.indptr[1:] - 1
        self.factors = Lanes(refinements=_REFINEMENTS).prepare(pattern)

    def workspace(self) -> SparseMatrix:
        """Give room for a matrix and its factors, for one call at a time."""
        return SparseMatrix(self)

    def place(self, row: npt.NDArray[np.integer], column: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Say where entries are among the values."""
        return np.searchsorted(self._keys, row.astype(np.int64) * self.size + column)


class SparseMatrix:
    """One matrix and its factors. `negative` counts its negative pivots, None if it could not be factorised."""

    def __init__(self, plan: SparsePlan) -> None:
        self.unknowns, self.rows = plan.unknowns, plan.rows
        self.negative: int | None = None
        self._plan, self._factors = plan, plan.factors.workspace()
        self._values = np.zeros((plan.factors.pattern.nnz, 1))

    def factorize(self, bend: csr_array, diagonal: Values, jacobian: csr_array, soft: Values) -> bool:
        """Factorise with W = bend + diagonal, D = soft; say whether as many pivots are negative as there are rows."""
        values, plan = self._values[:, 0], self._plan
        values[:] = 0.0
        lower = tril(bend, format="coo")
        values[plan.place(lower.row, lower.col)] = lower.data
        slopes = jacobian.tocoo()
        values[plan.place(self.unknowns + slopes.row.astype(np.int64), slopes.col)] = slopes.data
        values[plan.diagonal[: self.unknowns]] += diagonal
        values[plan.diagonal[self.unknowns :]] -= soft
        pivots = self._factors.factorize(self._values)
        factored = int(pivots.status[0]) == Outcome.FACTORED
        self.negative = int(pivots.negative[0]) if factored else None
        return self.negative == self.rows

    def solve(self, right: Values) -> Values:
        """Solve with the last factors."""
        return self._factors.solve(np.ascontiguousarray(right[:, None]))[:, 0]


AugmentedMatrix: TypeAlias = DenseMatrix | SparseMatrix


def augmented(structure: Structure) -> DensePlan | SparsePlan:
    """Choose by size, and by whether the curvature has a pattern at all."""
    n, m = structure.unknowns, structure.rows
    full = n <= FULL and any(plan.curvature.pattern is None for plan in structure.plans)
    return DensePlan(n, m) if full or n + m <= DENSE_LIMIT else SparsePlan(structure)
