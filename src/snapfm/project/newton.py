"""Newton: the one method. Substitute, solve what is affine, iterate on the rest, certify.

The walk of one call (math.md, "Reduction"): march the determined unknowns, closed form for affine parts, Newton for the
others, then all multipliers backwards, which leaves the stationarity of every unknown as what remains. Laws that only torch
can evaluate are one part of their own. Owns its memory; knows laws only through their reduction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.arrays import Index, Values
from snapfm.errors import Status
from snapfm.kernels.batches import determine
from snapfm.kernels.callback import NO_CALLBACK
from snapfm.kernels.coordinates import differences, distances, largest
from snapfm.kernels.layout import HOLDS, UNKNOWN
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import Clock, Turn, cut, run, workers
from snapfm.laws import Params
from snapfm.linear import Lanes, Solver
from snapfm.project.adjoint import Adjoint
from snapfm.project.base import Solution, Warm
from snapfm.project.budget import Budget, Stopping, certified, enough
from snapfm.project.closed_form import AffinePart, Coordinates, Rows
from snapfm.project.limits import Limits
from snapfm.project.opaque import Evaluator, opaque_reduction
from snapfm.project.part import Batch, Part
from snapfm.project.tiles import Ended, gravest
from snapfm.structure import CompiledLaws, RowKind
from snapfm.structure.lowering import Unlowerable
from snapfm.structure.reduce import Reduction, reduce
from snapfm.structure.scalar import evaluate_externals

Field = npt.NDArray[np.float32] | npt.NDArray[np.float64]

# Seconds of work that make it worth to wake another thread: some fifteen kernels a piece hand the interpreter's lock to and fro.
_WORTH_SHARING = 8e-3
# Seconds that one compiled call may take before the clock and Control-C have to be able to end it.
_WATCHED = 0.25
_BESIDE = 0.1  # where iterations on a flat slice begin, relative to its size
_CHUNK = 64  # samples worked on at once: bounds memory
_NEAR = 16  # likewise without a certificate, where the work is little and so must be done near the caches


class Newton:
    """Prepared for compiled laws and limits. `linear` factorises the KKT matrices: Lanes() inside the compiled loop, any
    other solver through a callback. Without `retry` a sample that Newton's iteration fails on is not tried again.
    """

    def __init__(self, laws: CompiledLaws, limits: Limits, linear: Solver | None = None, retry: bool = True) -> None:
        self.laws, self.limits, self.retry = laws, limits, retry
        self.reduction, self.opaque = _reduced(laws, limits)
        self.tape = self.reduction.tape
        more = np.full(self.tape.unknowns - laws.unknowns, np.inf)
        self.lower, self.upper = np.concatenate([limits.lower, -more]), np.concatenate([limits.upper, more])
        outside = self.tape.unknowns + 1
        groups = self.reduction.groups
        lengths = groups.first + 1 + 2 * np.arange(len(groups))
        solver = Lanes() if linear is None else linear
        self.parts = [
            Part(system, self.lower, self.upper, outside, lengths, solver) for system in self.reduction.systems
        ]
        self.affine = AffinePart(self.reduction)
        self.coordinates = Coordinates(self.reduction, laws.unknowns)
        self.substitutions = [
            (level, Rows(program, program.unknowns[None], program.externals[None] - outside))
            for level, program in zip(self.reduction.cascade.levels, self.reduction.substitutions)
        ]
        touched = np.zeros(self.tape.unknowns, bool)
        for system in self.reduction.systems:
            touched[system.unknowns.ravel()] = True
        bounded = np.isfinite(self.lower) | np.isfinite(self.upper)
        self.bounded = np.flatnonzero(bounded & self.reduction.cascade.free)
        # Bounded unknowns that no row moves are clipped at once; determined ones cannot move.
        self.clipped = np.flatnonzero(bounded & self.reduction.cascade.free & ~touched)
        # Where u − û + Jᵀλ has to be checked at: u = û − Aᵀλ makes it vanish for all others.
        self.moving = np.flatnonzero(touched)
        checked = ~self.reduction.cascade.free | touched
        checked[self.reduction.groups.members] = False
        self.checked = np.flatnonzero(checked)
        self.inequality_rows = np.flatnonzero(~laws.equality_rows)
        # Seconds that one compiled call may take, for each sample of a piece and each iteration of its limit.
        self.longest = max((part.seconds(LANES, 1, self.opaque) for part in self.parts), default=0.0) / LANES
        self._free: list[tuple[Values, Values, Values]] = []
        self._adjoint = Adjoint(laws, limits)
        self._pace = (
            0.0  # processor seconds a sample took at the last call: others' use of the machine does not show in it
        )
        self._compiled = False
        self._known: tuple[Params, _Known] | None = None  # params and what follows from them; swapped whole, read once
        # What params alone decide: unknowns of the first level, if its rows read nothing else, and the affine rows' constants.
        pinned = np.zeros(0, np.int64)
        if self.substitutions and set(self.substitutions[0][1].inputs[0]) <= set(self.substitutions[0][0].unknowns):
            pinned = self.substitutions[0][0].unknowns
        self.pinning = len(pinned) > 0
        self.steady = set(self.affine.known.inputs[0]) <= set(pinned)

    @property
    def implied(self) -> Index:
        """Rows that hold if the others do."""
        return self.reduction.implied

    def solve(self, start: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget) -> Solution:
        """Project a float64 batch (b, *shape); iterations begin at û, or where `warm` says."""
        field = start.reshape(len(start), self.laws.unknowns).numpy()
        out = self._outcome(np.empty(field.shape))
        self._run(field, params, certified(tolerance), warm, out, budget, certify=True)
        u = torch.from_numpy(out.u)
        residual = self.laws.residual(u.reshape(start.shape), params)
        gap = np.maximum(out.gap, self._complementarity(residual.numpy(), out.multipliers))
        return Solution(
            u, torch.from_numpy(out.multipliers), torch.from_numpy(out.iterations), residual, torch.from_numpy(gap),
            torch.from_numpy(out.distance), torch.from_numpy(out.status), self._warm(out), torch.from_numpy(out.second),
        )  # fmt: skip

    def move(
        self, given: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget
    ) -> tuple[Tensor, Warm]:
        """Do the same without a certificate, in the dtype given: multipliers of substituted rows are left at zero."""
        field = given.reshape(len(given), self.laws.unknowns).numpy()
        out = self._outcome(np.empty_like(field))
        self._run(field, params, enough(tolerance), warm, out, budget, certify=False)
        return torch.from_numpy(out.u).reshape(given.shape), self._warm(out)

    def recall(self, u: Tensor, multipliers: Tensor, usable: Tensor) -> Warm:
        """Say where iterations begin that go on from a projection (b, *shape), (b, m) by someone else."""
        given = np.empty((len(u), self.tape.unknowns))
        self.coordinates.enter(u.reshape(len(u), self.laws.unknowns).numpy(), given)
        return Warm(given[:, self.moving], multipliers.numpy(), usable.numpy(), self)

    def _outcome(self, u: Field) -> _Outcome:
        return _Outcome.empty(u, self.laws.rows, len(self.moving))

    def _warm(self, out: _Outcome) -> Warm:
        return Warm(out.place, out.multipliers, out.status == Status.CONVERGED, self)

    def _run(
        self,
        field: Field,
        params: Params,
        stopping: Stopping,
        warm: Warm | None,
        out: _Outcome,
        budget: Budget,
        certify: bool,
    ) -> None:
        """Work through a batch (b, n) piece by piece. Written: out."""
        self._compile(budget.clock)
        known, count = self._from_params(params, len(field)), len(field)

        evaluator = self._evaluator(params)

        def work(piece: slice, turn: Turn) -> bool:
            given, mine = field[piece], out.part(piece)
            late = turn.over
            if late:
                mine.leave(given)
            else:
                some = known.part(piece)
                self._solve_piece(given, some, stopping, _of(warm, piece), mine, certify, budget.limit, turn, evaluator)
            return not late and not (turn.over and bool((mine.status == Status.ITERATION_LIMIT).any()))

        once = budget.limit * self.longest
        chunk = _CHUNK if certify else _NEAR
        chunk = max(LANES, min(chunk, int(_WATCHED / once) // LANES * LANES if once > 0.0 else chunk))
        long = once * chunk > _WATCHED
        threads = workers() if self._pace * count > _WORTH_SHARING else 1
        if threads > 1:  # pieces enough that a core busy elsewhere can get fewer
            chunk = min(chunk, LANES * max(1, count // (2 * threads * LANES)))
        spent = run(work, cut(count, LANES, -(-count // chunk)), budget.clock, threads, watched=long)
        if count:
            self._pace = spent / count
        if evaluator is not None:
            evaluator.callback.check()
            out.second[list(evaluator.uncurved)] = UNKNOWN

    def _evaluator(self, params: Params) -> Evaluator | None:
        """Make the callback of one call, where laws need it."""
        if not self.opaque:
            return None
        (part,) = self.parts
        return Evaluator(self.laws, part.system.rows[0], params, part.at)

    def _compile(self, clock: Clock) -> None:
        """Compile, in the first call of a process, what every call needs, without counting the time."""
        if not self._compiled:
            with clock.paused():
                nothing = np.empty((0, self.laws.unknowns))
                out, known = self._outcome(nothing), np.empty((0, self.tape.cells - self.tape.unknowns - 1))
                self._solve_piece(
                    nothing, _Known(known, None, None), certified(1.0), None, out, True, 1, Turn(clock), None
                )
            self._compiled = True

    def adjoint(self, solved: Solution, params: Params, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Solve the optimality system's transpose at an answer."""
        field = solved.u.reshape(len(solved.u), *self.laws.shape)
        return self._adjoint.solve(field, params, solved.multipliers, gradient)

    def _from_params(self, params: Params, count: int) -> _Known:
        """Evaluate what depends on params only; kept while the same params recur, as they do in every flow step."""
        kept = self._known
        if kept is not None and kept[0] is params:  # one batch's params are one object: see Projector
            return kept[1]
        if self.opaque:
            externals = np.arange(count, dtype=np.float64)[:, None]  # the number of the sample
        else:
            externals = evaluate_externals(self.tape, self.laws.example[0], params, count)
        u = np.zeros((count, self.tape.unknowns))
        pinned = constants = None
        if self.pinning:
            level, rows = self.substitutions[0]
            rows.substitute(level, u, externals)
            pinned = u[:, level.unknowns]
        if self.steady and self.affine.gram is not None:
            constants = self.affine.known.evaluate(u, externals)
        known = _Known(externals, pinned, constants)
        self._known = (params, known)
        return known

    def _solve_piece(
        self, given: Field, known: _Known, stopping: Stopping, warm: Warm | None, out: _Outcome, certify: bool, limit: int,
        turn: Turn, evaluator: Evaluator | None,
    ) -> None:  # fmt: skip
        """Walk one piece from end to end. Written: out, whatever it held before."""
        out.clear()
        externals = known.externals
        memory = self._borrow(len(given))
        start, u, rest = memory
        coordinates = self.coordinates
        double = given.dtype == np.float64
        if coordinates.same and double:
            start = cast(Values, given)
        else:
            coordinates.enter(given, start)
        stays = double and not coordinates.wider
        if stays:
            u = cast(Values, out.u)  # the answer is worked out where it will stay
        u[:] = start
        multiplier = None
        if warm is not None:
            multiplier = warm.multipliers
            if warm.usable.all():
                u[:, self.moving] = warm.place
            else:
                u[:, self.moving] = np.where(warm.usable[:, None], warm.place, u[:, self.moving])
                multiplier = np.where(warm.usable[:, None], multiplier, 0.0)
        for number, (level, rows) in enumerate(self.substitutions):
            if number == 0 and known.pinned is not None:
                u[:, level.unknowns] = known.pinned
            else:
                rows.substitute(level, u, externals)
        if len(self.clipped):
            u[:, self.clipped] = np.clip(u[:, self.clipped], self.lower[self.clipped], self.upper[self.clipped])
        self.affine.solve(u, externals, known.constants, out.multipliers)
        address = NO_CALLBACK if evaluator is None else evaluator.callback.address
        batch = Batch(start, externals, stopping, multiplier, limit, turn, address, self.retry)
        for part in self.parts:
            ended = self._iterate(part, batch, u, out.multipliers)
            if ended.status.any():
                out.status[:] = gravest(np.stack([out.status, ended.status], axis=1))
            np.maximum(out.iterations, ended.iterations, out=out.iterations)
            np.minimum(out.second, ended.second, out=out.second, casting="unsafe")
        if len(self.bounded) and out.status.any():  # where iterations end early, bounds hold nevertheless
            failed = np.ix_(np.flatnonzero(out.status), self.bounded)
            u[failed] = np.clip(u[failed], self.lower[self.bounded], self.upper[self.bounded])
        out.place[:] = u[:, self.moving]
        if certify:
            self._certify(start, u, externals, out.multipliers, rest, out.gap, evaluator)
        coordinates.leave(start, u)
        if not stays:
            out.u[:] = u[:, : given.shape[1]]
        if certify:
            distances(out.u, given, out.distance)
        self._free.append(memory)

    def _borrow(self, count: int) -> tuple[Values, Values, Values]:
        """Lend three batches over the reduction's unknowns; fresh memory would cost more than a pass over it."""
        while self._free:
            try:
                memory = self._free.pop()
            except IndexError:  # another thread took it
                break
            if len(memory[0]) == count:
                return memory
        width = self.tape.unknowns
        return np.empty((count, width)), np.empty((count, width)), np.empty((count, width))

    def _iterate(self, part: Part, batch: Batch, u: Values, multipliers: Values) -> Ended:
        lengths, start = part.lengths, batch.start
        if not len(lengths):
            return part.solve(batch, u, multipliers)
        if not part.inequalities:
            # No step leaves a flat slice (y₂ = 0), where the slope of y₂² vanishes: begin beside it.
            flat, size = (
                u[:, lengths],
                np.abs(start[:, part.system.unknowns[0]]).max(axis=1, keepdims=True, initial=0.0),
            )
            u[:, lengths] = np.where(flat == 0.0, _BESIDE * np.where(size > 0.0, size, 1.0), flat)
        ended = part.solve(batch, u, multipliers)
        # A group rotated inside out (y₂ < 0) obeys as well as its mirror image, which is nearer: go on from there.
        again = np.flatnonzero((u[:, lengths] < 0.0).any(axis=1) & (ended.status == Status.CONVERGED))
        if len(again):
            mirrored, found, moved = u[again], multipliers[again], part.system.eliminated.ravel()
            mirrored[:, lengths] = np.abs(mirrored[:, lengths])
            mirrored[:, moved] = start[again][:, moved]  # they follow the multipliers, which are found anew
            some = replace(batch, start=start[again], externals=batch.externals[again], warm=None)
            then = part.solve(some, mirrored, found)
            u[again], multipliers[again] = mirrored, found
            ended.status[again], ended.second[again] = then.status, then.second
            ended.iterations[again] += then.iterations
        return ended

    def _certify(
        self, start: Values, u: Values, externals: Values, multipliers: Values, rest: Values, gap: Values,
        evaluator: Evaluator | None,
    ) -> None:  # fmt: skip
        """Find the multipliers of substituted rows, last level first; what is left of u − û + Jᵀλ is the gap, per sample.

        Written: multipliers, gap, rest (only where it is checked at; the other numbers in it mean nothing).
        """
        differences(self.checked, u, start, rest)
        if evaluator is not None:
            evaluator.pull(u, externals[:, 0].astype(np.int64), multipliers, rest)
        else:
            for part in self.parts:
                part.rows.pull(part.system.rows, u, externals, multipliers, rest)
        self.affine.pull(u, externals, multipliers, rest)
        for level, rows in reversed(self.substitutions):
            determine(rest, level.unknowns, level.weights, level.rows, multipliers)
            rows.pull(level.rows[None], u, externals, multipliers, rest)
        groups = self.reduction.groups
        if len(groups):  # a member's rest is at most that of its two coordinates together
            one, two = rest[:, groups.first :: 2], rest[:, groups.first + 1 :: 2]
            one[:] = np.abs(one) + np.abs(two)
        self.coordinates.rotate_back(rest)
        if self.limits.bounded.any():
            # At a bound the rest is minus the bound's own multiplier: fine where it pushes against the bound.
            at, left = u[:, self.checked], rest[:, self.checked]
            left[(at >= self.upper[self.checked]) & (left < 0)] = 0.0
            left[(at <= self.lower[self.checked]) & (left > 0)] = 0.0
            rest[:, self.checked] = left
        largest(self.checked, rest, gap)

    def _complementarity(self, residual: Values, multipliers: Values) -> Values:
        """Per sample: how far the multipliers of inequalities have the wrong sign, or push where there is room."""
        inequality = self.inequality_rows
        if not len(inequality):
            return np.zeros(len(residual))
        sign, room = multipliers[:, inequality], np.maximum(-residual[:, inequality], 0.0)
        off: Values = np.maximum(-sign, np.abs(sign) * room).max(axis=1, initial=0.0)
        return off


