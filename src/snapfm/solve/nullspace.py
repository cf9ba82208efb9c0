"""The null-space method: a few quadratic rows beside many affine ones, as for divergence-free fields of a given energy.

Every answer is u = ū + z, with ū the nearest field that obeys the affine rows A and z in their null space, where a gradient f
counts through its projection Pf = f − Aᵀ(AAᵀ)⁻¹Af only. The quadratic rows are minimized over on a small subspace of it: that
of the projected gradients of the rows at ū. Where their Hessians are multiples of the identity, as for energies and momenta,
the answer lies in it, after one small problem. Otherwise what remains of the gradient of the Lagrangian, projected, is the
subspace's next direction, as in the method of Lanczos (math.md, "Null space"). Each direction costs one solve with a factor of
AAᵀ that all samples and calls share.

What is returned as certified meets the conditions of first order in full, and W = I + Σμ∇²q is positive. Samples that end
otherwise are left to the iterations of solve.system. Must not import solve.system.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_array, csr_array

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.derivatives import Rows
from snapfm.kernels.layout import HOLDS
from snapfm.kernels.run_length import RunLengthMatrix, add_batch, join, products
from snapfm.kernels.threads import Deadline
from snapfm.linear.bordered import PreparedBordered
from snapfm.reduce.reduce import System
from snapfm.solve.budget import Stopping
from snapfm.solve.subspace import Found, Subspaces, largest
from snapfm.solve.tiles import AttemptOutcome

if TYPE_CHECKING:
    from snapfm.solve.stage import State

AT_ONCE = 8  # lanes: as many as one solve with the factor takes
_LONGEST = 32  # directions of a subspace,
_MEMORY = 4e7  # and numbers that they and their images may take
_ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of a sum, relative to the sizes of its terms


class NullSpace:
    """Prepared for a System whose matrix is bordered: all its varying rows are at most quadratic.

    A field here holds, one line per lane, the unknowns that are iterated on, those that are eliminated, and then what else
    the program reads; the last do not move. `params` are the columns of params that it reads, one line per part.
    """

    def __init__(self, system: System, bordered: PreparedBordered, params: Index) -> None:
        program, self.system, self.params = system.program, system, params
        self.inner, self.border, self.factor = bordered.inner, bordered.border, bordered.factor
        moving = np.concatenate([system.unknowns, system.eliminated], axis=1)
        fixed = np.setdiff1d(system.inputs[0], moving[0])
        other = system.inputs[:, np.isin(system.inputs[0], fixed)]
        self.columns: Index = np.concatenate([moving, other], axis=1)
        self.iterated, self.unknowns = system.unknowns.shape[1], moving.shape[1]
        order = np.argsort(self.columns[0])
        inputs = order[np.searchsorted(self.columns[0], system.inputs[0], sorter=order)]
        self.read = Rows(program, inputs[None], np.arange(system.params.shape[1])[None])
        self.each: Index = np.arange(len(system.equality))[None]
        linear = coo_array(system.linear)
        self.linear = join(
            self.iterated + linear.coords[1].astype(np.int64), linear.coords[0].astype(np.int64), linear.data
        )
        constant = csr_array(program.pattern.csr(program.constants))[self.inner].tocoo()
        rest = csr_array(system.linear)[self.inner].tocoo()
        row = np.concatenate([constant.row, rest.row]).astype(np.int64)
        column = np.concatenate([constant.col, self.iterated + rest.col]).astype(np.int64)
        value = np.concatenate([constant.data, rest.data])
        self.affine: RunLengthMatrix = join(column, row, value)
        self.size = float(np.bincount(row, np.abs(value), 1).max())
        self.equality: Mask = system.equality[self.border]
        self.bends = program.hessian.row_of(), program.hessian.indices
        still, outside = np.zeros((1, self.columns.shape[1])), np.zeros((1, system.params.shape[1]))
        self._hessians = self._evaluated(still, outside) if system.constant else None

    def rounds(self, limit: int) -> int:
        """Return how many of a sample's iterations this method may use."""
        room = _MEMORY / (AT_ONCE * self.columns.shape[1] * (1 + len(self.border)))
        return max(1, min(_LONGEST, int(room), limit // 2))

    def solve(self, given: Values, externals: Values, stopping: Stopping, limit: int, deadline: Deadline) -> Found:
        """Solve lanes (b, columns), given their û and the params that they read (b, …); `limit` is that of `rounds`."""
        found = [
            Subspaces(self, given[k : k + AT_ONCE], externals[k : k + AT_ONCE], stopping).solved(limit, deadline)
            for k in range(0, len(given), AT_ONCE)
        ]
        return Found(*(np.concatenate([getattr(one, name) for one in found]) for name in Found.__dataclass_fields__))

    def solve_state(self, state: State, iterate: Callable[[State], AttemptOutcome]) -> AttemptOutcome:
        """Solve a piece; `iterate` for samples that are left open, from where they ended if that is usable.

        Written: state's u (this part's unknowns), multipliers (its rows).
        """
        system, u, multipliers, columns = self.system, state.u, state.multipliers, self.columns
        count, moving = len(u), columns[:, : self.unknowns]
        given = np.take(state.u_hat, columns, axis=1)
        given[:, :, self.unknowns :] = np.take(u, columns[:, self.unknowns :], axis=1)
        lanes = count * system.parts
        outside = np.take(state.externals, self.params, axis=1).reshape(lanes, self.params.shape[1])
        rounds = self.rounds(state.limit)
        found = self.solve(given.reshape(lanes, -1), outside, state.stopping, rounds, state.deadline)
        certified: Mask = np.all(found.certified.reshape(count, -1), axis=1)
        usable: Mask = np.all(found.usable.reshape(count, -1), axis=1)
        point, lam = (one.reshape(count, system.parts, -1) for one in (found.point, found.multipliers))
        ended = AttemptOutcome(
            np.zeros(count, np.int64), found.rounds.reshape(count, -1).max(axis=1), np.full(count, HOLDS)
        )  # fmt: skip
        done = np.flatnonzero(certified)
        u[done[:, None, None], moving], multipliers[done[:, None, None], system.rows] = point[done], lam[done]
        for some in (np.flatnonzero(usable & ~certified), np.flatnonzero(~usable)):
            if not len(some):
                continue
            own = state.select(some, state.limit - rounds)
            if usable[some[0]]:
                own.u[:, system.unknowns] = point[some][:, :, : system.unknowns.shape[1]]
                own.warm = own.multipliers.copy()
                own.warm[:, system.rows] = lam[some]
            then = iterate(own)
            u[some], multipliers[some] = own.u, own.multipliers
            ended.status[some], ended.second[some] = then.status, then.second
            ended.iterations[some] += then.iterations
        return ended

    def rows(self, field: Values, externals: Values) -> Values:
        """Evaluate all rows (b, m)."""
        out = self.read.evaluate(field, externals)
        products(self.linear, field, out)
        return out

    def hessians(self, still: Values, externals: Values) -> Values:
        """Return the Hessians of the border's rows: (k, b, entries), or (k, 1, entries) if they never change."""
        return self._evaluated(still, externals) if self._hessians is None else self._hessians

    def _evaluated(self, field: Values, externals: Values) -> Values:
        out = np.empty((len(self.border), len(field), self.system.program.hessian.nnz))
        for i in range(len(self.border)):
            out[i] = self.read.derivatives(field, externals, self._unit(i, len(field)))[1]
        return out

    def _unit(self, i: int, count: int) -> Values:
        weight = np.zeros((count, len(self.system.equality)))
        weight[:, self.border[i]] = 1.0
        return weight

    def gradient(self, i: int, field: Values, externals: Values) -> Values:
        """Return the gradient of row i of the border (b, columns)."""
        out, whole = np.zeros_like(field), self._unit(i, len(field))
        self.read.pull(self.each, field, externals, whole, out)
        add_batch(self.linear, whole, out)
        out[:, self.unknowns :] = 0.0
        return out

    def project(self, field: Values, which: Mask, noise: float = _ROUNDING) -> Values:
        """Project directions of some lanes onto the null space; return η of what was taken away, Aᵀη. Written: field.

        What the rows make of a direction may be rounding if it is less than `noise` of its size; that takes no solve.
        """
        residual = np.zeros((len(field), len(self.inner)))
        products(self.affine, field, residual)
        residual[~which] = 0.0
        residual[np.abs(residual) <= noise * self.size * largest(field)[:, None]] = 0.0
        if not residual.any():
            return residual
        step = self.factor.solve(residual)
        step[~residual.any(axis=1)] = 0.0
        add_batch(self.affine, -step, field)
        return step
