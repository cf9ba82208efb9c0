"""Run the pieces of one call, on the caller's thread or on several, until they are done or their time is over.

Compiled kernels release the interpreter's lock, so plain threads keep all cores busy. Small batches run on one thread, because
passing the lock back and forth costs more than it gains. Threads live for one call: nothing remains that a fork could break,
and starting them costs a hundredth of the shortest call that uses them. Pieces are handed out one by one, so that a core
that is busy elsewhere gets fewer. Results do not depend on which thread works on which piece.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numba.core import config

from snapfm.arrays import Index

_INTERVAL = 0.1  # seconds between checks of the clock while other threads work


class Clock:
    """The time that a call may take. It can be paused: compilation of kernels is not counted."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._paused: list[float] = []  # appended to by any thread

    @property
    def left(self) -> float:
        """Seconds left, at least zero."""
        return max(0.0, self._end + sum(self._paused) - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self.left <= 0.0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time inside."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._paused.append(time.monotonic() - began)


@dataclass(frozen=True, eq=False)
class Deadline:
    """A piece's deadline: it ends by itself, or soon after `stop[0]` is set, which compiled loops check."""

    clock: Clock
    until: float = 0.0  # seconds that the clock has left when the deadline is over
    stop: Index = field(default_factory=lambda: np.zeros(1, np.int64))

    @property
    def over(self) -> bool:
        """Whether the piece has to end."""
        return bool(self.stop[0]) or self.clock.left <= self.until

    def reserve_for(self, others: int) -> Deadline:
        """Return the deadline of one piece of work that `others` follow: it leaves each of them half of an equal share."""
        left = max(0.0, self.clock.left - self.until)
        return Deadline(self.clock, self.until + 0.5 * left * others / (others + 1), self.stop) if others else self


Work = Callable[[slice, Deadline], bool]  # returns whether the piece ended by itself


def run(work: Work, pieces: Sequence[slice], clock: Clock, threads: int = 1, needs_watchdog: bool = False) -> float:
    """Work on all pieces; return the seconds of processor time used.

    Every piece is begun, if only to find that its time is over, and first gets a fair share of the time. Pieces that were cut
    short begin again while time is left, so that a slow piece cannot starve the others. `needs_watchdog`: the caller waits for
    another thread, so that the clock and Control-C can end compiled loops; without it loops run to their end.
    """
    spent, left = 0.0, list(pieces)
    while left:
        turns = _Turns(left, clock, max(1, min(threads, len(left))))
        spent += turns.shared(work) if needs_watchdog or turns.threads > 1 else turns.alone(work)
        left = [] if clock.over else turns.cut
    return spent


def shared(work: Callable[[slice], None], count: int, unit: int = 1) -> None:
    """Call work on ranges of 0 .. count − 1, cut at multiples of `unit`, with as many threads as may work at once."""

    def whole(piece: slice, deadline: Deadline) -> bool:
        work(piece)
        return True

    run(whole, cut(count, unit, workers()), Clock(np.inf), workers())


def cut(count: int, unit: int, number: int) -> list[slice]:
    """Cut 0 .. count − 1 into at most `number` ranges of nearly the same length, at multiples of `unit`."""
    units = -(-count // unit)
    number = max(1, min(number, units))
    edges = [min(unit * (units * k // number), count) for k in range(number + 1)]
    return [slice(first, last) for first, last in pairwise(edges) if last > first]


def workers() -> int:
    """Number of threads that may work at once: of the cores, OMP_NUM_THREADS and NUMBA_NUM_THREADS the least."""
    limit = os.environ.get("OMP_NUM_THREADS", "")
    # Asking numba's own function would start its threads.
    cores = int(config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    return max(1, min(cores, int(limit))) if limit.isdigit() else cores


class _Turns:
    """One round over some pieces."""

    def __init__(self, pieces: Sequence[slice], clock: Clock, threads: int) -> None:
        self.threads, self.cut = threads, list[slice]()
        self._pieces: Iterator[tuple[int, slice]] = iter(list(enumerate(pieces)))  # next() is atomic
        self._count, self._clock = len(pieces), clock
        self._halted = False  # set once, by any thread
        self._live, self._spent, self._failures = list[Deadline](), list[float](), list[BaseException]()

    def alone(self, work: Work) -> float:
        """Take all turns on the caller's thread."""
        self._take(work)
        return self._spent[0]

    def shared(self, work: Work) -> float:
        """Take the turns on threads of their own, and watch them."""
        helpers = [threading.Thread(target=self._caught, args=(work,), daemon=True) for _ in range(self.threads)]
        try:
            for helper in helpers:
                helper.start()
            for helper in helpers:
                while helper.is_alive():
                    helper.join(_INTERVAL)
                    self._stop(late=True)
        finally:  # also when Control-C ends the waiting: no thread outlives the call
            self._halted = True
            self._stop(late=False)
            for helper in helpers:
                if helper.ident is not None:
                    helper.join()
        if self._failures:
            raise self._failures[0]
        return sum(self._spent)

    def _caught(self, work: Work) -> None:
        try:
            self._take(work)
        except BaseException as failure:
            self._failures.append(failure)
            self._halted = True

    def _take(self, work: Work) -> None:
        began = time.thread_time()
        with np.errstate(all="ignore"):  # the status reports what is not finite
            for number, piece in self._pieces:
                share = min(1.0, self.threads / (self._count - number))
                deadline = Deadline(self._clock, (1.0 - share) * self._clock.left if share < 1.0 else 0.0)
                self._live.append(deadline)
                try:
                    if self._halted:  # later than this it is stopped through the list
                        break
                    if not work(piece, deadline):
                        self.cut.append(piece)
                finally:
                    self._live.remove(deadline)
        self._spent.append(time.thread_time() - began)

    def _stop(self, late: bool) -> None:
        for deadline in list(self._live):
            if deadline.over or not late:
                deadline.stop[0] = 1
