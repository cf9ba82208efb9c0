"""Pattern: where the entries of a sparse matrix may be non-zero. The value that joins detection, coloring and solving."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from snapfm.arrays import Index
from snapfm.errors import ShapeError
from snapfm.structure.sets import Sets


@dataclass(frozen=True)
class Pattern:
    """Compressed rows with sorted columns; entry p of the values belongs to (row(p), indices[p])."""

    rows: int
    columns: int
    indptr: Index
    indices: Index

    @classmethod
    def from_sets(cls, sets: Sets, columns: int) -> Pattern:
        """Take the index sets of a law's residual as the pattern of its Jacobian."""
        return cls(sets.size, columns, sets.indptr, sets.indices)

    @classmethod
    def from_coordinates(cls, row: npt.ArrayLike, column: npt.ArrayLike, shape: tuple[int, int]) -> Pattern:
        """Build from (row, column) pairs in any order, repeated or not."""
        row, column = np.asarray(row, np.int64).ravel(), np.asarray(column, np.int64).ravel()
        if row.shape != column.shape or (
            len(row) and (row.min() < 0 or column.min() < 0 or row.max() >= shape[0] or column.max() >= shape[1])
        ):
            raise ShapeError(
                f"pattern=(rows, columns) expects two equally long lists of indices within {shape}; got {_range(row)} and "
                f"{_range(column)}. Index the flattened residual and the flattened field, from 0."
            )
        matrix = csr_array(coo_array((np.ones(len(row), bool), (row, column)), shape=shape))
        matrix.sum_duplicates()
        return cls(shape[0], shape[1], matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64))

    @property
    def nnz(self) -> int:
        """Number of entries that may be non-zero."""
        return int(self.indptr[-1])

    @property
    def counts(self) -> Index:
        """Entries per row."""
        return np.diff(self.indptr)

    def row_of(self) -> Index:
        """Row of every entry, beside `indices`."""
        return np.repeat(np.arange(self.rows), self.counts)

    def entries(self, rows: Index) -> Index:
        """Positions, among all entries, of those in the given rows."""
        counts = self.counts[rows]
        ends = np.cumsum(counts)
        return np.repeat(self.indptr[rows] - (ends - counts), counts) + np.arange(int(ends[-1]) if len(ends) else 0)

    def take(self, rows: Index) -> Pattern:
        """Keep the given rows, in that order."""
        indptr = np.concatenate([[0], np.cumsum(self.counts[rows])])
        return Pattern(len(rows), self.columns, indptr, self.indices[self.entries(rows)])

    def csr(self, values: npt.NDArray[np.float64]) -> csr_array:
        """Join with the values of one sample."""
        return csr_array((values, self.indices, self.indptr), shape=(self.rows, self.columns))


def _range(indices: Index) -> str:
    return f"{len(indices)} from {indices.min()} to {indices.max()}" if len(indices) else "none"
