"""Ipopt in several processes, each with the whole solver: the way to use several cores, as MUMPS is not threaded.

A process receives casadi's finished solver as text, and plain numbers: laws stay here, and need not be picklable. Processes
are spawned, not forked, because torch's threads do not survive a fork; scripts that use this need the usual
`if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing
from functools import cache
from itertools import count as numbers
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from snapfm.arrays import Index, Values
from snapfm.compile import CompiledLaws
from snapfm.errors import SnapfmError
from snapfm.laws import Params
from snapfm.solve.base import Limits
from snapfm_bench.peers.call import PeerCall
from snapfm_bench.peers.certificate import Answer, broken
from snapfm_bench.peers.ipopt import ITERATIONS, Ipopt
from snapfm_bench.peers.model import casadi
from snapfm_bench.peers.nlp import Begin, Outputs, sweep

Key: TypeAlias = tuple[int, float, int, bool]  # number of the peer, tolerance, limit of iterations, with a warm start

PROCESSES = 2
_number = numbers()


class IpoptProcesses(Ipopt):
    """Tuned Ipopt over several processes; a batch is dealt out in turn, so that hard samples are distributed.

    Tolerance: as for `Ipopt`. The processes are started by the first `prepare` or call, shared by all peers of this program,
    and end with it.
    """

    def __init__(
        self, structure: CompiledLaws, limits: Limits, processes: int = PROCESSES, iterations: int = ITERATIONS
    ) -> None:
        super().__init__(structure, limits, True, iterations)
        self.processes, self._number = processes, next(_number)

    def prepare(self, tolerance: float, count: int = 1, iterations: int | None = None, warm: bool = False) -> PeerCall:
        """Build the solver here and send it to every process, once."""
        call = super().prepare(tolerance, count, iterations, warm)
        key, crew = self._key(tolerance, iterations, warm), started(self.processes)
        if key not in crew.loaded:
            text = self.solver(*key[1:]).serialize()
            limits = {name: call.arguments[name].copy() for name in ("lbg", "lbx", "ubx")}
            crew.ask([("load", key, text, limits, self.model.fixed, self.word)] * self.processes)
            crew.loaded.add(key)
        return call

    def run(
        self, start: Tensor, params: Params, tolerance: float, begin: Begin = "input", iterations: int | None = None,
        last: Answer | None = None,
    ) -> Answer:  # fmt: skip
        """Solve without certificate, all processes at once."""
        given, able = self._inputs(start, params, begin, last), np.flatnonzero(~broken(start, params).numpy())
        self.prepare(tolerance, len(start), iterations, last is not None)
        deals = [able[i :: self.processes] for i in range(self.processes)]
        key = self._key(tolerance, iterations, last is not None)
        parts: list[Outputs] = started(self.processes).ask([("solve", key, given.take(deal)) for deal in deals])
        whole = Outputs(
            np.concatenate([part.u for part in parts]),
            np.concatenate([part.multipliers for part in parts]),
            np.concatenate([part.iterations for part in parts]),
            [word for part in parts for word in part.said],
        )
        return self._answer(given, np.concatenate(deals), whole)

    def _key(self, tolerance: float, iterations: int | None, warm: bool) -> Key:
        return self._number, tolerance, self.iterations if iterations is None else iterations, warm


@cache
def started(processes: int) -> Crew:
    """Return the processes of this program; start them at first use."""
    return Crew(processes)


class Crew:
    """Processes that answer messages, one each at a time; `loaded` are the solvers they have."""

    def __init__(self, count: int) -> None:
        self.loaded: set[Key] = set()
        spawn = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        self.members = []
        for _ in range(count):
            here, there = spawn.Pipe()
            member = spawn.Process(target=_serve, args=(there,), daemon=True)
            member.start()
            there.close()  # held by the process alone, so that its end ends the pipe
            self.pipes.append(here)
            self.members.append(member)

    def ask(self, messages: list[tuple[object, ...]]) -> list[Any]:
        """Send every process its message and wait for all answers; an error ends the processes."""
        try:
            for pipe, message in zip(self.pipes, messages):
                pipe.send(message)
            return [pipe.recv() for pipe in self.pipes]
        except (EOFError, OSError) as cause:
            self.end()
            codes = [member.exitcode for member in self.members]
            raise SnapfmError(
                f"IpoptProcesses expects {len(self.members)} processes that answer; one ended (exit codes {codes}). Its last "
                "words are above; try again, or with fewer samples if memory ran out."
            ) from cause
        except BaseException:
            self.end()  # interrupted: late answers would be mistaken for those of the next message
            raise

    def end(self) -> None:
        """End the processes; the next call starts others."""
        started.cache_clear()
        for pipe, member in zip(self.pipes, self.members):
            pipe.close()
            member.terminate()
            member.join()


def _serve(pipe: Connection) -> None:
    """Answer messages until the pipe ends: load a solver, or solve samples with one that was loaded."""
    loaded: dict[Key, tuple[PeerCall, Index, str]] = {}
    while True:
        try:
            task, key, *rest = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        if task == "load":
            loaded[key] = _load(*rest)
            pipe.send(None)
        else:
            call, fixed, word = loaded[key]
            pipe.send(sweep(call, fixed, rest[0], word))


def _load(text: str, limits: dict[str, Values], fixed: Index, word: str) -> tuple[PeerCall, Index, str]:
    call = PeerCall(casadi().Function.deserialize(text))
    for name, values in limits.items():
        call.arguments[name][:] = values
    return call, fixed, word
