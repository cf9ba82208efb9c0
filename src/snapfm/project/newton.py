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
from snapfm.kernels.coordinates import condense, expand, turn
from snapfm.kernels.lanes import scatter, still_back, substitute
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import shared, workers
from snapfm.laws import Params
from snapfm.project.adjoint import solve_adjoint
from snapfm.project.affine import Gram
from snapfm.project.base import Solution
from snapfm.project.limits import Limits
from snapfm.project.part import Part
from snapfm.project.tiles import Index, Values, arrays, evaluate, pull, weights
from snapfm.structure import RowKind, Structure
from snapfm.structure.batched import each
from snapfm.structure.lower import lower
from snapfm.structure.program import build_program
from snapfm.structure.reduce import Reduction, reduce

_CHUNK = 32  # samples worked on at once by a thread: bounds memory, and keeps a chunk's cells near the caches


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
        self.example = u
        self._params: Params | None = None
        self._known: Values = np.zeros((0, 0))

    def solve(self, start: Tensor, params: Params, tolerance: float, warm: Tensor | None = None) -> Solution:
        """Project a float64 batch (b, *shape); `warm` (b, m) are multipliers to start from."""
        field = start.reshape(len(start), self.structure.unknowns).numpy()
        out = _Outcome.empty(len(field), field.shape[1], self.structure.rows)
        externals = self._externals(params, len(field))
        known = None if warm is None else warm.numpy()

        def work(piece: slice) -> None:
            before = None if known is None else known[piece]
            self._solve_piece(field[piece], externals[piece], tolerance, before, out.part(piece))

        shared(work, _pieces(len(field)))
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
        self, given: Values, externals: Values, tolerance: float, warm: Values | None, out: _Outcome
    ) -> None:
        start = self._coordinates(given)
        u = start.copy()
        for level, program, inputs, outside in self.marches:
            rows = evaluate(program, inputs, outside, u, externals)[1]
            substitute(rows, level.unknowns, level.weights, u)
        if len(self.loose):
            u[:, self.loose] = np.clip(u[:, self.loose], self.lower[self.loose], self.upper[self.loose])
        self.affine.solve(u, externals, out.multipliers)
        for part in self.parts:
            status, iterations = self._iterate(part, start, u, externals, tolerance, warm, out.multipliers)
            np.maximum(out.status, status, out=out.status)
            np.maximum(out.iterations, iterations, out=out.iterations)
        out.gap[:] = self._certify(start, u, externals, out.multipliers)
        self._field(start, u, out.u)
        np.sqrt(((out.u - given) ** 2).sum(axis=1), out=out.distance)

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

    def _coordinates(self, given: Values) -> Values:
        """Write fields (b, n) over the reduction's unknowns."""
        turns, groups = self.reduction.turns, self.reduction.groups
        start = np.empty((len(given), self.listing.unknowns))
        start[:, : given.shape[1]] = given
        if len(turns):
            turn(turns.first, turns.second, turns.cos, turns.sin, start)
        if len(groups):
            condense(groups.ptr, groups.members, groups.first, start)
        return start

    def _field(self, start: Values, u: Values, field: Values) -> None:
        """Write the answer over the field's own unknowns. Written: u, field."""
        turns, groups = self.reduction.turns, self.reduction.groups
        if len(groups):
            expand(groups.ptr, groups.members, groups.first, start, u)
        if len(turns):
            turn(turns.first, turns.second, turns.cos, -turns.sin, u)
        field[:] = u[:, : field.shape[1]]

    def _certify(self, start: Values, u: Values, externals: Values, multipliers: Values) -> Values:
        """Find the multipliers of substituted rows, last level first; give what is left of u − û + Jᵀλ, per sample.

        Written: multipliers.
        """
        rest = u - start
        for part in self.parts:
            system = part.system
            weight = weights(multipliers, system.rows)
            pull(system.program, system.inputs, part.outside, u, externals, weight, rest)
            still_back(*part.still, system.eliminated, weight, 0, 1.0, rest)
        self.affine.pull(u, externals, multipliers, rest)
        for level, program, inputs, outside in reversed(self.marches):
            multipliers[:, level.rows] = -rest[:, level.unknowns] / level.weights
            pull(program, inputs, outside, u, externals, weights(multipliers, level.rows[None]), rest)
        turns, groups = self.reduction.turns, self.reduction.groups
        if len(groups):  # a member's rest is at most that of its two coordinates together
            one, two = rest[:, groups.first :: 2], rest[:, groups.first + 1 :: 2]
            one[:] = np.abs(one) + np.abs(two)
            rest[:, groups.members] = 0.0
        if len(turns):
            turn(turns.first, turns.second, turns.cos, -turns.sin, rest)
        if self.limits.bounded.any():
            # At a bound the rest is minus the bound's own multiplier: fine where it pushes against the bound.
            at_upper, at_lower = u >= self.upper, u <= self.lower
            rest[at_upper & (rest < 0)] = 0.0
            rest[at_lower & (rest > 0)] = 0.0
        gap: Values = np.abs(rest).max(axis=1, initial=0.0)
        return gap

    def _complementarity(self, residual: Values, multipliers: Values) -> Values:
        """Per sample: how far the multipliers of inequalities have the wrong sign, or push where there is room."""
        unequal = np.flatnonzero(~self.structure.equality_rows)
        sign, room = multipliers[:, unequal], np.maximum(-residual[:, unequal], 0.0)
        off: Values = np.maximum(-sign, np.abs(sign) * room).max(axis=1, initial=0.0)
        return off


def _pieces(count: int) -> list[slice]:
    """Cut a batch: whole tiles, at least one piece per thread where there are enough, no more than a chunk each."""
    tiles = (count + LANES - 1) // LANES
    size = LANES * min(-(-tiles // workers()), _CHUNK // LANES)
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]


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
        self.program = build_program(listing, whole, np.zeros(0, np.int64))
        self.inputs, self.outside = self.program.unknowns[None], self.program.externals[None] - (listing.unknowns + 1)
        place = np.flatnonzero(free)
        pick = csr_array((np.ones(len(place)), (place, place)), shape=(len(free), len(free)))
        matrix = csr_array(csr_array(whole[:, : listing.unknowns]) @ pick)
        matrix.eliminate_zeros()
        self.matrix = arrays(matrix)
        self.unknowns = np.arange(listing.unknowns)[None]
        self.own = np.arange(len(self.rows))[None]
        self.gram = Gram(matrix) if len(self.rows) else None

    def solve(self, u: Values, externals: Values, multipliers: Values) -> None:
        """Move u onto the rows; written: u, multipliers."""
        if self.gram is None:
            return
        for _ in range(2):  # the second takes out what the condition of the factor left
            rows = evaluate(self.program, self.inputs, self.outside, u, externals)[1]
            residual = np.empty((len(u), len(self.rows)))
            scatter(rows, 0, self.own, residual)
            step = self.gram.solve(residual)
            multipliers[:, self.rows] += step
            still_back(*self.matrix, self.unknowns, weights(step, self.own), 0, -1.0, u)

    def pull(self, u: Values, externals: Values, multipliers: Values, rest: Values) -> None:
        """Add the rows' share of Jᵀλ to `rest`."""
        if self.gram is not None:
            weight = weights(multipliers, self.rows[None])
            pull(self.program, self.inputs, self.outside, u, externals, weight, rest)
