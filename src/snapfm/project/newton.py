"""Newton: any mix of laws whose operators can be lowered. Substitute, solve what is affine, iterate on the rest, certify.

The walk of one call (math.md, "Reduction"): march the determined unknowns, closed form for affine parts, Newton for the
others, then all multipliers backwards, which leaves the stationarity of every unknown as what remains. Owns its memory;
knows laws only through the reduction of their structure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from snapfm.errors import Status
from snapfm.kernels import layout as core
from snapfm.kernels.lanes import gather, scatter, scatter_add, still_back, still_shift, substitute
from snapfm.kernels.ldl import TALLY
from snapfm.kernels.newton import solve_tiles
from snapfm.kernels.operations import LANES
from snapfm.kernels.program import run_gradient, run_values
from snapfm.kernels.sections import starts
from snapfm.kernels.threads import shared
from snapfm.laws import Params
from snapfm.project.adjoint import solve_adjoint
from snapfm.project.affine import Gram
from snapfm.project.base import Solution
from snapfm.project.frame import Prepared, prepare
from snapfm.project.limits import Limits
from snapfm.structure import RowKind, Structure
from snapfm.structure.batched import each
from snapfm.structure.lower import lower
from snapfm.structure.program import Program, build_program
from snapfm.structure.reduce import Reduction, reduce

Values = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]

ITERATIONS = 100  # of one part; benchmark inputs need 2 to 12, pathological ones have shown their nature by then
GAP = 1e-9  # stationarity asked of the iteration, three orders below what the judge asks
_CHUNK = 64  # samples worked on at once: bounds memory, and keeps a chunk's cells near the caches


class Newton:
    """Prepared for one Structure and its limits. Raises structure.lower.Unlowerable if an operator cannot be lowered."""

    def __init__(self, structure: Structure, limits: Limits) -> None:
        self.structure, self.limits = structure, limits
        u, params = structure.example
        listing = lower([plan.graph for plan in structure.plans], u, params)
        self.reduction: Reduction = reduce(
            listing, structure.equality_rows, structure.kinds <= RowKind.AFFINE, limits.bounded
        )
        self.listing = listing
        self.prepared = [prepare(system, bool(limits.bounded.any())) for system in self.reduction.systems]
        self.affine = _AffinePart(self.reduction)
        fixed = ~self.reduction.cascade.free
        touched = np.zeros(listing.unknowns, bool)
        for system in self.reduction.systems:
            touched[system.unknowns.ravel()] = True
        # Bounded unknowns that no row moves are clipped at once; determined ones cannot move.
        self.loose = np.flatnonzero(limits.bounded & ~fixed & ~touched)
        self.example = u
        self._params: Params | None = None
        self._known: Values = np.zeros((0, 0))

    def solve(self, start: Tensor, params: Params, tolerance: float, warm: Tensor | None = None) -> Solution:
        """Project a float64 batch (b, *shape)."""
        field = start.reshape(len(start), self.structure.unknowns).numpy()
        outcome = _Outcome.empty(len(field), field.shape[1], self.structure.rows)
        externals = self._externals(params, len(field))
        for first in range(0, len(field), _CHUNK):
            part = slice(first, min(first + _CHUNK, len(field)))
            known = None if warm is None else warm[part].numpy()
            self._solve_chunk(np.ascontiguousarray(field[part]), externals[part], tolerance, known, outcome.part(part))
        u = torch.from_numpy(outcome.u)
        residual = self.structure.residual(u.reshape(start.shape), params)
        distance = torch.from_numpy(np.sqrt(((outcome.u - field) ** 2).sum(axis=1)))
        return Solution(
            u, torch.from_numpy(outcome.multipliers), torch.from_numpy(outcome.iterations), residual,
            torch.from_numpy(outcome.gap), distance, torch.from_numpy(outcome.status),
        )  # fmt: skip

    def adjoint(self, solved: Solution, params: Params, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Solve the optimality system's transpose at an answer."""
        u = solved.u.numpy()
        held = (u >= self.limits.upper) | (u <= self.limits.lower)
        field = solved.u.reshape(len(u), *self.structure.shape)
        return solve_adjoint(self.structure, field, params, solved.multipliers, held, gradient)

    def _externals(self, params: Params, count: int) -> Values:
        """Evaluate what depends on params only: (b, cells of params), numbered as in the listing; kept while they recur."""
        if self._params is params and len(self._known) == count:
            return self._known
        first = self.listing.unknowns + 1
        out = np.zeros((count, self.listing.cells - first))
        for cell, graph, size in self.listing.externals:
            value = each(graph, self.example.expand(count, *self.example.shape), params)
            out[:, cell - first : cell - first + size] = value.reshape(count, size).to(torch.float64).numpy()
        self._known, self._params = out, params
        return out

    def _solve_chunk(
        self, start: Values, externals: Values, tolerance: float, warm: Values | None, out: _Outcome
    ) -> None:
        u = out.u
        u[:] = start
        for level, program in zip(self.reduction.cascade.levels, self.reduction.marches):
            rows = _values(program, program.unknowns[None], self._outside(program.externals[None]), u, externals)[1]
            substitute(rows, level.unknowns, level.weights, u)
        if len(self.loose):
            u[:, self.loose] = np.clip(u[:, self.loose], self.limits.lower[self.loose], self.limits.upper[self.loose])
        self.affine.solve(self, u, externals, out)
        for one in self.prepared:
            self._iterate(one, start, u, externals, tolerance, warm, out)
        self._certify(start, u, externals, out)

    def _iterate(
        self, one: Prepared, start: Values, u: Values, externals: Values, tolerance: float, warm: Values | None,
        out: _Outcome,
    ) -> None:  # fmt: skip
        system, frame = one.system, one.frame
        lanes = len(u) * system.parts
        space, at = _space(one, _tiles(lanes))

        def part(number: int) -> Values:
            return space[:, at[number] : at[number + 1]]

        gather(u, system.inputs, 1, part(core.CELLS))
        gather(externals, self._outside(system.externals), 1 + system.inputs.shape[1], part(core.CELLS))
        _ones(part(core.CELLS))
        gather(u, system.unknowns, 0, part(core.X))
        gather(start, system.unknowns, 0, part(core.TARGET))
        still_shift(*_arrays(system.still), system.eliminated, start, part(core.SHIFT))
        part(core.JACOBIAN)[:] = np.repeat(system.program.constants, LANES)
        if frame.bounded:
            gather(np.tile(self.limits.lower, (len(u), 1)), system.unknowns, 0, part(core.LOWER))
            gather(np.tile(self.limits.upper, (len(u), 1)), system.unknowns, 0, part(core.UPPER))
        if warm is not None:
            gather(warm, system.rows, 0, part(core.MULTIPLIER))
        status, iterations = self._run(one, space, at, lanes, tolerance)
        for begin in _STARTS:
            failed = np.flatnonzero((status != Status.CONVERGED) & (status != Status.NONFINITE))
            if not len(failed):
                break
            again = _lanes(space, failed)
            begin(again[:, at[core.X] : at[core.X + 1]])
            again[:, at[core.MULTIPLIER] : at[core.MULTIPLIER + 1]] = 0.0
            outcome, more = self._run(one, again, at, len(failed), tolerance)
            iterations[failed] += more
            arrived = np.flatnonzero(outcome == Status.CONVERGED)
            _put_lanes(space, failed[arrived], again, arrived)
            status[failed[arrived]] = Status.CONVERGED
        scatter(part(core.X), 0, system.unknowns, u)
        still_back(*_arrays(system.still), system.eliminated, part(core.MULTIPLIER), -1.0, u)
        scatter(part(core.MULTIPLIER), 0, system.rows, out.multipliers)
        worst = status.reshape(len(u), system.parts).max(axis=1)
        np.maximum(out.status, worst, out=out.status)
        most = iterations.reshape(len(u), system.parts).max(axis=1)
        np.maximum(out.iterations, most, out=out.iterations)

    def _run(
        self, one: Prepared, space: Values, at: Index, lanes: int, tolerance: float
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Iterate on the first `lanes` lanes of a space; give their statuses and iterations."""
        live = np.zeros((len(space), LANES), bool)
        live.ravel()[:lanes] = True
        status, iterations = np.empty((len(space), LANES), np.int64), np.empty((len(space), LANES), np.int64)
        settings = core.Settings(tolerance, GAP, ITERATIONS)
        code, frame, plan, signs = one.system.program.code, one.frame, one.schedule, one.signs
        shared(
            lambda first, last: solve_tiles(
                code, frame, plan, signs, settings, first, last, live, space, at, status, iterations
            ),
            len(space),
        )
        return status.ravel()[:lanes], iterations.ravel()[:lanes]

    def _certify(self, start: Values, u: Values, externals: Values, out: _Outcome) -> None:
        """Find the multipliers of substituted rows, last level first; what is left of u − û + Jᵀλ is the gap."""
        rest = u - start
        for one in self.prepared:
            system = one.system
            weight = np.zeros((_tiles(len(u) * system.parts), system.rows.shape[1] * LANES))
            gather(out.multipliers, system.rows, 0, weight)
            self._pull(system.program, system.inputs, system.externals, u, externals, weight, rest)
            still_back(*_arrays(system.still), system.eliminated, weight, 1.0, rest)
        self.affine.pull(self, u, externals, out, rest)
        for level, program in zip(reversed(self.reduction.cascade.levels), reversed(self.reduction.marches)):
            out.multipliers[:, level.rows] = -rest[:, level.unknowns] / level.weights
            weight = np.zeros((_tiles(len(u)), len(level.rows) * LANES))
            gather(out.multipliers, level.rows[None], 0, weight)
            self._pull(program, program.unknowns[None], program.externals[None], u, externals, weight, rest)
        if self.limits.bounded.any():
            # At a bound the rest is minus the bound's own multiplier: fine where it pushes against the bound.
            at_upper, at_lower = u >= self.limits.upper, u <= self.limits.lower
            rest[at_upper & (rest < 0)] = 0.0
            rest[at_lower & (rest > 0)] = 0.0
        sign = np.zeros(len(u))
        unequal = ~self.structure.equality_rows
        if unequal.any():
            sign = np.maximum(-out.multipliers[:, unequal], 0.0).max(axis=1)
        out.gap[:] = np.maximum(np.abs(rest).max(axis=1, initial=0.0), sign)

    def _pull(
        self,
        program: Program,
        inputs: Index,
        outside: Index,
        u: Values,
        externals: Values,
        weight: Values,
        rest: Values,
    ) -> None:
        """Add the gradient of Σ weight·row to `rest`."""
        cells, _ = _values(program, inputs, self._outside(outside), u, externals)
        adjoint = np.empty_like(cells)
        partial = np.empty((len(cells), 5 * LANES * program.operations))
        run_gradient(program.code, cells, weight, partial, adjoint)
        scatter_add(adjoint, 1, inputs, rest)

    def _outside(self, cells: Index) -> Index:
        """Number cells of params from zero."""
        return cells - (self.listing.unknowns + 1)


@dataclass(frozen=True)
class _Outcome:
    """What a call fills in, chunk by chunk."""

    u: Values
    multipliers: Values
    gap: Values
    status: npt.NDArray[np.int8]
    iterations: Index

    @classmethod
    def empty(cls, count: int, unknowns: int, rows: int) -> _Outcome:
        return cls(
            np.empty((count, unknowns)), np.zeros((count, rows)), np.empty(count),
            np.full(count, Status.CONVERGED, np.int8), np.ones(count, np.int64),
        )  # fmt: skip

    def part(self, part: slice) -> _Outcome:
        return _Outcome(self.u[part], self.multipliers[part], self.gap[part], self.status[part], self.iterations[part])


class _AffinePart:
    """The rows of a reduction that are solved in closed form: one factor for all samples."""

    def __init__(self, reduction: Reduction) -> None:
        self.rows = reduction.affine
        listing, free = reduction.listing, reduction.cascade.free
        whole = csr_array(reduction.rows[self.rows])
        self.program = build_program(listing, whole, np.zeros(0, np.int64))
        place = np.flatnonzero(free)
        pick = csr_array((np.ones(len(place)), (place, place)), shape=(len(free), len(free)))
        self.matrix = csr_array(csr_array(whole[:, : listing.unknowns]) @ pick)
        self.matrix.eliminate_zeros()
        self.unknowns = np.arange(listing.unknowns)[None]
        self.gram = Gram(self.matrix) if len(self.rows) else None

    def solve(self, newton: Newton, u: Values, externals: Values, out: _Outcome) -> None:
        """Move u onto the rows; written: u, out.multipliers."""
        if self.gram is None:
            return
        program = self.program
        for _ in range(2):  # the second takes out what the condition of the factor left
            rows = _values(program, program.unknowns[None], newton._outside(program.externals[None]), u, externals)[1]
            residual = np.empty((len(u), len(self.rows)))
            scatter(rows, 0, np.arange(len(self.rows))[None], residual)
            step = self.gram.solve(residual)
            out.multipliers[:, self.rows] += step
            weight = np.zeros((_tiles(len(u)), len(self.rows) * LANES))
            gather(step, np.arange(len(self.rows))[None], 0, weight)
            still_back(*_arrays(self.matrix), self.unknowns, weight, -1.0, u)

    def pull(self, newton: Newton, u: Values, externals: Values, out: _Outcome, rest: Values) -> None:
        """Add the rows' share of Jᵀλ to `rest`."""
        if self.gram is None:
            return
        weight = np.zeros((_tiles(len(u)), len(self.rows) * LANES))
        gather(out.multipliers, self.rows[None], 0, weight)
        newton._pull(
            self.program, self.program.unknowns[None], self.program.externals[None], u, externals, weight, rest
        )


def _scattered(x: Values) -> None:
    """Move off a point where rows are flat or parallel: a fixed scatter without symmetry, a hundredth of the field's size."""
    unknowns = x.shape[1] // LANES
    scatter = np.modf(np.arange(1, unknowns + 1) * _GOLDEN)[0] * 2.0 - 1.0
    lanes = x.reshape(len(x), unknowns, LANES)
    size = np.maximum(np.abs(lanes).max(axis=1, keepdims=True, initial=0.0), 1.0)
    lanes += 1e-2 * size * scatter[:, None]


def _zero(x: Values) -> None:
    """Start from nothing: noise is the worst start for transport laws, zero often the best."""
    x[:] = 0.0
    _scattered(x)


_GOLDEN = 0.6180339887498949
_STARTS = (_scattered, _zero)  # tried in turn by samples that did not arrive from û


def _lanes(space: Values, which: Index) -> Values:
    """Copy chosen lanes into a space of their own; the last tile is filled up with copies of its last lane."""
    filled = np.concatenate([which, np.repeat(which[-1:], -len(which) % LANES)])
    lanes = space.reshape(len(space), -1, LANES)[filled // LANES, :, filled % LANES]
    return np.ascontiguousarray(lanes.reshape(-1, LANES, lanes.shape[1]).transpose(0, 2, 1)).reshape(
        len(filled) // LANES, -1
    )


def _put_lanes(space: Values, to: Index, source: Values, come: Index) -> None:
    """Copy lanes back. Written: space."""
    whole, part = space.reshape(len(space), -1, LANES), source.reshape(len(source), -1, LANES)
    whole[to // LANES, :, to % LANES] = part[come // LANES, :, come % LANES]


def _values(program: Program, inputs: Index, outside: Index, u: Values, externals: Values) -> tuple[Values, Values]:
    """Evaluate a program on a batch: (cells, rows) in tiles."""
    tiles = _tiles(len(u) * len(inputs))
    cells = np.empty((tiles, program.cells * LANES))
    rows = np.empty((tiles, program.pattern.rows * LANES))
    _ones(cells)
    gather(u, inputs, 1, cells)
    gather(externals, outside, 1 + inputs.shape[1], cells)
    run_values(program.code, cells, rows)
    return cells, rows


def _ones(cells: Values) -> None:
    cells[:, :LANES] = 1.0  # cell 0 is the constant


def _tiles(lanes: int) -> int:
    return (lanes + LANES - 1) // LANES


def _arrays(matrix: csr_array) -> tuple[Index, Index, Values]:
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data


def _space(one: Prepared, tiles: int) -> tuple[Values, Index]:
    """Make the memory of all tiles: (tiles, …) and where each section begins."""
    program, plan, frame = one.system.program, one.schedule, one.frame
    v, m, ops = program.pattern.columns, program.pattern.rows, program.operations
    limits = v if frame.bounded else 0
    packs = [0] * core.SECTIONS
    for sections, count in {
        (core.CELLS,): program.cells,
        (core.SLOTS,): program.slots + 1,
        (core.LEFT, core.RIGHT): program.slots,
        (core.PARTIAL,): 5 * ops,
        (core.ADJOINT,): ops,
        (core.BENDS,): program.bends.nnz,
        (core.JACOBIAN, core.SCALED): program.pattern.nnz,
        (core.X, core.TARGET, core.SLOPE, core.WEIGHT, core.INVERSE, core.STEP, core.PLAIN_STEP, core.BEFORE): v,
        (core.LOWER, core.UPPER, core.TO_BOUND): limits,
        (core.ROWS, core.MULTIPLIER, core.DIRECTION, core.PLAIN_DIRECTION, core.SHIFT, core.RESIDUAL): m,
        (core.ACTIVE, core.IDLE, core.NORM, core.BEFORE_MULTIPLIER): m,
        (core.MATRIX,): one.entries,
        (core.RHS,): v + m if frame.augmented else m,
        (core.FACTOR,): plan.packs,
        (core.PIVOTS, core.SCALE, core.WORK): plan.slots,
        (core.TALLY,): TALLY,
    }.items():
        for section in sections:
            packs[section] = count
    at = starts([LANES * count for count in packs])
    return np.zeros((tiles, int(at[-1]))), at
