"""Where entries may be non-zero: `Pattern` for a sparse matrix, and `Sets` of indices for the elements of a tensor.

A pattern joins detection, coloring and solving. Sets are what detection works on, all elements at once: row e of a boolean CSR
matrix holds, in increasing order, the indices that element e may depend on. Every sparsity rule reduces to three moves on
these rows: gather (copy rows), union (merge row by row) and group (merge many rows into one). No torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from snapfm.arrays import Index, Mask, Values
from snapfm.errors import LawError, ShapeError
from snapfm.kernels.merging import merged
from snapfm.text import counted

NONE = -1  # in a gather: this element copies nothing and depends on nothing

# Entries of a pattern that are written out: fifty million take 0.4 GB here, and several times that in a solver.
ENTRY_LIMIT = 50_000_000
# Entries of JJᵀ that are written out: two hundred million take 2.4 GB, and as much again for their lower triangle.
GRAM_LIMIT = 200_000_000
_COUNTED = 10_000_000  # of them are counted at a time, and forgotten again


class TooDense(LawError):
    """A pattern has too many entries to be written out; only its number of `entries` was computed."""

    def __init__(self, message: str, entries: int) -> None:
        super().__init__(message)
        self.entries = entries

    @property
    def reason(self) -> str:
        """Say what is not written out: a clause of a description."""
        return f"a Jacobian with {counted(self.entries)} entries or more is not written out"


class TooLarge(TooDense):
    """JJᵀ or the factor of a matrix has too many entries to be written out; `what` is a clause that says which."""

    def __init__(self, what: str, entries: int) -> None:
        super().__init__(
            f"laws expect matrices that fit into memory; {what} ({entries:,} entries or more). Use a coarser field, or rows "
            "that read fewer unknowns.",
            entries,
        )
        self.what = what

    @property
    def reason(self) -> str:
        """Say what is not written out: a clause of a description."""
        return self.what


def gram(matrix: csr_array, limit: int = GRAM_LIMIT) -> csr_array:
    """Return AAᵀ; raises TooLarge for more entries than `limit`, which are counted before any is listed."""
    counts = np.bincount(matrix.indices, minlength=matrix.shape[1])
    pattern = csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
    # Rows have an entry in common if they share a column; if they share two, it is counted twice.
    most = np.cumsum(np.minimum(pattern @ counts, matrix.shape[0]))
    if len(most) and most[-1] > limit:
        across, entries = pattern.T.tocsr(), 0
        for some in np.split(np.arange(len(most)), np.searchsorted(most, np.arange(_COUNTED, most[-1], _COUNTED))):
            entries += csr_array(pattern[some] @ across).nnz
            if entries > limit:
                raise TooLarge("JJᵀ is not written out", entries)
    return csr_array(matrix @ matrix.T)


def refuse_entries(count: int) -> None:
    """Raise TooDense for more entries than are written out."""
    if count > ENTRY_LIMIT:
        raise TooDense(
            f"expects rows with at most {ENTRY_LIMIT:,} entries in all; got {count:,}: each row reads a whole plane or more of "
            "the field (a transform, a long scan, a full product). Keep fewer rows (the lowest modes), transform along one axis, "
            "or use a coarser field.",
            count,
        )


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

    def shared(self, source: Index) -> Sets:
        """Copy as `gather` does, without writing the copies out: for many elements with few different sets."""
        return SharedSets(self, source)

    def keep(self, present: Mask) -> Sets:
        """Empty the sets of the elements that are not `present`."""
        if present.all():
            return self
        return self.gather(np.where(present, np.arange(self.size), NONE))

    def group(self, label: Index, source: Index, size: int) -> Sets:
        """Merge: element e of the result is the union of the sets source[i] over all i with label[i] == e."""
        if self.nnz == 0:
            return Sets.empty(size, self.width)
        order = np.arange(len(label)) if (np.diff(label) >= 0).all() else np.argsort(label, kind="stable")
        pointers = np.concatenate([[0], np.cumsum(np.bincount(label, minlength=size))]).astype(np.int64, copy=False)
        indptr, indices = merged(pointers, source[order], self.indptr, self.indices, self.width)
        return Sets(indptr, indices, self.width)

    def over(self, matrix: csr_array) -> Sets:
        """Merge, for each row of a sparse matrix, the sets of the elements that it has entries for."""
        if self.nnz == 0:
            return Sets.empty(matrix.shape[0], self.width)
        rows = matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int64, copy=False)
        indptr, indices = merged(*rows, self.indptr, self.indices, self.width)
        return Sets(indptr, indices, self.width)

    def csr(self, width: int | None = None) -> csr_array:
        """Return the sets as a boolean matrix, element by index."""
        width = self.width if width is None else width
        return csr_array((np.ones(self.nnz, bool), self.indices, self.indptr), shape=(self.size, width))


class SharedSets(Sets):
    """Elements that share sets: element e has set of[e] of `base`. Transforms and sums spread one set over whole planes.

    Copies, merges and unions work on the sets that differ. Pointers and indices are written out at first use.
    """

    def __init__(self, base: Sets, of: Index) -> None:
        """Let element e have set of[e] of `base`, or none where that is NONE."""
        for name, value in (("base", base), ("of", of), ("width", base.width)):
            object.__setattr__(self, name, value)

    base: Sets
    of: Index

    @property
    def size(self) -> int:
        """Number of sets."""
        return len(self.of)

    @cached_property
    def counts(self) -> Index:
        """Number of indices in each set."""
        found: Index = np.append(self.base.counts, 0)[self.of]  # NONE is the last
        return found

    @cached_property
    def indptr(self) -> Index:
        """Where the set of each element begins."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def indices(self) -> Index:
        """The sets, written out; raises TooDense."""
        refuse_entries(self.nnz)
        return self.base.gather(self.of).indices

    def gather(self, source: Index) -> Sets:
        """Copy; see Sets.gather."""
        return SharedSets(self.base, np.where(source >= 0, self.of[source], NONE) if self.size else source)

    def group(self, label: Index, source: Index, size: int) -> Sets:
        """Merge; see Sets.group. A set that comes twice under one label is merged once."""
        key = label * (self.base.size + 1) + self.of[source] + 1
        key = np.sort(key)
        key = key[np.diff(key, prepend=-1) != 0]
        label, of = key // (self.base.size + 1), key % (self.base.size + 1) - 1
        return self.base.group(label[of >= 0], of[of >= 0], size)