@dataclass(frozen=True)
class _Outcome:
    """What a call fills in, piece by piece."""

    u: Field  # float64, or without a certificate the dtype of the input
    multipliers: Values
    place: Values  # where iterations ended
    gap: Values
    distance: Values
    status: npt.NDArray[np.int8]
    iterations: Index
    second: npt.NDArray[np.int8]

    @classmethod
    def empty(cls, u: Field, rows: int, moving: int) -> _Outcome:
        count = len(u)
        return cls(
            u, np.empty((count, rows)), np.empty((count, moving)), np.empty(count), np.empty(count),
            np.empty(count, np.int8), np.empty(count, np.int64), np.empty(count, np.int8),
        )  # fmt: skip

    def clear(self) -> None:
        self.multipliers[:] = 0.0
        self.status[:], self.iterations[:], self.second[:] = Status.CONVERGED, 1, HOLDS

    def leave(self, given: Field) -> None:
        """Give samples back as they came: there was no time for them."""
        self.u[:], self.multipliers[:], self.place[:] = given, 0.0, 0.0
        self.gap[:], self.distance[:], self.iterations[:] = 0.0, 0.0, 0
        self.status[:], self.second[:] = Status.ITERATION_LIMIT, UNKNOWN

    def part(self, piece: slice) -> _Outcome:
        return _Outcome(
            self.u[piece], self.multipliers[piece], self.place[piece], self.gap[piece], self.distance[piece],
            self.status[piece], self.iterations[piece], self.second[piece],
        )  # fmt: skip


