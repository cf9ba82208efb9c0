"""Library: one sparse LU of SciPy per lane, for one huge system whose eight-lane tile would not fit in memory.

SuperLU in symmetric mode, without pivoting, in the order of kernels.ordering, so that the diagonal of U is D and the
inertia can be read off. It allocates on every call and repairs no pivot. Grid of 10⁶ unknowns, one thread: 14 s,
against 17 s for Lanes with one lane in use and far more memory; MKL Pardiso took 7 s, CHOLMOD 4 s (GPL), qdldl 23 s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import SuperLU, splu

from snapfm.kernels.ordering import best
from snapfm.linear.base import (
    Array,
    Index,
    Outcome,
    PivotRule,
    Pivots,
    Values,
    check_pattern,
    check_rhs,
    check_values,
    host,
)
from snapfm.structure.pattern import Pattern


@dataclass(frozen=True)
class Library:
    """Settings: below which share of its diagonal a pivot counts as vanished, and how often to refine a solution."""

    tiny: float = PivotRule.tiny
    refinements: int = 0

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> PreparedLibrary:
        """Order the unknowns."""
        check_pattern(pattern, signs)
        return PreparedLibrary(self, pattern, signs)


class PreparedLibrary:
    """The order of one pattern, and where its entries are in the full matrix; nothing in it changes."""

    def __init__(self, solver: Library, pattern: Pattern, signs: Index | None) -> None:
        self.solver, self.pattern = solver, pattern
        self.order = best(pattern.indptr, pattern.indices, signs)
        place = np.empty(pattern.rows, np.int64)
        place[self.order.perm] = np.arange(pattern.rows)
        row, column = place[pattern.row_of()], place[pattern.indices]
        off = np.flatnonzero(row != column)
        rows, columns = np.concatenate([row, column[off]]), np.concatenate([column, row[off]])
        # Both triangles, by columns: entry k of the full matrix is entry source[k] of the given one.
        shape = (pattern.rows, pattern.rows)
        source = np.concatenate([np.arange(pattern.nnz), off]) + 1
        full = csc_array((source, (rows, columns)), shape=shape)
        self._source, self._indices, self._indptr = full.data - 1, full.indices, full.indptr
        self.diagonal = np.flatnonzero(pattern.row_of() == pattern.indices)[self.order.perm]

    @property
    def fill(self) -> int:
        """Entries of the factor, the diagonal included."""
        return self.order.fill

    def workspace(self) -> LibraryWorkspace:
        """Give room for factors of its own, for one call at a time."""
        return LibraryWorkspace(self)

    def full(self, values: Values) -> csc_array:
        """Put one lane's values into the full matrix, in the order of elimination."""
        shape = (self.pattern.rows, self.pattern.rows)
        return csc_array((values[self._source], self._indices, self._indptr), shape=shape)


class LibraryWorkspace:
    """One factor per lane; None where there is none."""

    def __init__(self, prepared: PreparedLibrary) -> None:
        self.prepared = prepared
        self._factors: list[tuple[csr_array, SuperLU] | None] = []

    def factorize(self, values: Array) -> Pivots:
        """Factorise every lane of values (nnz, lanes), one after the other."""
        lanes = check_values(values, self.prepared.pattern.nnz)
        given = host(values)
        counts = np.zeros((2, lanes), np.int64)
        found = Pivots(np.zeros(lanes, np.int8), counts[0], counts[1], np.zeros(lanes))
        self._factors = []
        for lane in range(lanes):
            status, negative, weak, smallest = self._factorize(np.ascontiguousarray(given[:, lane]))
            found.status[lane], counts[:, lane], found.smallest[lane] = status, (negative, weak), smallest
        return found.of_kind(values)

    def solve(self, rhs: Array, out: Array | None = None) -> Array:
        """Solve for rhs (n, lanes) or (n, sides, lanes), into `out` or else in place; NaN in lanes without a factor."""
        perm = self.prepared.order.perm
        sides, lanes = check_rhs(rhs, out, len(perm), len(self._factors))
        answer = rhs if out is None else out
        given, into = host(rhs).reshape(-1, sides, lanes), host(answer).reshape(-1, sides, lanes)
        for lane in range(lanes):
            pair = self._factors[lane if len(self._factors) > 1 else 0]
            for side in range(sides):
                into[perm, side, lane] = self._solve(pair, given[perm, side, lane])
        return answer

    def _factorize(self, values: Values) -> tuple[Outcome, int, int, float]:
        """Keep one lane's factor; give its outcome, negative and weak pivots, and the smallest."""
        self._factors.append(None)
        if not np.isfinite(values).all():
            return Outcome.NONFINITE, 0, 0, np.nan
        matrix = self.prepared.full(values)
        try:
            factor = splu(matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        except RuntimeError:  # SuperLU's word for a pivot that is exactly zero
            return Outcome.SINGULAR, 0, 1, 0.0
        pivots = np.empty(self.prepared.pattern.rows)
        pivots[factor.perm_c.argsort()] = factor.U.diagonal()
        if not np.isfinite(pivots).all():
            return Outcome.NONFINITE, 0, 0, np.nan
        size = np.abs(pivots)
        weak = size <= self.prepared.solver.tiny * np.abs(values[self.prepared.diagonal])
        off_diagonal = not np.array_equal(factor.perm_r, factor.perm_c)  # it pivoted around a zero: no inertia to read
        self._factors[-1] = (csr_array(matrix), factor)
        outcome = Outcome.SINGULAR if weak.any() or off_diagonal else Outcome.FACTORED
        return outcome, int((pivots < 0).sum()), int(weak.sum()), float(size.min())

    def _solve(self, pair: tuple[csr_array, SuperLU] | None, rhs: Values) -> Values:
        if pair is None:
            return np.full(len(rhs), np.nan)
        matrix, factor = pair
        x: Values = factor.solve(rhs)
        refinements = self.prepared.solver.refinements
        residual = rhs - matrix @ x if refinements else rhs
        for _ in range(refinements):
            trial = x + factor.solve(residual)
            left = rhs - matrix @ trial
            if not np.abs(left).max() <= np.abs(residual).max():
                break
            x, residual = trial, left
        return x
