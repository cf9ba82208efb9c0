"""Gram: AAᵀ of a sparse A, factorized by any solver. Closed forms solve with it, and draws given laws that are linearized.

The pattern of A is analyzed once. A factor never changes: it serves any number of right-hand sides and threads.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Index, Values
from snapfm.compile.sparsity.pattern import Pattern, gram
from snapfm.kernels.numba.packs import WIDTH
from snapfm.linear.base import Prepared, Solver, Workspace
from snapfm.linear.fronts import Fronts, PreparedFronts


class GramFactor(Protocol):
    """The factor of one AAᵀ."""

    @property
    def log_determinant(self) -> float:
        """The logarithm of |det AAᵀ|."""
        ...

    def solve(self, right: Values) -> Values:
        """Solve for the rows of `right` (b, m); an answer's bits do not depend on the other rows or on their number."""
        ...


class Gram:
    """The symbolic factorization of AAᵀ for matrices with the pattern of `like`; `solver` None takes Fronts.

    Raises TooLarge for a factor of more than `largest` bytes.
    """

    def __init__(self, like: csr_array, solver: Solver | None = None, largest: float = math.inf) -> None:
        size = like.shape[0]
        entries = csr_array((np.ones(like.nnz), like.indices, like.indptr), shape=like.shape)
        row, column = _lower(gram(entries))[:2]
        each = np.arange(size)  # a row without entries has a place on the diagonal, too
        self._pattern = Pattern.from_coordinates(np.append(row, each), np.append(column, each), (size, size))
        self._keys: Index = self._pattern.row_of() * size + self._pattern.indices
        self._prepared: Prepared | None = None
        if self._pattern.nnz > size:
            self._prepared = (Fronts(largest) if solver is None else solver).prepare(self._pattern)

    @property
    def diagonal(self) -> bool:
        """Whether AAᵀ is diagonal, as for totals over disjoint slices: a solve is a division, without an error to correct."""
        return self._prepared is None

    def factor(self, matrix: csr_array, soft: float = 0.0) -> GramFactor:
        """Factorize AAᵀ, its diagonal times 1 + `soft`. A row of A that is zero becomes one of the identity."""
        row, column, data = _lower(matrix @ matrix.T)
        values = np.zeros(len(self._keys))
        values[np.searchsorted(self._keys, row * matrix.shape[0] + column)] = data
        on_diagonal = self._pattern.indptr[1:] - 1
        own = values[on_diagonal]
        values[on_diagonal] = np.where(own == 0.0, 1.0, own * (1.0 + soft))
        if self._prepared is None:
            return _Diagonal(values)
        if isinstance(self._prepared, PreparedFronts):
            return self._prepared.factor(values)
        return _ByWorkspace(self._prepared, values)


def _lower(matrix: csr_array) -> tuple[Index, Index, Values]:
    """Return rows, columns and values of the entries of a lower triangle."""
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    inside = row >= matrix.indices
    return row[inside], matrix.indices[inside].astype(np.int64), matrix.data[inside]


class _Diagonal:
    """A diagonal AAᵀ: a solve is a division."""

    def __init__(self, diagonal: Values) -> None:
        self._diagonal = diagonal

    @property
    def log_determinant(self) -> float:
        return float(np.log(np.abs(self._diagonal)).sum())

    def solve(self, right: Values) -> Values:
        found: Values = right / self._diagonal
        return found


class _ByWorkspace:
    """The factor by a solver of the seam, whose workspaces serve one thread at a time: free ones are lent."""

    def __init__(self, prepared: Prepared, values: Values) -> None:
        self._prepared, self._values = prepared, np.repeat(values[:, None], WIDTH, axis=1)
        self._free: list[Workspace] = [self._made()]
        self.log_determinant = float(self._free[0].log_determinant()[0])

    def solve(self, right: Values) -> Values:
        try:
            work = self._free.pop()  # atomic, like append
        except IndexError:
            work = self._made()
        out, lanes = np.empty_like(right), np.zeros((right.shape[1], WIDTH))
        for start in range(0, len(right), WIDTH):
            some = right[start : start + WIDTH]
            lanes[:] = 0.0
            lanes[:, : len(some)] = some.T
            work.solve(lanes)
            out[start : start + WIDTH] = lanes[:, : len(some)].T
        self._free.append(work)
        return out

    def _made(self) -> Workspace:
        work = self._prepared.workspace()
        work.factorize(self._values)
        return work