@dataclass(frozen=True)
class _Known:
    """What follows from the params of a batch alone."""

    externals: Values  # (b, …) cells of params, numbered as in the tape
    pinned: Values | None  # (b, …) unknowns of the first level, where params alone decide them
    constants: Values | None  # (b, …) of the affine rows, likewise

    def part(self, piece: slice) -> _Known:
        pinned, constants = self.pinned, self.constants
        return _Known(
            self.externals[piece],
            None if pinned is None else pinned[piece],
            None if constants is None else constants[piece],
        )


def _of(warm: Warm | None, piece: slice) -> Warm | None:
    return None if warm is None else Warm(warm.place[piece], warm.multipliers[piece], warm.usable[piece], warm.owner)


def _reduced(laws: CompiledLaws, limits: Limits) -> tuple[Reduction, bool]:
    """Reduce the laws; say whether they have to be evaluated by torch."""
    redundant = laws.presolve.dropped
    if not laws.opaque:
        tape, rows = laws.scalar.tape, laws.scalar.rows
        constant = laws.kinds == RowKind.AFFINE
        try:
            return reduce(tape, rows, laws.equality_rows, constant, limits.bounded, redundant), False
        except Unlowerable:  # a Hessian too dense to be written out
            pass
    return opaque_reduction(laws), True
