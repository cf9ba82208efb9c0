"""Solvers of a user's own behind the seam of linear.base: dense LDLᵀ, and one around another that counts."""

from __future__ import annotations

import numpy as np
from tests.linear.dense import factorize

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.kernels.factor.ordering import Order, best
from snapfm.linear import Pivots, Solver, Workspace
from snapfm.linear import Prepared as AnyPrepared


class Counting:
    """`sizes` of the patterns prepared, and numbers of `factors` and `solves`."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.factors = self.solves = 0

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> Prepared:
        self.sizes.append(pattern.rows)
        return Prepared(self, pattern, best(pattern.indptr, pattern.indices, signs))


class Prepared:
    def __init__(self, solver: Counting, pattern: Pattern, order: Order) -> None:
        self.solver, self.pattern, self.order = solver, pattern, order

    def workspace(self) -> Workspace:
        return _Workspace(self)


class _Workspace(Workspace):
    def __init__(self, prepared: Prepared) -> None:
        super().__init__(prepared.pattern)
        self.prepared = prepared

    def _factorize(self, values: Values, found: Pivots, live: Mask, stop: Index) -> None:
        self.prepared.solver.factors += 1
        self.lanes = []
        for lane in range(values.shape[1]):
            lower = self.prepared.pattern.csr(values[:, lane]).toarray()
            one = factorize(lower + np.tril(lower, -1).T)
            self.lanes.append(one)
            found.status[lane], found.negative[lane], found.weak[lane] = one.status, one.negative, one.weak
            found.smallest[lane] = np.abs(1.0 / np.where(one.inverse == 0.0, np.inf, one.inverse)).min()

    def _solve(self, rhs: Values, out: Values) -> None:
        self.prepared.solver.solves += 1
        for lane, one in enumerate(self.lanes):
            out[:, lane] = one.solve(rhs[:, lane])

    def _log_determinant(self, lanes: int) -> Values:
        return np.array([one.log_determinant() for one in self.lanes])


class Counted:
    """Another solver, with the number of its factorizations. `busy` while it prepares."""

    def __init__(self, solver: Solver) -> None:
        self.solver, self.factors, self.busy = solver, 0, False

    def prepare(self, pattern: Pattern, signs: Index | None = None) -> CountedPrepared:
        self.busy = True
        made = CountedPrepared(self, self.solver.prepare(pattern, signs))
        self.busy = False
        return made


class CountedPrepared:
    def __init__(self, counted: Counted, inner: AnyPrepared) -> None:
        self.counted, self.inner, self.pattern, self.order = counted, inner, inner.pattern, inner.order

    def workspace(self) -> Workspace:
        return _CountedWorkspace(self)


class _CountedWorkspace(Workspace):
    def __init__(self, prepared: CountedPrepared) -> None:
        super().__init__(prepared.pattern)
        self.counted, self.inner = prepared.counted, prepared.inner.workspace()

    def _factorize(self, values: Values, found: Pivots, live: Mask, stop: Index) -> None:
        self.counted.factors += 1
        self.inner._factorize(values, found, live, stop)

    def _solve(self, rhs: Values, out: Values) -> None:
        self.inner._solve(rhs, out)

    def _log_determinant(self, lanes: int) -> Values:
        return self.inner._log_determinant(lanes)
