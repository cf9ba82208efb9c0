"""The nearest of several answers, where all rows are quadratic equations: orthogonality, spheres, signs, products.

W = I + Σλ∇²h is then the same at every point. Where it is positive semidefinite at an answer, the Lagrangian is convex and no
lawful field is nearer. Otherwise, multipliers for which it is are looked for: those that maximize the Lagrange dual, a concave
function of λ while W is positive. Their point is the nearest one, or, if there are no such multipliers, a good start (math.md,
eq. nearest). Samples are iterated on again from there, and the nearer answer is kept. Must not import solve.system.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.derivatives import Rows
from snapfm.errors import Status
from snapfm.reduce.reduce import System
from snapfm.solve.tiles import AttemptOutcome

if TYPE_CHECKING:
    from snapfm.solve.stage import State

# Multiplications of one step in the dual, for the largest part that is looked at: a step takes a millisecond.
_LARGEST = 1_000_000
_AT_ONCE = 500_000  # numbers of the curvatures of all rows of the lanes that are solved side by side
_FIRST = 12  # iterations from û, as most inputs need at most: what takes longer may be far from any answer
_FLAT = 1e-7  # eigenvalues of W count as not negative above minus this, as in kernels.newton
_STEPS = 40  # in the dual; most lanes take 15 to 25
_SHRINK, _LAST = 0.03, 1e-7  # factor of the barrier from step to step, and where it ends, relative to its first value
_ROOM = 0.9  # share of the way to the edge of W > 0, by the Frobenius norm, that a step may take
_RIDGE = 1e-10  # on the diagonal of the dual's Hessian: rows may repeat each other
_CLOSER = 1e-9  # share of its distance by which another answer has to be nearer
_GOLDEN = 0.6180339887498949  # its multiples lie in no pattern of rows


class Nearest:
    """Prepared for a System of quadratic equations. Its W has `blocks` blocks of at most `width` unknowns on the diagonal.

    `place` says where the unknowns are in the blocks, one after the other; places left over have W = 1.
    """

    def __init__(self, system: System) -> None:
        program, self.system = system.program, system
        self.read = Rows(program, np.arange(system.inputs.shape[1])[None], np.arange(system.params.shape[1])[None])
        self.moving: Index = np.concatenate([system.unknowns, system.eliminated], axis=1)
        self.iterated: Index = np.searchsorted(system.inputs[0], system.unknowns[0])
        row, column, count = program.hessian.row_of(), program.hessian.indices, program.pattern.columns
        self.blocks, label = connected_components(coo_array((np.ones(len(row)), (row, column)), shape=(count, count)))
        order, sizes = np.argsort(label, kind="stable"), np.bincount(label)
        self.width, inside = int(sizes.max()), np.empty(count, np.int64)
        inside[order] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.place: Index = self.width * label + inside
        self.lower: Index = self.width * self.place[row] + inside[column]
        self.upper: Index = self.width * self.place[column] + inside[row]

    @classmethod
    def of(cls, system: System, bounded: bool) -> Nearest | None:
        """Prepare it for a system that it can serve and that is small enough."""
        if bounded or not (system.quadratic and system.equality.all() and system.program.hessian.nnz):
            return None
        rows, made = len(system.equality), cls(system)
        return made if rows * (rows + made.width) * made.blocks * made.width**2 <= _LARGEST else None

    def solve_state(self, state: State, iterate: Callable[[State], AttemptOutcome]) -> AttemptOutcome:
        """Iterate; where the answer may not be the nearest, iterate again from the dual's point, and keep the nearer answer.

        Written: state's u (this part's unknowns), multipliers (its rows).
        """
        first = min(_FIRST, state.limit) if state.retry else state.limit
        ended = iterate(replace(state, limit=first, retry=False))
        limit = (state.limit - first) // 2
        for side in (1.0, -1.0):  # of the dual's point: where the dual does not decide, answers lie on both
            proven = self._proven(state) & (ended.status == Status.CONVERGED)[:, None]
            left = np.flatnonzero(~proven.all(axis=1) & (ended.status != Status.NONFINITE))
            if limit < 1 or not len(left) or state.deadline.over:
                break
            own = state.select(left, limit)
            self._begin(own, ~proven[left], side)
            self._keep_nearer(state, ended, left, own, iterate(own))
        return ended

    def _keep_nearer(
        self, state: State, ended: AttemptOutcome, which: Index, own: State, again: AttemptOutcome
    ) -> None:
        """Keep the nearer answer of each part of some samples. Written: state's u, multipliers; ended."""
        had = ended.status[which] == Status.CONVERGED
        far, near = (np.square(np.take(u - own.u_hat, self.moving, axis=1)).sum(axis=2) for u in (state.u[which], own.u))
        closer = (near < (1.0 - _CLOSER) * far) & (again.status == Status.CONVERGED)[:, None]
        sample, part = np.nonzero(closer | ~had[:, None])
        line = sample[:, None]
        for columns, to, source in (
            (self.moving, state.u, own.u), (self.system.rows, state.multipliers, own.multipliers),
        ):  # fmt: skip
            to[which[line], columns[part]] = source[line, columns[part]]
        ended.status[which] = np.where(had, ended.status[which], again.status)
        joined = np.minimum(np.where(had, ended.second[which], again.second), again.second)
        ended.second[which] = np.where(closer.any(axis=1) | ~had, joined, ended.second[which])
        ended.iterations[which] += again.iterations

    def _proven(self, state: State) -> Mask:
        """Mark the parts (b, parts) where W is positive semidefinite: Gaussian elimination of all blocks together."""
        system, lanes = self.system, len(state.u) * self.system.parts
        each = (state.u, system.inputs), (state.params, system.params), (state.multipliers, system.rows)
        given, params, lam = (np.take(batch, index, axis=1).reshape(lanes, -1) for batch, index in each)
        left = self._in_blocks(self.read.derivatives(given, params, lam)[1])
        left[..., range(self.width), range(self.width)] += 1.0 + _FLAT
        positive = np.ones(lanes, bool)
        for _ in range(self.width):
            positive &= (left[:, :, 0, 0] > 0.0).all(axis=1)
            left = left[..., 1:, 1:] - left[..., 1:, :1] * left[..., :1, 1:] / left[..., :1, :1]
        return positive.reshape(len(state.u), system.parts)

    def _in_blocks(self, curvature: Values) -> Values:
        """Write the lower entries (b, …) of a Hessian as the blocks of its diagonal (b, blocks, width, width)."""
        found = np.zeros((len(curvature), self.blocks * self.width**2))
        found[:, self.lower] = found[:, self.upper] = curvature
        return found.reshape(-1, self.blocks, self.width, self.width)

    def _begin(self, state: State, wanted: Mask, side: float) -> None:
        """Move the wanted parts (b, parts) to the dual's point. Written: u, warm."""
        system, u_hat = self.system, state.u_hat
        moved = system.eliminated.ravel()
        state.u[:, moved] = u_hat[:, moved]  # they follow from the multipliers, which are found again
        state.warm = state.multipliers.copy()
        sample, part = np.nonzero(wanted)
        line, lanes = sample[:, None], _AT_ONCE // (len(system.equality) * self.blocks * self.width**2) + 1
        shift = (system.linear @ u_hat[line, system.eliminated[part]].T).T
        params, given = state.params[line, system.params[part]], state.u[line, system.inputs[part]]
        given[:, self.iterated] = u_hat[line, system.unknowns[part]]
        for some in np.split(np.arange(len(part)), range(lanes, len(part), lanes)):
            step, lam = self._dual(given[some], params[some], shift[some], side)
            point = given[some][:, self.iterated] + step
            fine = np.isfinite(point).all(axis=1) & np.isfinite(lam).all(axis=1)
            some, at = some[fine], (line[some[fine]], part[some[fine]])
            state.u[at[0], system.unknowns[at[1]]] = point[fine]
            state.warm[at[0], system.rows[at[1]]] = lam[fine]

    def _dual(self, given: Values, params: Values, shift: Values, side: float) -> tuple[Values, Values]:
        """Maximize the dual plus μ log det W for μ → 0 (b lanes); return the step from û, and λ (math.md, eq. nearest).

        No step leads out of W > 0, where the function is concave. Places of W⁻¹ where μW⁻¹ does not vanish are those that the dual
        leaves open: the step is lengthened by their size, to one `side`.
        """
        program, count, rows = self.read.program, len(given), len(self.system.equality)
        inside = (count, self.blocks, self.width, -1)
        value = self.read.evaluate(given, params) + shift
        slope, bent = np.zeros((count, rows, self.blocks * self.width)), list[Values]()
        for unit in np.eye(rows):
            entries, curvature = self.read.derivatives(given, params, np.tile(unit, (count, 1)))
            bent.append(self._in_blocks(curvature))
        slope[:, program.pattern.row_of(), self.place[program.pattern.indices]] = entries
        curved = np.stack(bent, axis=1)
        flat, gram = curved.reshape(count, rows, -1), self.system.gram.toarray()
        size = np.sqrt(np.square(flat).sum(axis=2))
        barrier = np.max(np.abs(value) / np.where(size > 0.0, size, np.inf), axis=1)
        last, lam = _LAST * barrier, np.zeros((count, 1, rows))
        live, diagonal = np.ones(count, bool), np.arange(rows)
        for taken in range(_STEPS + 1):
            inverse = np.linalg.inv(np.eye(self.width) + (lam @ flat).reshape(inside))
            step = -inverse @ (lam @ slope).reshape(inside)
            if taken == _STEPS or not live.any():
                break
            tilted = slope + (curved @ step[:, None]).reshape(slope.shape)
            turned = inverse[:, None] @ curved
            gradient = value + 0.5 * ((slope + tilted) @ step.reshape(count, -1, 1))[..., 0] - (lam @ gram)[:, 0]
            gradient += barrier[:, None] * np.trace(turned, axis1=3, axis2=4).sum(axis=2)
            spread = (inverse[:, None] @ tilted.reshape(count, rows, *inside[1:])).reshape(slope.shape)
            inner = turned.reshape(flat.shape) @ turned.swapaxes(3, 4).reshape(flat.shape).swapaxes(1, 2)
            matrix = spread @ tilted.swapaxes(1, 2) + gram + barrier[:, None, None] * inner
            steep = matrix[:, diagonal, diagonal]
            matrix[:, diagonal, diagonal] += _RIDGE * np.where(steep > 0.0, steep, 1.0)
            change = np.linalg.solve(matrix, gradient[..., None])[..., 0]
            far = np.sqrt((change[:, None] @ inner @ change[..., None])[:, 0, 0])
            decrement = (change * gradient).sum(axis=1) / barrier
            allowed = np.minimum(1.0, _ROOM / np.maximum(far, _ROOM))
            lam = np.where(live[:, None, None], lam + (allowed[:, None] * change)[:, None], lam)
            live &= (barrier > last) | (decrement > _ROOM)
            barrier = np.where(decrement < 1.0, np.maximum(_SHRINK * barrier, last), barrier)
        scatter = 2.0 * np.modf(_GOLDEN * np.arange(1, step[0].size + 1))[0] - 1.0
        open_ = inverse @ scatter.reshape(inside[1:])
        length = np.sqrt(barrier[:, None, None, None] / (scatter.reshape(inside[1:]) * open_).sum(axis=2, keepdims=True))
        return (step + side * length * open_).reshape(count, -1)[:, self.place], lam[:, 0]