def stacked(parts: list[Sets]) -> Sets:
    """Put the elements of several tensors one after the other."""
    if any(isinstance(part, SharedSets) for part in parts):
        bases = [part.base if isinstance(part, SharedSets) else part for part in parts]
        starts = np.cumsum([0, *(base.size for base in bases)])
        numbers = [np.where(_numbers(part) < 0, NONE, _numbers(part) + start) for part, start in zip(parts, starts)]
        return SharedSets(stacked(bases), np.concatenate(numbers))
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
    if len(full) == 1 and full[0].width == width:
        return full[0]
    if any(isinstance(part, SharedSets) for part in full):
        return _union_of_shared(full)
    total = full[0].csr(width)
    for part in full[1:]:
        total = total + part.csr(width)
    return _from_csr(total)


def _union_of_shared(parts: list[Sets]) -> Sets:
    """Merge every combination of sets that occurs once."""
    key = np.zeros(parts[0].size, np.int64)
    for part in parts:
        _, key = np.unique(key, return_inverse=True)
        key = key * (part.size + 1) + _numbers(part) + 1
    _, first, member = np.unique(key, return_index=True, return_inverse=True)
    different = []
    for part in parts:
        base = part.base if isinstance(part, SharedSets) else part
        numbers = _numbers(part)[first]
        refuse_entries(int(np.append(base.counts, 0)[numbers].sum()))
        different.append(base.gather(numbers))
    return union(different).shared(member)


def _numbers(sets: Sets) -> Index:
    """Number of the set that each element has."""
    return sets.of if isinstance(sets, SharedSets) else np.arange(sets.size)


def _from_csr(matrix: csr_array) -> Sets:
    matrix.sum_duplicates()  # sorts, and merges what a product may have left twice
    return Sets(
        matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int64, copy=False), matrix.shape[1]
    )


class GrowingSets:
    """Sets of elements that are appended one group after the other, without copying those before."""

    def __init__(self, width: int) -> None:
        self.width, self.size = width, 0
        self._indptr, self._indices = np.zeros(1, np.int64), np.zeros(0, np.int64)

    def append(self, sets: Sets) -> None:
        """Append elements behind the last."""
        start = int(self._indptr[self.size])
        self._indices = _with_room(self._indices, start, start + sets.nnz)
        self._indptr = _with_room(self._indptr, self.size + 1, self.size + sets.size + 1)
        self._indices[start : start + sets.nnz] = sets.indices
        self._indptr[self.size + 1 : self.size + sets.size + 1] = start + sets.indptr[1:]
        self.size += sets.size

    def reach(self, element: int) -> None:
        """Append empty sets up to an element."""
        self.append(Sets.empty(element - self.size, self.width))

    def cut(self, size: int) -> None:
        """Drop all elements from `size` on."""
        self.size = min(self.size, size)

    def sets(self) -> Sets:
        """View what is there."""
        indptr = self._indptr[: self.size + 1]
        return Sets(indptr, self._indices[: indptr[-1]], self.width)


def _with_room(array: Index, used: int, wanted: int) -> Index:
    """Return an array with room for `wanted` numbers; doubled, so that all copies together cost as much as the last."""
    if wanted <= len(array):
        return array
    larger = np.empty(max(2 * len(array), wanted), np.int64)
    larger[:used] = array[:used]
    return larger


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
    def full(cls, rows: int, columns: int) -> Pattern:
        """Return the pattern without a zero."""
        return cls(rows, columns, columns * np.arange(rows + 1), np.tile(np.arange(columns), rows))

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
        return cls(
            shape[0], shape[1], matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int64, copy=False)
        )

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

    def csr(self, values: Values) -> csr_array:
        """Join with the values of one sample."""
        return csr_array((values, self.indices, self.indptr), shape=(self.rows, self.columns))

    def keys(self) -> Index:
        """Number every entry, in increasing order: row · columns + column."""
        return self.row_of() * self.columns + self.indices

    def pairs(self, limit: int) -> Pattern | None:
        """Return the pairs of columns that share a row; None if there may be more of them than the limit."""
        if min(int((self.counts**2).sum()), self.columns**2) > limit:
            return None
        entries = self.csr(np.ones(self.nnz))
        joined = (entries.T @ entries).tocoo()
        return Pattern.from_coordinates(joined.row, joined.col, (self.columns, self.columns))

    def mirrored(self) -> tuple[Pattern, Index]:
        """Complete the lower triangle of a symmetric matrix; also return the entry of it that each entry equals."""
        row, column = self.row_of(), self.indices
        both = np.concatenate([row, column]), np.concatenate([column, row])
        whole = Pattern.from_coordinates(*both, (self.rows, self.columns))
        one, other = whole.row_of(), whole.indices
        lower = np.maximum(one, other) * self.columns + np.minimum(one, other)
        return whole, np.searchsorted(self.keys(), lower)


def _range(indices: Index) -> str:
    return f"{len(indices)} from {indices.min()} to {indices.max()}" if len(indices) else "none"
