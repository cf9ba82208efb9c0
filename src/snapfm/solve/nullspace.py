"""The null-space method: a few quadratic rows beside many affine ones, as for divergence-free fields of a given energy.

Every answer is u = ū + z, with ū the nearest field that obeys the affine rows A and z in their null space, where a gradient f
counts through its projection Pf = f − Aᵀ(AAᵀ)⁻¹Af only. z is looked for among those of the quadratic rows at ū, as
many as there are rows: Newton's method on a small square system. Where the Hessians are multiples of the identity, as for
energies and momenta, that is the answer (math.md, "Null space"). All solves take one factor of AAᵀ, which samples and calls
share. What is returned as certified meets the conditions of first order in full, and diagonal dominance proves W = I + Σμ∇²q
positive. Samples that end otherwise are iterated on by solve.system, from the point found if it obeys.

Kept because of its time: divergence and energy of fields 3×32³ take 50 ms per sample, the iterations with shared factors alone
(linear.bordered) 215 ms near and 25 s far; fields 3×16³ 1.8 ms against 6 to 7. Must not import solve.system.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.derivatives import Rows
from snapfm.kernels.layout import HOLDS
from snapfm.kernels.run_length import RunLengthMatrix, add_batch, join, products
from snapfm.linear.bordered import PreparedBordered
from snapfm.reduce.reduce import System
from snapfm.solve.budget import LEAST, Stopping
from snapfm.solve.tiles import AttemptOutcome

if TYPE_CHECKING:
    from snapfm.solve.stage import State

_AT_ONCE = 8  # lanes: as many as one solve with the factor takes
_STEPS = 30  # of Newton's method along the gradients; most lanes take 4 to 6
_EXACT = 1e-10  # of the rows' first values: from there on Newton's method ends when rounding stops it
_CORRECTIONS = 2  # of rows that rounding left violated
_CLEAN = 1e-13  # share of a direction that may lie outside the null space
_ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of a sum, relative to the sizes of its terms


class Found(NamedTuple):
    """Per lane: the point (b, v + s), multipliers (b, m), and what the point is good for."""

    point: Values
    multipliers: Values
    usable: Mask  # iterations may start there: the quadratic rows hold
    certified: Mask  # it is an answer: conditions of first order hold, and the Lagrangian's Hessian is positive


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

    def solve_state(self, state: State, iterate: Callable[[State], AttemptOutcome]) -> AttemptOutcome:
        """Solve a piece; `iterate` for samples that are left open, from where they ended if that is usable.

        Written: state's u (this part's unknowns), multipliers (its rows).
        """
        system, u, multipliers, columns = self.system, state.u, state.multipliers, self.columns
        count, moving = len(u), columns[:, : self.unknowns]
        given = np.take(state.u_hat, columns, axis=1)
        given[:, :, self.unknowns :] = np.take(u, columns[:, self.unknowns :], axis=1)
        lanes = count * system.parts
        outside = np.take(state.params, self.params, axis=1).reshape(lanes, self.params.shape[1])
        given = given.reshape(lanes, -1)
        pieces = [slice(first, first + _AT_ONCE) for first in range(0, lanes, _AT_ONCE)]
        with np.errstate(all="ignore"):
            each = [self._found(given[piece], outside[piece], state.stopping) for piece in pieces]
        found = Found(*(np.concatenate(one) for one in zip(*each)))
        certified: Mask = np.all(found.certified.reshape(count, -1), axis=1)
        usable: Mask = np.all(found.usable.reshape(count, -1), axis=1)
        point, lam = (one.reshape(count, system.parts, -1) for one in (found.point, found.multipliers))
        ended = AttemptOutcome(np.zeros(count, np.int64), np.ones(count, np.int64), np.full(count, HOLDS))
        done = np.flatnonzero(certified)
        u[done[:, None, None], moving], multipliers[done[:, None, None], system.rows] = point[done], lam[done]
        for some in (np.flatnonzero(usable & ~certified), np.flatnonzero(~usable)):
            if not len(some):
                continue
            own = state.select(some, state.limit - 1)
            if usable[some[0]]:
                own.u[:, system.unknowns] = point[some][:, :, : system.unknowns.shape[1]]
                own.warm = own.multipliers.copy()
                own.warm[:, system.rows] = lam[some]
            then = iterate(own)
            u[some], multipliers[some] = own.u, own.multipliers
            ended.status[some], ended.second[some] = then.status, then.second
            ended.iterations[some] += then.iterations
        return ended

    def _found(self, given: Values, params: Values, stopping: Stopping) -> Found:
        """Solve up to _AT_ONCE lanes (b, columns), given their û and the params that they read."""
        count, border, moving = len(given), self.border, slice(0, self.unknowns)
        size = np.abs(given[:, moving]).max(axis=1, initial=0.0)
        allowed = np.maximum(stopping.stationarity * np.minimum(size, 1.0), LEAST * size)
        goal = stopping.polish * stopping.tolerance
        at, multipliers = given.copy(), np.zeros((count, len(self.system.equality)))
        for _ in range(2):  # the second removes the error of an ill-conditioned factor
            step = self.factor.solve(np.take(self._rows(at, params), self.inner, axis=1))
            multipliers[:, self.inner] += step
            add_batch(self.affine, -step, at)
        values = self._rows(at, params)[:, border]
        active = self.equality | (values > 0.0)
        steep = self._gradients(at, params)
        along = steep.copy()
        taken = [self._project(one, active[:, i]) for i, one in enumerate(along)]
        curved = np.stack([self._dots(self._gradients(at + one, params) - steep, along) for one in along], axis=2)
        slopes = self._dots(steep, along)
        for lane in range(count):
            mine = np.flatnonzero(active[lane])
            y = _root(values[lane, mine], slopes[lane][np.ix_(mine, mine)], curved[lane][np.ix_(mine, mine, mine)])
            at[lane] += y @ along[mine, lane]
        solved = self._correct(at, params, along, active, goal)
        steep = self._gradients(at, params)
        slopes = self._dots(steep, along)
        rest = at - given
        for lane in np.flatnonzero(solved).tolist():
            mine = np.flatnonzero(active[lane])
            left = along[mine, lane] @ rest[lane]
            multipliers[lane, border[mine]] = -_solution(slopes[lane][np.ix_(mine, mine)].T, left)
        for i, row in enumerate(border):
            mu = multipliers[:, row, None]
            rest += mu * steep[i]
            multipliers[:, self.inner] -= mu * taken[i]
        add_batch(self.affine, np.take(multipliers, self.inner, axis=1), rest)
        multipliers[:, self.inner] -= self._project(rest, ~(np.abs(rest).max(axis=1) <= allowed))
        at[:, self.iterated : self.unknowns] -= rest[:, self.iterated : self.unknowns]
        rows, sign = self._rows(at, params), multipliers[:, border]
        broken = np.where(self.system.equality, np.abs(rows), rows).max(axis=1, initial=0.0)
        usable = solved & np.isfinite(multipliers).all(axis=1)
        certified = usable & (np.abs(rest).max(axis=1) <= allowed) & (broken <= goal)
        certified &= (self.equality | (sign >= 0.0)).all(axis=1)
        certified &= self._least_curvature(at, params, multipliers) > 0.0
        return Found(at[:, moving], multipliers, usable, certified)

    def _correct(self, at: Values, params: Values, along: Values, active: Mask, goal: float) -> Mask:
        """Remove what rounding left of the active quadratic rows; mark lanes where they hold. Written: at."""
        for correction in range(_CORRECTIONS + 1):
            rows = self._rows(at, params)[:, self.border]
            solved: Mask = np.all((np.abs(rows) <= goal) | ~active, axis=1)
            near = ~solved & np.isfinite(at).all(axis=1)
            if not near.any() or correction == _CORRECTIONS:
                break
            slopes = self._dots(self._gradients(at, params), along)
            for lane in np.flatnonzero(near):
                mine = np.flatnonzero(active[lane])
                nothing = np.zeros((len(mine),) * 3)
                at[lane] += _root(rows[lane, mine], slopes[lane][np.ix_(mine, mine)], nothing) @ along[mine, lane]
        return solved

    def _rows(self, field: Values, params: Values) -> Values:
        """Evaluate all rows (b, m)."""
        out = self.read.evaluate(field, params)
        products(self.linear, field, out)
        return out

    def _gradients(self, field: Values, params: Values) -> Values:
        """Return the gradients of the border's rows (k, b, columns)."""
        found = np.zeros((len(self.border), *field.shape))
        for row, out in zip(self.border, found):
            weight = np.zeros((len(field), len(self.system.equality)))
            weight[:, row] = 1.0
            self.read.pull(self.each, field, params, weight, out)
            add_batch(self.linear, weight, out)
        found[:, :, self.unknowns :] = 0.0
        return found

    def _dots(self, left: Values, right: Values) -> Values:
        """Return the products of two lists of fields (k, b, columns), lane by lane: (b, k, k)."""
        return np.stack([left[:, lane] @ right[:, lane].T for lane in range(left.shape[1])])

    def _project(self, field: Values, which: Mask) -> Values:
        """Project directions of some lanes onto the null space; return η of what was taken away, Aᵀη. Written: field.

        What the rows make of a direction may be rounding of its size; that takes no solve.
        """
        step = np.zeros((len(field), len(self.inner)))
        # The second removes the error of an ill-conditioned factor, where there is one.
        for noise in (_ROUNDING, _CLEAN):
            residual = np.zeros_like(step)
            products(self.affine, field, residual)
            residual[~which] = 0.0
            residual[np.abs(residual) <= noise * self.size * np.abs(field).max(axis=1)[:, None]] = 0.0
            if not residual.any():
                break
            more = self.factor.solve(residual)
            more[~residual.any(axis=1)] = 0.0
            add_batch(self.affine, -more, field)
            step += more
        return step

    def _least_curvature(self, at: Values, params: Values, multipliers: Values) -> Values:
        """Bound the eigenvalues of I + Σμ∇²q from below, by its diagonal minus what each row has beside it (b,)."""
        pattern, hessian = self.system.program.hessian, self.read.derivatives(at, params, multipliers)[1]
        row, column = pattern.row_of(), pattern.indices
        # Each entry counts for its row and its column: on the diagonal by half of its value.
        value = np.where(row == column, 0.5 * hessian, -np.abs(hessian))
        ends = np.concatenate([row, column])
        sums = [np.bincount(ends, np.tile(one, 2), self.iterated).min(initial=np.inf) for one in value]
        return 1.0 + np.array(sums)


def _root(value: Values, slope: Values, curvature: Values) -> Values:
    """Solve value + slope y + ½ yᵀ curvature y = 0 (k,) for y by Newton's method from y = 0; NaN where it fails."""
    y = np.zeros_like(value)
    left = np.inf
    for _ in range(_STEPS):
        bent = curvature @ y
        row = value + (slope + 0.5 * bent) @ y
        before, left = left, np.abs(row).max(initial=0.0)
        if left == 0.0 or (left <= _EXACT * np.abs(value).max(initial=0.0) and not left < 0.5 * before):
            return y
        y = y - _solution(slope + bent, row)
    return np.full_like(value, np.nan)


def _solution(matrix: Values, right: Values) -> Values:
    """Solve a small system; NaN if it is singular."""
    found = np.full_like(right, np.nan)
    with suppress(np.linalg.LinAlgError):
        found[:] = np.linalg.solve(matrix, right)
    return found
