"""Newton: the one method, and stop 4 of the walk. Substitute, solve affine parts, iterate on the others, certify.

One call (math.md, "Reduction"): substitute the determined unknowns, march through the blocks that determine further ones, solve
affine parts in closed form, iterate on the other parts, then find all multipliers backwards; the remainder of u − û + Jᵀλ is the
stationarity. Opaque laws are one part of their own. Owns its memory; knows laws only through their reduction. Must not import
project.projector or project.judge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.arrays import Index, Mask, Values
from snapfm.compile import CompiledLaws, RowKind
from snapfm.compile.derivatives import evaluate_externals
from snapfm.compile.kinks import find_kinks
from snapfm.compile.lower import Unlowerable
from snapfm.errors import Status
from snapfm.kernels.batches import determine
from snapfm.kernels.callback import NO_CALLBACK
from snapfm.kernels.coordinates import differences, distances, largest
from snapfm.kernels.layout import HOLDS, UNKNOWN
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import Clock, Deadline, cut, run, workers
from snapfm.laws import Params
from snapfm.linear import Automatic, Solver
from snapfm.reduce.kinked_system import kinked_rows
from snapfm.reduce.reduce import Reduction, reduce
from snapfm.solve.attempts.order import LONGEST
from snapfm.solve.base import Adjoints, Limits, Solution, Warm
from snapfm.solve.budget import Budget, Stopping, certified, flow_step_stopping
from snapfm.solve.closed_form import AffinePart, Coordinates, Rows
from snapfm.solve.gradient import Adjoint
from snapfm.solve.kinks.gradient import AdjointOnKinks
from snapfm.solve.kinks.search import NO_WEIGHT
from snapfm.solve.march import Marching, MarchState
from snapfm.solve.memory import Workspaces, allowed, fitted, warn_if_large
from snapfm.solve.opaque import LawEvaluator, opaque_reduction
from snapfm.solve.system import Batch, Part
from snapfm.solve.tiles import AttemptOutcome, worst_status

Field = npt.NDArray[np.float32] | npt.NDArray[np.float64]

# Seconds of work that justify another thread: about fifteen kernels per piece pass the interpreter's lock back and forth.
_WORTH_SHARING = 8e-3
# Seconds of one compiled call beyond which the clock and Control-C must be able to end it.
_WATCHED = 0.25
_CONVERGED = int(Status.CONVERGED)  # asking an enumeration takes longer than comparing a small array
_EXPECTED = 4  # iterations of a sample that a first call counts on
FLAT_SLICE_OFFSET = 0.1  # start of iterations on a flat slice, relative to its size
_CHUNK = 64  # samples of one piece: bounds memory
_SMALL_CHUNK = 16  # samples of one piece without a certificate: little work, which has to stay in the caches


class Newton:
    """Prepared for compiled laws and limits.

    `linear` factorizes the KKT matrices. The default, Automatic(), takes Lanes() inside the compiled loop or, for large
    matrices, Fronts() through a callback. Without `retry` a sample on which Newton's iteration fails is not tried again.
    Raises TooLarge for factors of more than `largest` bytes, unless laws have kinks: there is no other method for those.
    """

    def __init__(
        self, laws: CompiledLaws, limits: Limits, linear: Solver | None = None, retry: bool = True,
        largest: float = math.inf,
    ) -> None:  # fmt: skip
        self.laws, self.limits, self.retry = laws, limits, retry
        self.reduction, self.opaque = _reduced(laws, limits)
        self.tape = self.reduction.tape
        more = np.full(self.tape.unknowns - laws.unknowns, np.inf)
        self.lower, self.upper = np.concatenate([limits.lower, -more]), np.concatenate([limits.upper, more])
        outside = self.tape.unknowns + 1
        groups = self.reduction.aggregates
        lengths = groups.first + 1 + 2 * np.arange(len(groups))
        kinks = None if self.opaque else find_kinks(self.tape)
        kinked = [
            None if kinks is None else kinked_rows(kinks, self.reduction.rows, system, self.lower, self.upper)
            for system in self.reduction.systems
        ]
        self.kinked = any(rows is not None for rows in kinked)
        largest = math.inf if self.kinked else largest
        solver = Automatic(largest=largest) if linear is None else linear
        self.parts = [
            Part(system, self.lower, self.upper, outside, lengths, solver, rows)
            for system, rows in zip(self.reduction.systems, kinked, strict=True)
        ]
        self.affine = AffinePart(self.reduction, largest)
        self.coordinates = Coordinates(self.reduction, laws.unknowns)
        self.substitutions = [
            (level, Rows(program, program.unknowns[None], program.externals[None] - outside))
            for level, program in zip(self.reduction.cascade.levels, self.reduction.substitutions)
        ]
        self.marching = Marching(self.reduction.march, self.tape, self.reduction.rows, outside)
        self.marches = len(self.marching) > 0
        touched = np.zeros(self.tape.unknowns, bool)
        for system in self.reduction.systems:
            touched[system.unknowns.ravel()] = True
        bounded = np.isfinite(self.lower) | np.isfinite(self.upper)
        self.bounded = np.flatnonzero(bounded & self.reduction.cascade.free)
        # Bounded unknowns that no row moves are clipped directly; determined ones cannot move.
        self.clipped = np.flatnonzero(bounded & self.reduction.cascade.free & ~touched)
        # Unknowns at which u − û + Jᵀλ has to be checked: for all others u = û − Aᵀλ makes it zero.
        self.moving = np.flatnonzero(touched)
        checked = ~self.reduction.cascade.free | touched
        checked[self.reduction.aggregates.members] = False
        self.checked = np.flatnonzero(checked)
        self.inequality_rows = np.flatnonzero(~laws.equality_rows)
        self.implied: Index = self.reduction.implied  # rows that hold if the others do
        # Longest time of one compiled call, in seconds per sample of a piece and iteration of its limit.
        self.longest = max((part.seconds(LANES, 1, self.opaque) for part in self.parts), default=0.0) / LANES
        self.seconds_between_callbacks = (
            max((part.seconds(LANES, 1, False) for part in self.parts), default=0.0) / LONGEST
        )
        self.longest_on_kinks = max((part.seconds_on_kinks for part in self.parts), default=0.0)
        self._memory: Workspaces[tuple[Values, Values, Values]] = Workspaces(self._batches)
        self._adjoint, self._on_kinks = Adjoint(laws, limits), AdjointOnKinks(laws, limits)
        # Processor seconds per sample of the last call, whatever else the machine does; before the first, of a few iterations.
        self._pace = _EXPECTED * self.longest / LONGEST
        self._plan: tuple[tuple[int, bool, int, int, float], _Plan] | None = None  # replaced whole, read once
        self._compiled = False
        self._known: tuple[Params, _Known] | None = None  # params and what follows from them; replaced whole, read once
        # What params alone determine: unknowns of the first level, if its rows read nothing else, and constants of affine rows.
        pinned = np.zeros(0, np.int64)
        if self.substitutions and set(self.substitutions[0][1].inputs[0]) <= set(self.substitutions[0][0].unknowns):
            pinned = self.substitutions[0][0].unknowns
        self.pinning = len(pinned) > 0
        self.steady = set(self.affine.known.inputs[0]) <= set(pinned)

    def solve(self, start: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget) -> Solution:
        """Project a float64 batch (b, *shape); iterations begin at û, or where `warm` says."""
        field = start.reshape(len(start), self.laws.unknowns).numpy()
        out = self._outcome(np.empty(field.shape))
        self._run(field, params, certified(tolerance), warm, out, budget, certify=True)
        u = torch.from_numpy(out.u)
        residual = self.laws.residual(u.reshape(start.shape), params)
        stationarity = np.maximum(out.stationarity, self._complementarity(residual.numpy(), out.multipliers))
        return Solution(
            u, torch.from_numpy(out.multipliers), torch.from_numpy(out.iterations), residual,
            torch.from_numpy(stationarity), torch.from_numpy(out.distance), torch.from_numpy(out.status), self._warm(out),
            torch.from_numpy(out.second), torch.from_numpy(out.generalized),
            torch.from_numpy(out.u - field) if self.kinked and out.generalized.any() else None,
        )  # fmt: skip

    def move(
        self, given: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget
    ) -> tuple[Tensor, Warm]:
        """Project without a certificate, in the dtype given: multipliers of substituted rows stay zero."""
        found, shape = torch.empty_like(given), (len(given), self.laws.unknowns)
        out = self._outcome(found.reshape(shape).numpy())
        self._run(given.reshape(shape).numpy(), params, flow_step_stopping(tolerance), warm, out, budget, certify=False)
        return found, self._warm(out)

    def bytes(self, samples: int) -> float:
        """Predict the memory that a piece of so many samples takes while it is solved."""
        batches = 8.0 * samples * (3 * self.tape.unknowns + 2 * self.laws.rows)
        return batches + self.marching.bytes(samples) + sum(part.bytes(samples) for part in self.parts)

    def recall(self, u: Tensor, multipliers: Tensor, usable: Tensor) -> Warm:
        """Return the warm start at another projector's result: fields (b, *shape), multipliers (b, m)."""
        given = np.empty((len(u), self.tape.unknowns))
        self.coordinates.enter(u.reshape(len(u), self.laws.unknowns).numpy(), given)
        return Warm(given[:, self.moving], multipliers.numpy(), usable.numpy(), self)

    def _outcome(self, u: Field) -> _Outcome:
        count = len(u)
        return _Outcome(
            u, np.empty((count, self.laws.rows)), np.empty((count, len(self.moving))), np.empty(count), np.empty(count),
            np.empty(count, np.int8), np.empty(count, np.int64), np.empty(count, np.int8), np.zeros(count, bool),
        )  # fmt: skip

    def _warm(self, out: _Outcome) -> Warm:
        return Warm(out.place, out.multipliers, out.status == _CONVERGED, self)

    def _run(
        self, field: Field, params: Params, stopping: Stopping, warm: Warm | None, out: _Outcome, budget: Budget, certify: bool
    ) -> None:  # fmt: skip
        """Work through a batch (b, n) piece by piece. Written: out."""
        self._compile(budget.clock)
        known, count = self._from_params(params, len(field)), len(field)
        evaluator = self._evaluator(params)

        def work(piece: slice, deadline: Deadline) -> bool:
            given, mine = field[piece], out.part(piece)
            late = deadline.over
            if late:
                mine.return_input(given)
            else:
                some = known.part(piece)
                if evaluator is not None:
                    evaluator.begin(deadline)
                start = None if warm is None else warm.part(piece)
                self._solve_piece(given, some, stopping, start, mine, certify, budget.limit, deadline, evaluator)
            return not late and not (deadline.over and bool((mine.status == Status.ITERATION_LIMIT).any()))

        plan = self._planned(count, certify, budget.limit)
        if plan.predicted > plan.room:
            warn_if_large(plan.predicted, plan.room, self.laws.unknowns)
        spent = run(work, plan.pieces, budget.clock, plan.threads, plan.needs_watchdog)
        if count:
            self._pace = spent / count
        if evaluator is not None:
            evaluator.callback.check()
            out.second[list(evaluator.without_hessian)] = UNKNOWN

    def _planned(self, count: int, certify: bool, limit: int) -> _Plan:
        """Cut a batch into pieces; the last plan is kept, as every flow step asks for the same one."""
        threads = workers() if self._pace * count > _WORTH_SHARING and self.laws.threads else 1
        room = allowed(count, self.laws.unknowns)
        asked, kept = (count, certify, limit, threads, room), self._plan
        if kept is not None and kept[0] == asked:
            return kept[1]
        once = limit * self.longest
        chunk = _CHUNK if certify else _SMALL_CHUNK
        unit = LANES
        if self.marches:  # large pieces share the time of Python's calls
            chunk, unit = _CHUNK, min(LANES, self.marching.samples)
        chunk = max(unit, min(chunk, int(_WATCHED / once) // LANES * LANES if once > 0.0 else chunk))
        chunk = min(chunk, self.marching.samples)
        # Where the laws are called back, every callback looks at the clock: only what is between two of them is watched.
        unchecked_seconds = (
            self.seconds_between_callbacks if self.opaque else max(once, limit * self.longest_on_kinks) * chunk
        )
        needs_watchdog = unchecked_seconds > _WATCHED
        if threads > 1:  # flow_step_stopping pieces that a core busy elsewhere can get fewer
            chunk = min(chunk, LANES * max(1, count // (2 * threads * LANES)))
        chunk, threads = fitted(self.bytes, max(1, min(chunk, count)), threads, room)
        pieces = cut(count, min(unit, chunk), -(-count // chunk))
        plan = _Plan(pieces, threads, needs_watchdog, threads * self.bytes(chunk), room)
        self._plan = (asked, plan)
        return plan

    def _evaluator(self, params: Params) -> LawEvaluator | None:
        """Make the callback of one call, if the laws need it."""
        if not self.opaque:
            return None
        (part,) = self.parts
        return LawEvaluator(self.laws, part.system.rows[0], params, part.at)

    def _compile(self, clock: Clock) -> None:
        """Compile what every call needs, in the first call of a process, without counting the time."""
        if not self._compiled:
            with clock.paused():
                nothing = np.empty((0, self.laws.unknowns))
                out, known = self._outcome(nothing), np.empty((0, self.tape.cells - self.tape.unknowns - 1))
                self._solve_piece(
                    nothing, _Known(known, None, None), certified(1.0), None, out, True, 1, Deadline(clock), None
                )
            self._compiled = True

    def adjoint(self, solved: Solution, params: Params, gradient: Tensor, in_params: bool) -> Adjoints:
        """Solve the transposed KKT system at an answer; see solve.gradient."""
        field = solved.u.reshape(len(solved.u), *self.laws.shape)
        w, nu = self._adjoint.solve(field, params, solved.multipliers, gradient)
        pulls: dict[int, Tensor] = {}
        if solved.generalized is not None and solved.away is not None:
            flat, lam = gradient.reshape(len(field), self.laws.unknowns).numpy(), solved.multipliers.numpy()
            for i in torch.nonzero(solved.generalized).flatten().tolist():
                own = {name: value[i : i + 1] for name, value in params.items()}
                found = self._on_kinks.solve(field[i], own, lam[i], solved.away[i].numpy(), flat[i], in_params)
                w[i], nu[i] = torch.from_numpy(found[0]), torch.from_numpy(found[1])
                pulls[i] = torch.from_numpy(found[2])
        return Adjoints(w, nu, pulls)

    def _from_params(self, params: Params, count: int) -> _Known:
        """Evaluate what depends on params only; kept while params stay the same, as they do in every flow step."""
        kept = self._known
        if kept is not None and kept[0] is params:  # equal params are one object: see Projector
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
        deadline: Deadline, evaluator: LawEvaluator | None,
    ) -> None:  # fmt: skip
        """Project one piece. Written: out, whatever it held before."""
        out.clear()
        externals, coordinates = known.externals, self.coordinates
        with self._memory.lend(len(given)) as (start, u, rest):
            double = given.dtype == np.float64
            if coordinates.same and double:
                start = cast(Values, given)
            else:
                coordinates.enter(given, start)
            stays = double and not coordinates.wider
            if stays:
                u = cast(Values, out.u)  # computed where it is returned
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
            walk = self.marching.walk(len(given)) if self.marches else None
            if walk is not None:
                ended = walk.solve(start, u, externals, stopping, limit, deadline)
                out.status[:], out.iterations[:] = ended.status, ended.iterations
            if len(self.clipped):
                u[:, self.clipped] = np.clip(u[:, self.clipped], self.lower[self.clipped], self.upper[self.clipped])
            self.affine.solve(u, externals, known.constants, out.multipliers)
            address = NO_CALLBACK if evaluator is None else evaluator.callback.address
            batch = Batch(start, externals, stopping, multiplier, limit, deadline, address, self.retry)
            weights: list[Values | None] = []
            for number, part in enumerate(self.parts, 1):
                # A part that does not converge leaves time for those after it.
                mine = replace(batch, deadline=deadline.reserve_for(len(self.parts) - number))
                ended = self._iterate(part, mine, u, out.multipliers)
                weights.append(ended.weights)
                if ended.weights is not None:
                    out.generalized[:] |= (ended.weights != NO_WEIGHT).any(axis=(1, 2))
                if ended.status.any():
                    out.status[:] = worst_status(np.stack([out.status, ended.status], axis=1))
                np.maximum(out.iterations, ended.iterations, out=out.iterations)
                np.minimum(out.second, ended.second, out=out.second, casting="unsafe")
            if len(self.bounded) and out.status.any():  # bounds hold even where iterations end early
                failed = np.ix_(np.flatnonzero(out.status), self.bounded)
                u[failed] = np.clip(u[failed], self.lower[self.bounded], self.upper[self.bounded])
            out.place[:] = u[:, self.moving]
            if certify:
                found = out.multipliers
                self._certify(start, u, externals, found, rest, out.stationarity, walk, evaluator, weights)
            coordinates.leave(start, u)
            if not stays:
                out.u[:] = u[:, : given.shape[1]]
            if certify:
                distances(out.u, given, out.distance)

    def _batches(self, count: int) -> tuple[Values, Values, Values]:
        """Make three batches over the reduction's unknowns: û, u, and the remainder of u − û + Jᵀλ."""
        shape = (count, self.tape.unknowns)
        return np.empty(shape), np.empty(shape), np.empty(shape)

    def _iterate(self, part: Part, batch: Batch, u: Values, multipliers: Values) -> AttemptOutcome:
        lengths, start = part.lengths, batch.start
        if not len(lengths):
            return part.solve(batch, u, multipliers)
        if not part.inequalities:
            # No step leaves a flat slice (y₂ = 0), where the slope of y₂² is zero: start beside it.
            flat = u[:, lengths]
            size = np.abs(start[:, part.system.unknowns[0]]).max(axis=1, keepdims=True, initial=0.0)
            u[:, lengths] = np.where(flat == 0.0, FLAT_SLICE_OFFSET * np.where(size > 0.0, size, 1.0), flat)
        ended = part.solve(batch, u, multipliers)
        # An aggregate with y₂ < 0 obeys as well as its mirror image, which is nearer: go on from there.
        again = np.flatnonzero((u[:, lengths] < 0.0).any(axis=1) & (ended.status == _CONVERGED))
        if len(again):
            mirrored, found, moved = u[again], multipliers[again], part.system.eliminated.ravel()
            mirrored[:, lengths] = np.abs(mirrored[:, lengths])
            mirrored[:, moved] = start[again][:, moved]  # they follow from the multipliers, which are found again
            some = replace(batch, start=start[again], externals=batch.externals[again], warm=None)
            then = part.solve(some, mirrored, found)
            u[again], multipliers[again] = mirrored, found
            ended.status[again], ended.second[again] = then.status, then.second
            ended.iterations[again] += then.iterations
        return ended

    def _certify(
        self, start: Values, u: Values, externals: Values, multipliers: Values, rest: Values, stationarity: Values,
        walk: MarchState | None, evaluator: LawEvaluator | None, weights: list[Values | None],
    ) -> None:  # fmt: skip
        """Find the multipliers of marched and substituted rows, last first; the remainder of u − û + Jᵀλ is the stationarity.

        Written: multipliers, stationarity, rest (valid at `checked` only).
        """
        differences(self.checked, u, start, rest)
        if evaluator is not None:
            evaluator.pull(u, externals[:, 0].astype(np.int64), multipliers, rest)
        else:
            for part, weight in zip(self.parts, weights):
                part.pull(u, externals, multipliers, rest, weight)
        self.affine.pull(u, externals, multipliers, rest)
        if walk is not None:
            walk.determine(u, externals, multipliers, rest)
        for level, rows in reversed(self.substitutions):
            determine(rest, level.unknowns, level.weights, level.rows, multipliers)
            rows.pull(level.rows[None], u, externals, multipliers, rest)
        groups = self.reduction.aggregates
        if len(groups):  # the remainder of a member is at most the sum of those of the two coordinates
            one, two = rest[:, groups.first :: 2], rest[:, groups.first + 1 :: 2]
            one[:] = np.abs(one) + np.abs(two)
        self.coordinates.rotate_back(rest)
        if self.limits.bounded.any():
            # At a bound the remainder is minus the bound's multiplier: zero it where that has the right sign.
            at, left = u[:, self.checked], rest[:, self.checked]
            left[(at >= self.upper[self.checked]) & (left < 0)] = 0.0
            left[(at <= self.lower[self.checked]) & (left > 0)] = 0.0
            rest[:, self.checked] = left
        largest(self.checked, rest, stationarity)

    def _complementarity(self, residual: Values, multipliers: Values) -> Values:
        """Return per sample how far multipliers of inequalities have the wrong sign, or are not complementary."""
        inequality = self.inequality_rows
        if not len(inequality):
            return np.zeros(len(residual))
        sign, room = multipliers[:, inequality], np.maximum(-residual[:, inequality], 0.0)
        off: Values = np.maximum(-sign, np.abs(sign) * room).max(axis=1, initial=0.0)
        return off


class _Plan(NamedTuple):
    """How a call on so many samples works through them."""

    pieces: list[slice]
    threads: int
    needs_watchdog: bool
    predicted: float  # bytes of all threads, and how many may be taken without saying so
    room: float


class _Outcome(NamedTuple):
    """The results of a call, filled in piece by piece."""

    u: Field  # float64, or without a certificate the dtype of the input
    multipliers: Values
    place: Values  # where iterations ended
    stationarity: Values
    distance: Values
    status: npt.NDArray[np.int8]
    iterations: Index
    second: npt.NDArray[np.int8]
    generalized: Mask

    def clear(self) -> None:
        self.multipliers[:], self.generalized[:] = 0.0, False
        self.status[:], self.iterations[:], self.second[:] = _CONVERGED, 1, HOLDS

    def return_input(self, given: Field) -> None:
        """Return samples unchanged: there was no time for them."""
        self.u[:], self.multipliers[:], self.place[:] = given, 0.0, 0.0
        self.stationarity[:], self.distance[:], self.iterations[:] = 0.0, 0.0, 0
        self.status[:], self.second[:] = Status.ITERATION_LIMIT, UNKNOWN

    def part(self, piece: slice) -> _Outcome:
        return _Outcome._make([one[piece] for one in self])


@dataclass(frozen=True)
class _Known:
    """What follows from the params of a batch alone."""

    externals: Values  # (b, …) cells of params, numbered as in the tape
    pinned: Values | None  # (b, …) unknowns of the first level, if params alone determine them
    constants: Values | None  # (b, …) of the affine rows, if params alone determine them

    def part(self, piece: slice) -> _Known:
        pinned, constants = self.pinned, self.constants
        return _Known(
            self.externals[piece],
            None if pinned is None else pinned[piece],
            None if constants is None else constants[piece],
        )


def _reduced(laws: CompiledLaws, limits: Limits) -> tuple[Reduction, bool]:
    """Reduce the laws; return whether torch has to evaluate them."""
    redundant = laws.presolve.dropped
    if not laws.opaque:
        tape, rows = laws.scalar.tape, laws.scalar.rows
        constant = laws.kinds == RowKind.AFFINE
        try:
            return reduce(tape, rows, laws.equality_rows, constant, limits.bounded, redundant), False
        except Unlowerable:  # the Hessian is too dense to be listed
            pass
    return opaque_reduction(laws), True
