"""The nearest of several answers: where quadratic equations have several, and from further starts.

If all rows of a part are quadratic equations (orthogonality, spheres, signs, products), W = I + Σλ∇²h is the same at every point.
Where it is positive semidefinite at an answer, the Lagrangian is convex and no lawful field is nearer. Otherwise, multipliers for
which it is are looked for: those that maximize the Lagrange dual, a concave function of λ as long as W is positive. Their point
is the nearest one or, if there are no such multipliers, a good start (math.md, eq. nearest). Lanes are iterated on again from
there, and the nearer answer is kept, as it is with the starts that a caller asks for, whatever the laws.
Must not import solve.system.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.derivatives import Rows
from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.kernels.threads import Deadline
from snapfm.reduce.reduce import System
from snapfm.solve.attempts.order import attempt, newton
from snapfm.solve.budget import Stopping
from snapfm.solve.tiles import GOLDEN, AttemptOutcome, Tiles

if TYPE_CHECKING:
    from snapfm.solve.stage import State
    from snapfm.solve.system import Loops

# Multiplications of one step in the dual, for the largest part that is looked at: about ten milliseconds for all steps of a lane.
_LARGEST = 1_000_000
_AT_ONCE = 100_000  # numbers of the curvatures of all rows of the lanes solved at once, in about a tenth of a second
_FIRST = 12  # iterations from û, as most inputs need at most: what takes longer may be far from any answer
_FLAT = 1e-7  # eigenvalues of W count as not negative above minus this, as in kernels.newton
_STEPS = 40  # in the dual; most lanes take 15 to 25
_SHRINK, _LAST = 0.03, 1e-7  # factor of the barrier from step to step, and where it ends, relative to its first value
_ROOM = 0.9  # share of the way to the edge of W > 0, by the Frobenius norm, that a step may take
_RIDGE = 1e-10  # on the diagonal of the dual's Hessian: rows may repeat each other
_HOPELESS = (int(Status.NONFINITE), int(Status.INFEASIBLE))
_CLOSER = 1e-9  # share of its distance by which another answer has to be nearer


def solve_nearest(loops: Loops, tiles: Tiles, stopping: Stopping, state: State) -> AttemptOutcome:
    """Iterate from û or where the call begins, then from what may lead to nearer answers; keep the nearest. Written: tiles."""
    part, deadline, limit, warm = loops.part, state.deadline, state.limit, state.warm is not None
    if not state.retry:
        return newton(loops, tiles, stopping, np.full(tiles.lanes, limit), deadline)
    dual = part.nearest if limit > 3 * _FIRST else None
    if dual is None:
        ended = attempt(loops, tiles, stopping, warm, limit, deadline)
    else:
        ended = newton(loops, tiles, stopping, np.full(tiles.lanes, _FIRST), deadline)
    # Sides of the dual's point: where the dual does not decide, answers may lie on both.
    sides = () if dual is None else (1.0, -1.0)
    first, found = np.zeros(0, np.int64), np.zeros((2, 0, 0))
    for number in range(len(sides) + state.starts - 1):
        proven = np.zeros(tiles.lanes, bool) if part.nearest is None else part.nearest.proves(tiles)
        had = ended.status == Status.CONVERGED
        left = np.flatnonzero(np.where(had, ~proven, ~np.isin(ended.status, _HOPELESS)))
        if not len(left) or deadline.over:
            break
        other = tiles.take(left)
        if dual is not None and number < len(sides):
            if number == 0:
                first, found = left, dual.maximum(other, deadline)
            dual.begin(other, found[:, np.searchsorted(first, left)], sides[number])
            again = attempt(loops, other, stopping, False, (limit - _FIRST) // 2, deadline)
        else:
            _begin_around(other, _distance(part.system, other), number - len(sides))
            again = attempt(loops, other, stopping, False, max(1, limit // state.starts), deadline)
        ended.iterations[left] += again.iterations
        new = again.status == Status.CONVERGED
        closer = _distance(part.system, other) < (1.0 - _CLOSER) * _distance(part.system, tiles)[left]
        better = np.flatnonzero(np.where(had[left], new & closer, new | (number < len(sides))))
        tiles.put(left[better], other, better)
        ended.status[left[better]], ended.second[left[better]] = again.status[better], again.second[better]
    return ended


def _distance(system: System, tiles: Tiles) -> Values:
    """Return the distance to û of every lane, with the eliminated unknowns, in the unit of the lane (lanes,)."""
    apart, lam = tiles.by_lane(core.X) - tiles.by_lane(core.TARGET), tiles.by_lane(core.MULTIPLIER)
    found: Values = np.sqrt(np.square(apart).sum(axis=1) + (lam * (system.gram @ lam.T).T).sum(axis=1))
    return found


def _begin_around(tiles: Tiles, distance: Values, number: int) -> None:
    """Go to a point of the ball around û that a nearer answer lies in: opposite points by turns. Written: x, multipliers."""
    target = tiles.by_lane(core.TARGET)
    direction = np.random.default_rng(number // 2).standard_normal(target.shape[1]) * (-1.0) ** number
    radius = np.modf(GOLDEN * (number // 2 + 1))[0] ** (1.0 / target.shape[1])
    size = np.where(distance > 0.0, distance, np.maximum(np.abs(target).max(axis=1), 1.0))
    tiles.write(core.X, target + size[:, None] * radius * direction / np.linalg.norm(direction))
    tiles.section(core.MULTIPLIER)[:] = 0.0


class Nearest:
    """Prepared for a System of quadratic equations. Its W has `blocks` blocks of at most `width` unknowns on the diagonal.

    `place` says where the unknowns are in the blocks, one after the other; places left over have W = 1.
    """

    def __init__(self, system: System) -> None:
        program, self.system = system.program, system
        self.read = Rows(program, np.arange(system.inputs.shape[1])[None], np.arange(system.params.shape[1])[None])
        row, column, count = program.hessian.row_of(), program.hessian.indices, program.pattern.columns
        self.blocks, label = connected_components(coo_array((np.ones(len(row)), (row, column)), shape=(count, count)))
        order, sizes = np.argsort(label, kind="stable"), np.bincount(label)
        self.width, inside = int(sizes.max()), np.empty(count, np.int64)
        inside[order] = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.place: Index = self.width * label + inside
        self._lower: Index = self.width * self.place[row] + inside[column]
        self._upper: Index = self.width * self.place[column] + inside[row]

    @classmethod
    def of(cls, system: System, bounded: bool) -> Nearest | None:
        """Prepare it for a system that it can serve and that is small enough."""
        if bounded or not (system.quadratic and system.equality.all() and system.program.hessian.nnz):
            return None
        rows, made = len(system.equality), cls(system)
        return made if rows * (rows + made.width) * made.blocks * made.width**2 <= _LARGEST else None

    def proves(self, tiles: Tiles) -> Mask:
        """Mark the lanes where W is positive semidefinite: Gaussian elimination of all blocks together."""
        lam = tiles.by_lane(core.UNIT)[:, :1] * tiles.by_lane(core.MULTIPLIER)
        with np.errstate(all="ignore"):
            left = self._in_blocks(self.read.derivatives(*self._inputs(tiles), lam)[1])
            left[..., range(self.width), range(self.width)] += 1.0 + _FLAT
            positive: Mask = np.ones(len(lam), bool)
            for _ in range(self.width):
                positive &= np.all(left[:, :, 0, 0] > 0.0, axis=1)
                left = left[..., 1:, 1:] - left[..., 1:, :1] * left[..., :1, 1:] / left[..., :1, :1]
        return positive

    def begin(self, tiles: Tiles, found: Values, side: float) -> None:
        """Go to one side of the dual's points, as `maximum` returns them. Written: x, multipliers."""
        step, spread = found[:, :, : self.place.size]
        tiles.write(core.X, tiles.by_lane(core.TARGET) + step + side * spread)
        tiles.write(core.MULTIPLIER, found[0, :, self.place.size :])

    def maximum(self, tiles: Tiles, deadline: Deadline) -> Values:
        """Return the steps from û to the dual's points, with λ, and below how far to go from there to a side (2, lanes, …).

        All of it is zero where there is no such point or no time for it.
        """
        unit, target = tiles.by_lane(core.UNIT)[:, :1], tiles.by_lane(core.TARGET)
        (given, params), shift = self._inputs(tiles), unit * tiles.by_lane(core.SHIFT)
        given[:, self.system.places - 1 - params.shape[1]] = unit * target
        found = np.zeros((2, len(unit), self.place.size + shift.shape[1]))
        lanes = _AT_ONCE // (shift.shape[1] * self.blocks * self.width**2) + 1
        with np.errstate(all="ignore"), suppress(np.linalg.LinAlgError):
            for first in range(0, len(unit), lanes):
                if deadline.over:
                    break
                some = slice(first, first + lanes)
                found[:, some] = self._dual(given[some], params[some], shift[some])
        found[:, ~np.isfinite(found.sum(axis=(0, 2)))] = 0.0
        return found / unit

    def _inputs(self, tiles: Tiles) -> tuple[Values, Values]:
        """Return what the program reads: unknowns and cells of params (lanes, …)."""
        cells, first = tiles.by_lane(core.CELLS), 1 + self.system.params.shape[1]
        return cells[:, first : self.read.program.code.first].copy(), cells[:, 1:first].copy()

    def _in_blocks(self, curvature: Values) -> Values:
        """Write the lower entries (b, …) of a Hessian as the blocks of its diagonal (b, blocks, width, width)."""
        found = np.zeros((len(curvature), self.blocks * self.width**2))
        found[:, self._lower] = found[:, self._upper] = curvature
        return found.reshape(-1, self.blocks, self.width, self.width)

    def _dual(self, given: Values, params: Values, shift: Values) -> Values:
        """Maximize the dual plus μ log det W for μ → 0, for some lanes; see maximum and math.md, eq. nearest.

        No step leads out of W > 0, where the function is concave. Directions in which μW⁻¹ does not vanish are left open by the
        dual: answers lie as far as its root to both sides.
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
            hessian = np.eye(self.width) + (lam @ flat).reshape(inside)
            inverse = np.asarray(np.linalg.inv(hessian), np.float64)
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
        scatter = 2.0 * np.modf(GOLDEN * np.arange(1, step[0].size + 1))[0] - 1.0
        spread = inverse @ scatter.reshape(inside[1:])
        size = (scatter.reshape(inside[1:]) * spread).sum(axis=2, keepdims=True)
        spread *= np.sqrt(barrier[:, None, None, None] / size)
        moved = [one.reshape(count, -1)[:, self.place] for one in (step, spread)]
        return np.concatenate([moved, [lam[:, 0], np.zeros((count, rows))]], axis=2)
