"""Newton: any mix of laws whose operators can be lowered. Substitute, solve what is affine, iterate on the rest, certify.

The walk of one call (math.md, "Reduction"): march the determined unknowns, closed form for affine parts, Newton for the
others, then all multipliers backwards, which leaves the stationarity of every unknown as what remains. Owns its memory;
knows laws only through the reduction of their structure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csc_array, csr_array, diags_array
from torch import Tensor

from snapfm.errors import Status
from snapfm.kernels.coordinates import condense, distances, expand, turn
from snapfm.kernels.lanes import scatter, still_back, still_shift, substitute
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import shared
from snapfm.laws import Params
from snapfm.project.adjoint import solve_adjoint
from snapfm.project.affine import Gram
from snapfm.project.base import Solution, Warm
from snapfm.project.limits import Limits
from snapfm.project.part import Part
from snapfm.project.tiles import Index, Values, arrays, evaluate, pull, transposed, weights
from snapfm.structure import RowKind, Structure
from snapfm.structure.batched import each
from snapfm.structure.lower import lower
from snapfm.structure.program import build_program
from snapfm.structure.reduce import Reduction, reduce

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
        self.listing = self.reduction.listing
        more = np.full(self.listing.unknowns - structure.unknowns, np.inf)
        self.lower, self.upper = np.concatenate([limits.lower, -more]), np.concatenate([limits.upper, more])
        outside = self.listing.unknowns + 1
        self.parts = [Part(system, self.lower, self.upper, outside) for system in self.reduction.systems]
        self.affine = _AffinePart(self.reduction)
        self.marches = [
            (level, program, program.unknowns[None], program.externals[None] - outside)
            for level, program in zip(self.reduction.cascade.levels, self.reduction.marches)
        ]
        touched = np.zeros(self.listing.unknowns, bool)
        for system in self.reduction.systems:
            touched[system.unknowns.ravel()] = True
        bounded = np.isfinite(self.lower) | np.isfinite(self.upper)
        # Bounded unknowns that no row moves are clipped at once; determined ones cannot move.
        self.loose = np.flatnonzero(bounded & self.reduction.cascade.free & ~touched)
        # Where u − û + Jᵀλ has to be looked at: u = û − Aᵀλ makes it vanish for all others.
        self.moving = np.flatnonzero(touched)
        looked = ~self.reduction.cascade.free | touched
        looked[self.reduction.groups.members] = False
        self.looked = np.flatnonzero(looked)
        self.example = u
        self._free: list[tuple[Values, Values, Values]] = []
        self._params: Params | None = None
        self._known: Values = np.zeros((0, 0))

    def solve(self, start: Tensor, params: Params, tolerance: float, warm: Warm | None = None) -> Solution:
        """Project a float64 batch (b, *shape); iterations begin at û, or where `warm` says."""
        field = start.reshape(len(start), self.structure.unknowns).numpy()
        out = _Outcome.empty(len(field), field.shape[1], self.structure.rows)
        externals = self._externals(params, len(field))

        for first in range(0, len(field), _CHUNK):
            piece = slice(first, min(first + _CHUNK, len(field)))
            known = None if warm is None else (warm.u[piece].numpy(), warm.multipliers[piece].numpy())
            self._solve_piece(field[piece], externals[piece], tolerance, known, out.part(piece))
        u = torch.from_numpy(out.u)
        residual = self.structure.residual(u.reshape(start.shape), params)
        gap = np.maximum(out.gap, self._complementarity(residual.numpy(), out.multipliers))
        return Solution(
            u, torch.from_numpy(out.multipliers), torch.from_numpy(out.iterations), residual, torch.from_numpy(gap),
            torch.from_numpy(out.distance), torch.from_numpy(out.status),
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

    def _solve_piece(
        self, given: Values, externals: Values, tolerance: float, warm: tuple[Values, Values] | None, out: _Outcome
    ) -> None:
        start, u, rest = self._borrow(len(given))
        shared(lambda some: self._coordinates(given[some], start[some], u[some]), len(given), LANES)
        if warm is not None:
            self._coordinates(warm[0], rest, rest)
            u[:, self.moving] = rest[:, self.moving]
        for level, program, inputs, outside in self.marches:
            rows = evaluate(program, inputs, outside, u, externals)[1]
            substitute(rows, level.unknowns, level.weights, u)
        if len(self.loose):
            u[:, self.loose] = np.clip(u[:, self.loose], self.lower[self.loose], self.upper[self.loose])
        self.affine.solve(u, externals, out.multipliers)
        multiplier = None if warm is None else warm[1]
        for part in self.parts:
            status, iterations = self._iterate(part, start, u, externals, tolerance, multiplier, out.multipliers)
            np.maximum(out.status, status, out=out.status)
            np.maximum(out.iterations, iterations, out=out.iterations)
        out.gap[:] = self._certify(start, u, externals, out.multipliers, rest)
        shared(lambda some: self._field(given[some], start[some], u[some], out.part(some)), len(given), LANES)
        self._free.append((start, u, rest))

    def _borrow(self, count: int) -> tuple[Values, Values, Values]:
        """Lend three batches over the reduction's unknowns; fresh memory would cost more than a pass over it."""
        while self._free:
            try:
                memory = self._free.pop()
            except IndexError:  # another thread took it
                break
            if len(memory[0]) == count:
                return memory
        width = self.listing.unknowns
        return np.empty((count, width)), np.empty((count, width)), np.empty((count, width))

    def _iterate(
        self, part: Part, start: Values, u: Values, externals: Values, tolerance: float, warm: Values | None,
        multipliers: Values,
    ) -> tuple[Index, Index]:  # fmt: skip
        status, iterations = part.solve(start, u, externals, tolerance, warm, multipliers)
        if not len(self.reduction.groups):
            return status, iterations
        # A group turned inside out (y₂ < 0) obeys as well as its mirror image, which is nearer: go on from there.
        lengths = u[:, self.reduction.groups.first + 1 :: 2]
        again = np.flatnonzero((lengths < 0.0).any(axis=1) & (status == Status.CONVERGED))
        if len(again):
            lengths[again] = np.abs(lengths[again])
            mirrored, found = u[again], multipliers[again]
            then, more = part.solve(start[again], mirrored, externals[again], tolerance, None, found)
            u[again], multipliers[again] = mirrored, found
            status[again], iterations[again] = then, iterations[again] + more
        return status, iterations

    def _coordinates(self, given: Values, start: Values, u: Values) -> None:
        """Write fields (b, n) over the reduction's unknowns. Written: start and its copy u."""
        turns, groups = self.reduction.turns, self.reduction.groups
        start[:, : given.shape[1]] = given
        if len(turns):
            turn(turns.first, turns.second, turns.cos, turns.sin, start)
        if len(groups):
            condense(groups.ptr, groups.members, groups.first, start)
        u[:] = start

    def _field(self, given: Values, start: Values, u: Values, out: _Outcome) -> None:
        """Write the answer over the field's own unknowns, and how far it is. Written: u, out."""
        turns, groups = self.reduction.turns, self.reduction.groups
        if len(groups):
            expand(groups.ptr, groups.members, groups.first, start, u)
        if len(turns):
            turn(turns.first, turns.second, turns.cos, -turns.sin, u)
        out.u[:] = u[:, : given.shape[1]]
        distances(out.u, given, out.distance)

    def _certify(self, start: Values, u: Values, externals: Values, multipliers: Values, rest: Values) -> Values:
        """Find the multipliers of substituted rows, last level first; give what is left of u − û + Jᵀλ, per sample.

        Written: multipliers, rest.
        """
        rest[:] = 0.0
        rest[:, self.looked] = u[:, self.looked] - start[:, self.looked]
        for part in self.parts:
            system = part.system
            pull(system.program, system.inputs, part.outside, u, externals, weights(multipliers, system.rows), rest)
        self.affine.pull(u, externals, multipliers, rest)
        for level, program, inputs, outside in reversed(self.marches):
            multipliers[:, level.rows] = -rest[:, level.unknowns] / level.weights
            pull(program, inputs, outside, u, externals, weights(multipliers, level.rows[None]), rest)
        turns, groups = self.reduction.turns, self.reduction.groups
        if len(groups):  # a member's rest is at most that of its two coordinates together
            one, two = rest[:, groups.first :: 2], rest[:, groups.first + 1 :: 2]
            one[:] = np.abs(one) + np.abs(two)
        if len(turns):
            turn(turns.first, turns.second, turns.cos, -turns.sin, rest)
        rest = rest[:, self.looked]
        if self.limits.bounded.any():
            # At a bound the rest is minus the bound's own multiplier: fine where it pushes against the bound.
            at = u[:, self.looked]
            rest[(at >= self.upper[self.looked]) & (rest < 0)] = 0.0
            rest[(at <= self.lower[self.looked]) & (rest > 0)] = 0.0
        gap: Values = np.abs(rest).max(axis=1, initial=0.0)
        return gap

    def _complementarity(self, residual: Values, multipliers: Values) -> Values:
        """Per sample: how far the multipliers of inequalities have the wrong sign, or push where there is room."""
        unequal = np.flatnonzero(~self.structure.equality_rows)
        sign, room = multipliers[:, unequal], np.maximum(-residual[:, unequal], 0.0)
        off: Values = np.maximum(-sign, np.abs(sign) * room).max(axis=1, initial=0.0)
        return off


