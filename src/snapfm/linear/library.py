"""Library: one sparse LU of SciPy (SuperLU) per lane.

SuperLU runs in symmetric mode, without pivoting, in the order of kernels.ordering. The diagonal of U is then D, which has
the inertia. It allocates on every call, but needs the memory of one lane where Lanes needs that of eight. Grid of 10⁶
unknowns, one lane, one thread: 14 s, against 17 s for Lanes; MKL Pardiso took 7 s, CHOLMOD 4 s (GPL), qdldl 23 s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array
from scipy.sparse.linalg import SuperLU, splu

from snapfm.arrays import Index, Mask, Values
from snapfm.kernels.ordering import best
from snapfm.linear.base import TINY, Outcome, Pivots, Workspace, check_pattern
from snapfm.structure.pattern import Pattern


@dataclass(frozen=True)
class Library:
    """SciPy's SuperLU; it has no settings."""

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> PreparedLibrary:
        """Choose a fill-reducing order."""
        check_pattern(pattern, signs)
        return PreparedLibrary(pattern, signs)


class PreparedLibrary:
    """The order of one pattern, and the full matrix in that order. Nothing in it changes."""

    def __init__(self, pattern: Pattern, signs: Index | None) -> None:
        self.pattern = pattern
        self.order = best(pattern.indptr, pattern.indices, signs)
        perm = self.order.perm
        self.signs = None if signs is None else signs[perm]
        place = np.empty(pattern.rows, np.int64)
        place[perm] = np.arange(pattern.rows)
        row, column = place[pattern.row_of()], place[pattern.indices]
        self.diagonal = pattern.indptr[1:][perm] - 1
        self._off = off = np.flatnonzero(row != column)
        self._first, self._later = np.minimum(row, column)[off], np.maximum(row, column)[off]
        # Both triangles, by columns: entry k of the full matrix is entry source[k] of the given one.
        source = np.concatenate([np.arange(pattern.nnz), off]) + 1
        rows, columns = np.concatenate([row, column[off]]), np.concatenate([column, row[off]])
        full = csc_array((source, (rows, columns)), shape=(pattern.rows, pattern.rows))
        self._source, self._indices, self._indptr = full.data - 1, full.indices, full.indptr

    def workspace(self) -> LibraryWorkspace:
        """Make a workspace with memory of its own."""
        return LibraryWorkspace(self)

    def full(self, values: Values) -> csc_array:
        """Build the full matrix of one lane, in the order of elimination."""
        shape = (self.pattern.rows, self.pattern.rows)
        return csc_array((values[self._source], self._indices, self._indptr), shape=shape)

    def scale(self, values: Values) -> Values:
        """Compute the scale of every pivot of one lane, in the order of elimination (see linear.base)."""
        size = np.abs(values[self.diagonal])
        if self.signs is None:
            return size
        scale = size.copy()
        inverse = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
        np.maximum.at(scale, self._later, values[self._off] ** 2 * inverse[self._first])
        return scale

    def without(self, values: Values, left_out: Mask) -> Values:
        """Replace rows and columns (given in the order of elimination) by those of the identity."""
        kept = values.copy()
        kept[self._off[left_out[self._first] | left_out[self._later]]] = 0.0
        kept[self.diagonal[left_out]] = 1.0
        return kept


@dataclass(frozen=True)
class _Factor:
    """One lane's factor, in the order of elimination, and the rows that were left out."""

    lu: SuperLU
    left_out: Mask
    log_determinant: float

    def solve(self, rhs: Values) -> Values:
        """Substitute."""
        x: Values = self.lu.solve(np.where(self.left_out, 0.0, rhs))
        return x


class LibraryWorkspace(Workspace):
    """One factor per lane, None where it is NONFINITE."""

    def __init__(self, prepared: PreparedLibrary) -> None:
        super().__init__(prepared.pattern)
        self.prepared = prepared
        self._factors: list[_Factor | None] = []

    def _factorize(self, values: Values, found: Pivots) -> None:
        with np.errstate(all="ignore"):
            self._factors = [self._lane(lane, values[:, lane], found) for lane in range(values.shape[1])]

    def _solve(self, rhs: Values, out: Values) -> None:
        perm = self.prepared.order.perm
        with np.errstate(all="ignore"):
            for lane, factor in enumerate(self._factors):
                given = rhs[perm, lane]
                out[perm, lane] = np.nan if factor is None else factor.solve(given)

    def _log_determinant(self, lanes: int) -> Values:
        return np.array([np.nan if factor is None else factor.log_determinant for factor in self._factors])

    def _lane(self, lane: int, values: Values, found: Pivots) -> _Factor | None:
        """Factorize one lane, again without its weak pivots if there are any. Written: the lane of `found`."""
        prepared = self.prepared
        scale, left_out = prepared.scale(values), np.zeros(prepared.pattern.rows, bool)
        smallest, usable = np.inf, bool(np.isfinite(values).all())
        while usable:
            lu, pivots, weak = self._eliminate(values, scale, left_out)
            smallest = np.fmin(smallest, np.abs(pivots[~left_out]).min(initial=np.inf))
            if not weak.any() and np.isfinite(pivots).all():
                found.status[lane] = Outcome.SINGULAR if left_out.any() else Outcome.FACTORED
                found.negative[lane], found.weak[lane] = (pivots[~left_out] < 0).sum(), left_out.sum()
                found.smallest[lane] = smallest
                log = float(np.log(np.abs(pivots)).sum())
                return _Factor(lu, left_out, log)
            left_out |= weak
            usable = bool(weak.any())
        found.status[lane], found.smallest[lane] = Outcome.NONFINITE, np.nan
        found.negative[lane] = found.weak[lane] = 0
        return None

    def _eliminate(self, values: Values, scale: Values, left_out: Mask) -> tuple[SuperLU, Values, Mask]:
        """Factorize without the rows left out; return the pivots, in the order of elimination, and which of them are weak.

        SuperLU cannot factorize around a pivot that is exactly zero. A shift of the diagonal by half the limit makes it
        nonzero but weak, and leaves a factor that serves no other purpose.
        """
        prepared = self.prepared
        kept, limit = prepared.without(values, left_out), TINY * scale
        lu = _lu(prepared.full(kept))
        shifted = lu is None
        if shifted:
            limit = TINY * np.where(scale > 0, scale, np.abs(values).max())
            kept[prepared.diagonal] += 0.5 * limit * (1 if prepared.signs is None else prepared.signs)
            lu = _lu(prepared.full(kept))
        pivots = np.zeros(len(scale))
        if lu is not None:
            pivots[lu.perm_c.argsort()] = lu.U.diagonal()
        size = np.where(left_out, np.inf, np.abs(pivots))
        weak = size <= limit
        if shifted and not weak.any():
            weak[np.argmin(size)] = True
        return lu, pivots, weak


def _lu(matrix: csc_array) -> SuperLU | None:
    """Factorize without pivoting; None where a pivot is exactly zero."""
    try:
        lu = splu(matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    except RuntimeError:  # no nonzero is left in the pivot's column
        return None
    return lu if np.array_equal(lu.perm_r, lu.perm_c) else None  # or it pivoted around the zero
