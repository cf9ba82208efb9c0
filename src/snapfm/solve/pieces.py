"""Pieces: how a plan runs on this machine's processors, a batch in pieces, within memory and time. Stop 4 of the walk.

An Executor runs plans. Nothing above it knows which one does, or how a batch is cut; stages are the same for all. Must not
import solve.newton.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from snapfm.arrays import Values
from snapfm.errors import Status
from snapfm.kernels.layout import UNKNOWN
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import Clock, Deadline, cut, run, workers
from snapfm.solve.attempts.order import LONGEST
from snapfm.solve.base import Warm
from snapfm.solve.budget import LIMIT, Budget, Stopping, certified
from snapfm.solve.memory import allowed, fitted, warn_if_large
from snapfm.solve.opaque import LawEvaluator
from snapfm.solve.plan import Field, Known, PieceResult, Plan
from snapfm.solve.stage import Ended, LinearState, State

# Seconds of work that justify another thread: about fifteen kernels per piece pass the interpreter's lock back and forth.
_WORTH_SHARING = 8e-3
# Seconds of one compiled call beyond which the clock and Control-C must be able to end it.
_WATCHED = 0.25
_EXPECTED = 4  # iterations of a sample that a first call counts on
_CHUNK = 64  # samples of one piece: bounds memory
_SMALL_CHUNK = 16  # samples of one piece without a certificate: little work, which has to stay in the caches


@dataclass(frozen=True)
class Call:
    """What one call asks for."""

    stopping: Stopping
    budget: Budget
    evaluator: LawEvaluator | None  # of opaque laws
    certify: bool


@dataclass
class Linearized:
    """The linearized problem at the answers of a batch, as Plan.adjoint solves it: see LinearState."""

    u: Values
    gradient: Values
    params: Values
    multipliers: Values
    weights: Values | None
    w: Values  # written, like the next two
    nu: Values
    by_params: Values

    def part(self, piece: slice, deadline: Deadline, evaluator: LawEvaluator | None) -> LinearState:
        """Return the state of some samples, without its arrays over the unknowns."""
        nothing, weights = np.zeros((0, 0)), None if self.weights is None else self.weights[piece]
        return LinearState(
            u=nothing, params=self.params[piece], multipliers=self.multipliers[piece], g=nothing, w=nothing,
            nu=self.nu[piece], rest=nothing, by_params=self.by_params[piece], deadline=deadline, evaluator=evaluator,
            weights=weights,
        )  # fmt: skip


class Executor(Protocol):
    """Runs plans: forward with the certificate, and backward for gradients."""

    def project(self, u_hat: Field, u: Field, known: Known, warm: Warm | None, call: Call) -> tuple[PieceResult, Ended]:
        """Project a batch (b, n). Written: u."""
        ...

    def adjoint(self, problem: Linearized, evaluator: LawEvaluator | None, in_params: bool) -> None:
        """Solve the linearized problem of a batch. Written: its w, ν and by_params."""
        ...

    def bytes(self, samples: int) -> float:
        """Predict the memory that so many samples take at a time."""
        ...


class Compiled:
    """The executor of compiled kernels. Without `threads` one thread evaluates the laws; `retry`: all attempts are made."""

    def __init__(self, plan: Plan, rows: int, threads: bool, retry: bool) -> None:
        self.plan, self.retry = plan, retry
        self._rows, self._threads, self._opaque = rows, threads, plan.opaque
        systems = plan.systems
        # Longest time of one compiled call, in seconds per sample of a piece and iteration of its limit.
        self._longest = max((part.seconds(LANES, 1, plan.opaque) for part in systems), default=0.0) / LANES
        self._between_callbacks = max((part.seconds(LANES, 1, False) for part in systems), default=0.0) / LONGEST
        self._longest_on_kinks = max((part.seconds_on_kinks for part in systems), default=0.0)
        # Processor seconds per sample of the last call, whatever else the machine does; before the first, of a few iterations.
        self._pace = _EXPECTED * self._longest / LONGEST
        self._last: tuple[tuple[int, bool, int, int, float], _Pieces] | None = None  # replaced whole, read once
        self._ready = False

    def bytes(self, samples: int) -> float:
        """Predict the memory that a piece of so many samples takes while it is solved."""
        return 8.0 * samples * 2 * self._rows + self.plan.bytes(samples)

    def project(self, u_hat: Field, u: Field, known: Known, warm: Warm | None, call: Call) -> tuple[PieceResult, Ended]:
        """Project a batch (b, n) piece by piece. Written: u."""
        self._compile(call.budget.clock)
        answers, ended = self._blank(u)

        def work(piece: slice, deadline: Deadline) -> bool:
            mine, how = answers.part(piece), ended.part(piece)
            late = deadline.over
            if late:
                mine.return_input(u_hat[piece])
                how.out_of_time()
            else:
                if call.evaluator is not None:
                    call.evaluator.begin(deadline)
                state = self._state(known.part(piece), call, deadline)
                start = None if warm is None else warm.part(piece)
                how.begin()
                self.plan.project(u_hat[piece], state, start, mine, how, call.certify)
            return not late and not (deadline.over and bool((how.status == Status.ITERATION_LIMIT).any()))

        spent = self._run(
            work, len(u_hat), call.certify, call.budget.limit, call.budget.clock, call.evaluator, warn=True
        )
        if len(u_hat):
            self._pace = spent / len(u_hat)
        if call.evaluator is not None:
            ended.second[list(call.evaluator.without_hessian)] = UNKNOWN
        return answers, ended

    def adjoint(self, problem: Linearized, evaluator: LawEvaluator | None, in_params: bool) -> None:
        """Solve the linearized problem piece by piece. Written: its w, ν and by_params."""

        def work(piece: slice, deadline: Deadline) -> bool:
            if evaluator is not None:
                evaluator.begin(deadline)
            at = problem.part(piece, deadline, evaluator)
            self.plan.adjoint(problem.u[piece], problem.gradient[piece], at, in_params, problem.w[piece])
            return True

        # Cut as projections are: their memory fits.
        self._run(work, len(problem.u), True, LIMIT, Clock(math.inf), evaluator, warn=False)

    def _run(
        self, work: Callable[[slice, Deadline], bool], count: int, certify: bool, limit: int, clock: Clock,
        evaluator: LawEvaluator | None, warn: bool,
    ) -> float:  # fmt: skip
        """Do the work on all pieces of a batch; return its processor seconds."""
        pieces = self._cut(count, certify, limit)
        if warn and pieces.predicted > pieces.room:
            warn_if_large(pieces.predicted, pieces.room, self.plan.width)
        spent = run(work, pieces.pieces, clock, pieces.threads, pieces.needs_watchdog)
        if evaluator is not None:
            evaluator.callback.check()
        return spent

    def _cut(self, count: int, certify: bool, limit: int) -> _Pieces:
        """Cut a batch into pieces; the last cut is kept, as every flow step asks for the same one."""
        threads = workers() if self._pace * count > _WORTH_SHARING and self._threads else 1
        room = allowed(count, self.plan.width)
        asked, last = (count, certify, limit, threads, room), self._last
        if last is not None and last[0] == asked:
            return last[1]
        once = limit * self._longest
        # torch rounds opaque laws by who shares a tile: a piece is a tile, so that the number of threads changes no bit.
        chunk = LANES if self._opaque else _CHUNK if certify else _SMALL_CHUNK
        if self.plan.march is not None:  # large pieces share the time of Python's calls
            chunk = _CHUNK
        chunk = max(LANES, min(chunk, int(_WATCHED / once) // LANES * LANES if once > 0.0 else chunk))
        # Where the laws are called back, every callback looks at the clock: only what is between two of them is watched.
        unchecked = self._between_callbacks if self._opaque else max(once, limit * self._longest_on_kinks) * chunk
        if threads > 1:  # small pieces: a core that is busy elsewhere gets fewer
            chunk = min(chunk, LANES * max(1, count // (2 * threads * LANES)))
        chunk, threads = fitted(self.bytes, max(1, min(chunk, count)), threads, room)
        pieces = cut(count, min(LANES, chunk), -(-count // chunk))
        made = _Pieces(pieces, threads, unchecked > _WATCHED, threads * self.bytes(chunk), room)
        self._last = (asked, made)
        return made

    def _compile(self, clock: Clock) -> None:
        """Compile what every call needs, in the first call of a process, without counting the time."""
        if not self._ready:
            with clock.paused():
                nothing = np.empty((0, self.plan.width))
                known = Known(np.empty((0, self.plan.reduction.tape.params)), (None,) * len(self.plan.stages))
                call = Call(certified(1.0), Budget(1, clock), None, certify=True)
                answers, ended = self._blank(nothing)
                self.plan.project(nothing, self._state(known, call, Deadline(clock)), None, answers, ended, True)
            self._ready = True

    def _blank(self, u: Field) -> tuple[PieceResult, Ended]:
        count, plan = len(u), self.plan
        answers = PieceResult(
            u=u, multipliers=np.empty((count, self._rows)), place=np.empty((count, len(plan.moving))),
            stationarity=np.empty(count), distance=np.empty(count), weights=np.empty((count, plan.kinks)),
        )  # fmt: skip
        return answers, Ended.blank(count)

    def _state(self, known: Known, call: Call, deadline: Deadline) -> State:
        nothing = np.zeros((0, 0))
        return State(
            u_hat=nothing, u=nothing, params=known.params, multipliers=nothing, stopping=call.stopping, warm=None,
            limit=call.budget.limit, deadline=deadline, evaluator=call.evaluator, retry=self.retry, known=known.stages,
            kept={}, starts=call.budget.starts,
        )  # fmt: skip


class _Pieces(NamedTuple):
    """How a call on so many samples works through them."""

    pieces: list[slice]
    threads: int
    needs_watchdog: bool
    predicted: float  # bytes of all threads, and how many may be taken without saying so
    room: float