@dataclass(frozen=True)
class _Outcome:
    """What a call fills in, piece by piece."""

    u: Values
    multipliers: Values
    gap: Values
    distance: Values
    status: npt.NDArray[np.int8]
    iterations: Index

    @classmethod
    def empty(cls, count: int, unknowns: int, rows: int) -> _Outcome:
        return cls(
            np.empty((count, unknowns)), np.zeros((count, rows)), np.empty(count), np.empty(count),
            np.full(count, Status.CONVERGED, np.int8), np.ones(count, np.int64),
        )  # fmt: skip

    def part(self, piece: slice) -> _Outcome:
        return _Outcome(
            self.u[piece], self.multipliers[piece], self.gap[piece], self.distance[piece], self.status[piece],
            self.iterations[piece],
        )  # fmt: skip


class _AffinePart:
    """The rows of a reduction that are solved in closed form: one factor for all samples."""

    def __init__(self, reduction: Reduction) -> None:
        self.rows = reduction.affine
        listing, free = reduction.listing, reduction.cascade.free
        whole = csr_array(reduction.rows[self.rows])
        moving = np.zeros(listing.cells)
        moving[: listing.unknowns] = free
        matrix = csr_array(csr_array(whole @ diags_array(moving))[:, : listing.unknowns])
        matrix.eliminate_zeros()
        columns = np.flatnonzero(np.diff(csc_array(matrix).indptr))
        self.unknowns = columns[None]
        matrix = csr_array(matrix[:, columns])
        self.matrix, self.back = arrays(matrix), transposed(matrix)
        # What is left is known before: cells of params, and unknowns that were substituted.
        known = csr_array(whole @ diags_array(1.0 - moving))
        known.eliminate_zeros()
        self.program = build_program(listing, known, np.zeros(0, np.int64))
        self.inputs, self.outside = self.program.unknowns[None], self.program.externals[None] - (listing.unknowns + 1)
        self.own = np.arange(len(self.rows))[None]
        self.gram = Gram(matrix) if len(self.rows) else None

    def solve(self, u: Values, externals: Values, multipliers: Values) -> None:
        """Move u onto the rows; written: u, multipliers."""
        if self.gram is None:
            return
        base = evaluate(self.program, self.inputs, self.outside, u, externals)[1]
        moved = np.empty_like(base)
        # A second solve takes out what the condition of the factor left; a diagonal one leaves nothing.
        for _ in range(1 if self.gram.factor is None else 2):
            still_shift(*self.matrix, self.unknowns, u, 0, moved)
            residual = np.empty((len(u), len(self.rows)))
            scatter(base + moved, 0, self.own, residual)
            step = self.gram.solve(residual)
            multipliers[:, self.rows] += step
            shared(partial(self._move, weights(step, self.own), u), len(u), LANES)

    def _move(self, weight: Values, u: Values, some: slice) -> None:
        still_back(*self.back, self.unknowns, weight[some.start // LANES :], 0, len(self.rows), -1.0, u[some])

    def pull(self, u: Values, externals: Values, multipliers: Values, rest: Values) -> None:
        """Add the rows' share of Jᵀλ to `rest`, for unknowns that were substituted; it vanishes for the others."""
        if self.inputs.shape[1]:
            weight = weights(multipliers, self.rows[None])
            pull(self.program, self.inputs, self.outside, u, externals, weight, rest)
