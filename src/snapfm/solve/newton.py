"""Newton: the method for laws with a sparse pattern, and stop 4 of the walk: a batch in pieces, each sent through the plan.

Threads, memory and deadlines of a call are decided here; what a piece goes through is solve.plan. Opaque laws are one system of
their own. Must not import project.projector or project.judge.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index, Values
from snapfm.compile import CompiledLaws, RowKind
from snapfm.compile.derivatives import evaluate_params
from snapfm.compile.lower import Unlowerable
from snapfm.errors import Status
from snapfm.kernels.layout import UNKNOWN
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import Clock, Deadline, cut, run, workers
from snapfm.laws import Params
from snapfm.linear import Solver
from snapfm.reduce.reduce import Reduction, reduce
from snapfm.solve.attempts.order import LONGEST
from snapfm.solve.base import Adjoints, Limits, Solution, Warm
from snapfm.solve.budget import LIMIT, Budget, Stopping, certified, flow_step_stopping
from snapfm.solve.gradient import refuse_without_hessian
from snapfm.solve.kinks.generalized import NO_WEIGHT, with_weights
from snapfm.solve.memory import allowed, fitted, warn_if_large
from snapfm.solve.opaque import LawEvaluator, opaque_reduction
from snapfm.solve.plan import Field, Known, PieceResult, Plan
from snapfm.solve.stage import Ended, LinearState, State
from snapfm.solve.tangent import Tangents

# Seconds of work that justify another thread: about fifteen kernels per piece pass the interpreter's lock back and forth.
_WORTH_SHARING = 8e-3
# Seconds of one compiled call beyond which the clock and Control-C must be able to end it.
_WATCHED = 0.25
_EXPECTED = 4  # iterations of a sample that a first call counts on
_CHUNK = 64  # samples of one piece: bounds memory
_SMALL_CHUNK = 16  # samples of one piece without a certificate: little work, which has to stay in the caches


class Newton:
    """Prepared for compiled laws and limits.

    `linear` factorizes the KKT matrices. The default, Automatic(), takes Lanes() inside the compiled loop or, for large
    matrices, Fronts() through a callback. Without `retry` a sample on which Newton's iteration fails is not tried again.
    Raises TooLarge for factors of more than `most` bytes, unless laws have kinks: there is no other method for those.
    """

    def __init__(
        self, laws: CompiledLaws, limits: Limits, linear: Solver | None = None, retry: bool = True,
        most: float = math.inf,
    ) -> None:  # fmt: skip
        self.laws, self.limits, self._linear, self.retry = laws, limits, linear, retry
        reduction, self.opaque = _reduced(laws, limits)
        self.plan = Plan(reduction, limits, linear, most, self.opaque)
        self.inequality_rows = np.flatnonzero(~laws.equality_rows)
        self.implied: Index = reduction.implied  # rows that hold if the others do
        march = self.plan.march
        systems = [*self.plan.systems, *(() if march is None else march.parts)]
        # Longest time of one compiled call, in seconds per sample of a piece and iteration of its limit.
        self.longest = max((part.seconds(LANES, 1, self.opaque) for part in systems), default=0.0) / LANES
        self.seconds_between_callbacks = max((part.seconds(LANES, 1, False) for part in systems), default=0.0) / LONGEST
        self.longest_on_kinks = max((part.seconds_on_kinks for part in systems), default=0.0)
        # Processor seconds per sample of the last call, whatever else the machine does; before the first, of a few iterations.
        self._pace = _EXPECTED * self.longest / LONGEST
        self._pieces: tuple[tuple[int, bool, int, int, float], _Pieces] | None = None  # replaced whole, read once
        self._compiled = False
        self._known: tuple[Params, Known] | None = None  # params and what follows from them; replaced whole, read once

    @property
    def kinked(self) -> bool:
        """Whether laws have kinks."""
        return self.plan.kinks > 0

    def solve(self, u_hat: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget) -> Solution:
        """Project a float64 batch (b, *shape); iterations begin at û, or where `warm` says."""
        flat = u_hat.reshape(len(u_hat), self.laws.unknowns).numpy()
        answers, ended = self._blank(np.empty(flat.shape))
        self._run(flat, params, certified(tolerance), warm, answers, ended, budget, certify=True)
        u = torch.from_numpy(answers.u)
        residual = self.laws.residual(u.reshape(u_hat.shape), params)
        off = self._complementarity(residual.numpy(), answers.multipliers)
        generalized = (answers.weights != NO_WEIGHT).any(axis=1)
        return Solution(
            u, torch.from_numpy(answers.multipliers), torch.from_numpy(ended.iterations), residual,
            torch.from_numpy(np.maximum(answers.stationarity, off)), torch.from_numpy(answers.distance),
            torch.from_numpy(ended.status), self._warm(answers, ended),
            torch.from_numpy(ended.second), torch.from_numpy(generalized), answers.weights if generalized.any() else None,
        )  # fmt: skip

    def move(
        self, u_hat: Tensor, params: Params, tolerance: float, warm: Warm | None, budget: Budget
    ) -> tuple[Tensor, Warm]:
        """Project without a certificate, in the dtype of û: multipliers of substituted rows stay zero."""
        found, shape = torch.empty_like(u_hat), (len(u_hat), self.laws.unknowns)
        answers, ended = self._blank(found.reshape(shape).numpy())
        flat, stopping = u_hat.reshape(shape).numpy(), flow_step_stopping(tolerance)
        self._run(flat, params, stopping, warm, answers, ended, budget, certify=False)
        return found, self._warm(answers, ended)

    def bytes(self, samples: int) -> float:
        """Predict the memory that a piece of so many samples takes while it is solved."""
        return 8.0 * samples * 2 * self.laws.rows + self.plan.bytes(samples)

    def recall(self, u: Tensor, multipliers: Tensor, usable: Tensor) -> Warm:
        """Return the warm start at another projector's result: fields (b, *shape), multipliers (b, m)."""
        plan = self.plan
        own = np.empty((len(u), plan.unknowns))
        plan.coordinates.enter(u.reshape(len(u), self.laws.unknowns).numpy(), own)
        return Warm(own[:, plan.moving], multipliers.numpy(), usable.numpy(), self)

    def tangents(self) -> Tangents:
        """Prepare the laws to be linearized at any field."""
        return Tangents(self.laws, self.plan, self._linear)

    def _blank(self, u: Field) -> tuple[PieceResult, Ended]:
        count = len(u)
        answers = PieceResult(
            u,
            np.empty((count, self.laws.rows)),
            np.empty((count, len(self.plan.moving))),
            np.empty(count),
            np.empty(count),
            np.empty((count, self.plan.kinks)),
        )
        return answers, Ended.blank(count)

    def _warm(self, answers: PieceResult, ended: Ended) -> Warm:
        return Warm(answers.place, answers.multipliers, ended.status == Status.CONVERGED, self)

    def _run(
        self, u_hat: Field, params: Params, stopping: Stopping, warm: Warm | None, answers: PieceResult, ended: Ended,
        budget: Budget, certify: bool,
    ) -> None:  # fmt: skip
        """Work through a batch (b, n) piece by piece. Written: answers, ended."""
        self._compile(budget.clock)
        known, count = self._from_params(params, len(u_hat)), len(u_hat)
        evaluator = self._evaluator(params)

        def work(piece: slice, deadline: Deadline) -> bool:
            mine, how = answers.part(piece), ended.part(piece)
            late = deadline.over
            if late:
                mine.return_input(u_hat[piece])
                how.out_of_time()
            else:
                if evaluator is not None:
                    evaluator.begin(deadline)
                state = self._state(known.part(piece), stopping, budget.limit, deadline, evaluator)
                start = None if warm is None else warm.part(piece)
                how.begin()
                self.plan.project(u_hat[piece], state, start, mine, how, certify)
            return not late and not (deadline.over and bool((how.status == Status.ITERATION_LIMIT).any()))

        pieces = self._cut(count, certify, budget.limit)
        if pieces.predicted > pieces.room:
            warn_if_large(pieces.predicted, pieces.room, self.laws.unknowns)
        spent = run(work, pieces.pieces, budget.clock, pieces.threads, pieces.needs_watchdog)
        if count:
            self._pace = spent / count
        if evaluator is not None:
            evaluator.callback.check()
            ended.second[list(evaluator.without_hessian)] = UNKNOWN

    def _state(
        self, known: Known, stopping: Stopping, limit: int, deadline: Deadline, evaluator: LawEvaluator | None
    ) -> State:
        nothing = np.zeros((0, 0))
        return State(
            nothing,
            nothing,
            known.externals,
            nothing,
            stopping,
            None,
            limit,
            deadline,
            evaluator,
            self.retry,
            known.stages,
            {},
        )

    def _cut(self, count: int, certify: bool, limit: int) -> _Pieces:
        """Cut a batch into pieces; the last cut is kept, as every flow step asks for the same one."""
        threads = workers() if self._pace * count > _WORTH_SHARING and self.laws.threads else 1
        room = allowed(count, self.laws.unknowns)
        asked, kept = (count, certify, limit, threads, room), self._pieces
        if kept is not None and kept[0] == asked:
            return kept[1]
        once = limit * self.longest
        # torch rounds opaque laws by who shares a tile: a piece is a tile, so that the number of threads changes no bit.
        chunk = LANES if self.opaque else _CHUNK if certify else _SMALL_CHUNK
        if self.plan.march is not None:  # large pieces share the time of Python's calls
            chunk = _CHUNK
        chunk = max(LANES, min(chunk, int(_WATCHED / once) // LANES * LANES if once > 0.0 else chunk))
        # Where the laws are called back, every callback looks at the clock: only what is between two of them is watched.
        unchecked_seconds = (
            self.seconds_between_callbacks if self.opaque else max(once, limit * self.longest_on_kinks) * chunk
        )
        needs_watchdog = unchecked_seconds > _WATCHED
        if threads > 1:  # small pieces: a core that is busy elsewhere gets fewer
            chunk = min(chunk, LANES * max(1, count // (2 * threads * LANES)))
        chunk, threads = fitted(self.bytes, max(1, min(chunk, count)), threads, room)
        pieces = cut(count, min(LANES, chunk), -(-count // chunk))
        found = _Pieces(pieces, threads, needs_watchdog, threads * self.bytes(chunk), room)
        self._pieces = (asked, found)
        return found

    def _evaluator(self, params: Params) -> LawEvaluator | None:
        """Make the callback of one call, if the laws need it."""
        if not self.opaque:
            return None
        (part,) = self.plan.systems
        return LawEvaluator(self.laws, part.system.rows[0], params, part.at)

    def _compile(self, clock: Clock) -> None:
        """Compile what every call needs, in the first call of a process, without counting the time."""
        if not self._compiled:
            with clock.paused():
                nothing = np.empty((0, self.laws.unknowns))
                answers, ended = self._blank(nothing)
                known = Known(np.empty((0, self.plan.reduction.tape.params)), (None,) * len(self.plan.stages))
                state = self._state(known, certified(1.0), 1, Deadline(clock), None)
                self.plan.project(nothing, state, None, answers, ended, True)
            self._compiled = True

    def adjoint(self, solved: Solution, params: Params, gradient: Tensor, in_params: bool) -> Adjoints:
        """Solve the linearized problem at an answer (math.md, eq. adjoint); NaN where it has no solution."""
        if self.opaque:  # all others have the Hessians of their systems
            refuse_without_hessian(self.laws)
        count = len(solved.u)
        field, flat = solved.u.numpy(), gradient.reshape(count, self.laws.unknowns).numpy()
        lam, evaluator = solved.multipliers.numpy(), self._evaluator(params)
        known, weights = self._from_params(params, count).externals, solved.weights
        if weights is not None:
            known, lam = with_weights(known, lam, weights)
        w, nu, by_params = np.empty(flat.shape), np.zeros(lam.shape), np.zeros(known.shape)

        def work(piece: slice, deadline: Deadline) -> bool:
            if evaluator is not None:
                evaluator.begin(deadline)
            nothing = np.zeros((0, 0))
            at = LinearState(
                nothing, known[piece], lam[piece], nothing, nothing, nu[piece], nothing, by_params[piece], deadline,
                evaluator, None if weights is None else weights[piece],
            )  # fmt: skip
            self.plan.adjoint(field[piece], flat[piece], at, in_params, w[piece])
            return True

        pieces = self._cut(count, True, LIMIT)  # as projections are cut: their memory fits
        run(work, pieces.pieces, Clock(math.inf), pieces.threads, pieces.needs_watchdog)
        if evaluator is not None:
            evaluator.callback.check()
        nu, by_params = nu[:, : self.laws.rows], by_params[:, : self.plan.reduction.tape.params]
        lost = ~np.isfinite(flat.sum(axis=1) + w.sum(axis=1))
        broken = np.flatnonzero(lost | ~np.isfinite(nu.sum(axis=1) + by_params.sum(axis=1)))
        # Where nothing is asked of a sample that is not finite, NaN must not reach params that samples share.
        idle = broken[~flat[broken].any(axis=1)]
        for one in (w, nu, by_params):
            one[lost], one[idle] = np.nan, 0.0
        externals = None if self.opaque else torch.from_numpy(by_params)
        return Adjoints(torch.from_numpy(w), torch.from_numpy(nu), externals)

    def _from_params(self, params: Params, count: int) -> Known:
        """Evaluate what depends on params only; kept while params stay the same, as they do in every flow step."""
        kept = self._known
        if kept is not None and kept[0] is params:  # equal params are one object: see Projector
            return kept[1]
        if self.opaque:
            externals = np.arange(count, dtype=np.float64)[:, None]  # the number of the sample
        else:
            externals = evaluate_params(self.plan.reduction.tape, self.laws.example[0], params, count)
        known = self.plan.from_params(externals)
        self._known = (params, known)
        return known

    def _complementarity(self, residual: Values, multipliers: Values) -> Values:
        """Return per sample how far multipliers of inequalities have the wrong sign, or are not complementary."""
        inequality = self.inequality_rows
        if not len(inequality):
            return np.zeros(len(residual))
        sign, room = multipliers[:, inequality], np.maximum(-residual[:, inequality], 0.0)
        off: Values = np.maximum(-sign, np.abs(sign) * room).max(axis=1, initial=0.0)
        return off


class _Pieces(NamedTuple):
    """How a call on so many samples works through them."""

    pieces: list[slice]
    threads: int
    needs_watchdog: bool
    predicted: float  # bytes of all threads, and how many may be taken without saying so
    room: float


def _reduced(laws: CompiledLaws, limits: Limits) -> tuple[Reduction, bool]:
    """Reduce the laws; return whether torch has to evaluate them."""
    redundant = laws.presolve.dropped
    if not laws.opaque:
        tape, rows = laws.scalar.tape, laws.scalar.rows
        constant = laws.kinds == RowKind.AFFINE
        try:
            return reduce(
                tape, rows, laws.equality_rows, constant, limits.bounded, redundant, laws.scalar.transform
            ), False
        except Unlowerable:  # the Hessian is too dense to be listed
            pass
    return opaque_reduction(laws), True
