"""Where the time of a projection goes: the steps of its iterations, repeated on the memory of a finished call.

A clock inside the compiled iterations would cost as much as what it measures. So each step is timed alone, on one thread, as
often as the iterations of the call needed it. For benchmarks; nothing that projects imports it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np

from snapfm.arrays import Index
from snapfm.kernels.operations import LANES
from snapfm.solve.newton import Newton
from snapfm.solve.system import Part
from snapfm_bench.peers.kernel_phases import repeat_steps

_REPEATS = 5
# Repetitions of a step beside the one that all share, so that noise does not hide it: this many, or fewer where so many of all
# steps together take this many seconds.
_TIMES, _ENOUGH = 20, 0.2
RESIDUAL, JACOBIAN, FACTOR, SOLVE, REST = "residual", "jacobian", "factor", "solve", "rest"


def phases(method: Newton, call: Callable[[], object], iterations: Index) -> dict[str, float]:
    """Return the seconds of one call by phase; `iterations` (b,) are those it takes. `rest` is everything but iterations."""
    call()
    spent = dict.fromkeys((RESIDUAL, JACOBIAN, FACTOR, SOLVE), 0.0)
    for part in method.plan.systems:
        for name, seconds in _of_part(part, iterations).items():
            spent[name] += seconds
    total = median(_seconds(call) for _ in range(_REPEATS))
    return spent | {REST: max(0.0, total - sum(spent.values()))}


def _of_part(part: Part, iterations: Index) -> dict[str, float]:
    lanes = np.repeat(iterations, part.system.parts)
    # A tile iterates until its last lane is done.
    padded = np.concatenate([lanes, np.zeros(-len(lanes) % LANES, np.int64)])
    steps = padded.reshape(-1, LANES).max(axis=1)
    code, one, at = part.system.program.code, part.kkt, part.at
    none = np.zeros_like(steps)
    with part.spaces.lend(len(steps)) as space, part.scratch.lend() as work:

        def seconds(*times: Index) -> float:
            def run() -> None:
                repeat_steps(code, one.frame, one.schedule, space, at, work, *times)

            run()  # compiles
            return median(_seconds(run) for _ in range(_REPEATS))

        once = seconds(none, none, none, none)
        repeated = int(np.clip(_ENOUGH / once, 1, _TIMES))

        def share(*times: Index) -> float:
            return max(0.0, seconds(*(repeated * one for one in times)) - once) / repeated

        return {
            RESIDUAL: share(steps + 1, none, none, none),
            JACOBIAN: share(none, steps + 1, none, none),
            FACTOR: share(none, none, steps, none),
            SOLVE: share(none, none, none, steps),
        }


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
