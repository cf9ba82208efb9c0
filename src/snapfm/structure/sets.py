"""Index sets of tensor elements, all elements at once: a boolean CSR matrix, element by index.

Row e holds, in increasing order, the indices that element e may depend on. Every sparsity rule reduces to three
moves on these rows: gather (copy rows), union (merge row by row) and group (merge many rows into one). Plain numpy
and SciPy; no torch, no law.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from snapfm.arrays import Index

NONE = -1  # in a gather: this element copies nothing and depends on nothing


@dataclass(frozen=True)
class Sets:
    """`size` index sets over the universe 0 .. width - 1, in CSR form with sorted indices."""

    indptr: Index
    indices: Index
    width: int

    @classmethod
    def identity(cls, size: int) -> Sets:
        """Give element e the set {e}."""
        return cls(np.arange(size + 1), np.arange(size), size)

    @classmethod
    def empty(cls, size: int, width: int = 0) -> Sets:
        """Give every element the empty set."""
        return cls(np.zeros(size + 1, np.int64), np.zeros(0, np.int64), width)

    @property
    def size(self) -> int:
        """Number of sets."""
        return len(self.indptr) - 1

    @property
    def counts(self) -> Index:
        """Number of indices in each set."""
        return np.diff(self.indptr)

    @property
    def nnz(self) -> int:
        """Number of indices in all sets together."""
        return int(self.indptr[-1])

    def rows(self) -> Index:
        """Element of every stored index, beside `indices`."""
        return np.repeat(np.arange(self.size), self.counts)

    def gather(self, source: Index) -> Sets:
        """Copy: element e of the result has the set of element source[e], or none where source[e] is NONE."""
        if self.nnz == 0:
            return Sets.empty(len(source), self.width)
        present = source >= 0
        safe = np.where(present, source, 0)
        counts = np.where(present, self.indptr[safe + 1] - self.indptr[safe], 0)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        shift = np.repeat(self.indptr[safe] - indptr[:-1], counts)
        return Sets(indptr, self.indices[shift + np.arange(int(indptr[-1]))], self.width)

    def keep(self, present: npt.NDArray[np.bool_]) -> Sets:
        """Empty the sets of the elements that are not `present`."""
        if present.all():
            return self
        return self.gather(np.where(present, np.arange(self.size), NONE))

    def group(self, label: Index, source: Index, size: int) -> Sets:
        """Merge: element e of the result is the union of the sets source[i] over all i with label[i] == e."""
        if self.nnz == 0:
            return Sets.empty(size, self.width)
        selection = csr_array((np.ones(len(label), bool), (label, source)), shape=(size, self.size))
        return _from_csr(selection @ self._csr())

    def _csr(self, width: int | None = None) -> csr_array:
        width = self.width if width is None else width
        return csr_array((np.ones(self.nnz, bool), self.indices, self.indptr), shape=(self.size, width))


def stacked(parts: list[Sets]) -> Sets:
    """Put the elements of several tensors one after the other."""
    starts = np.cumsum([0, *(part.nnz for part in parts)])
    indptr = np.concatenate([[0], *(part.indptr[1:] + start for part, start in zip(parts, starts))])
    return Sets(indptr, np.concatenate([part.indices for part in parts]), max(part.width for part in parts))


def union(parts: Iterable[Sets]) -> Sets:
    """Merge element by element; the widest universe wins."""
    parts = list(parts)
    full = [part for part in parts if part.nnz]
    if not full:
        return max(parts, key=lambda part: part.width)
    width = max(part.width for part in parts)
    total = full[0]._csr(width)
    for part in full[1:]:
        total = total + part._csr(width)
    return _from_csr(total)


def _from_csr(matrix: csr_array) -> Sets:
    matrix.sum_duplicates()  # sorts, and merges what a product may have left twice
    return Sets(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.shape[1])


def cross(left: Sets, right: Sets) -> tuple[Index, Index, Index]:
    """List (element, i, j) for all i in left[e] and j in right[e]."""
    repeats = np.repeat(right.counts, left.counts)  # each left index meets the whole right set of its element
    element = np.repeat(left.rows(), repeats)
    one = np.repeat(left.indices, repeats)
    ends = np.cumsum(repeats)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - repeats, repeats)
    return element, one, right.indices[np.repeat(np.repeat(right.indptr[:-1], left.counts), repeats) + within]
