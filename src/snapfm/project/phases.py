"""Where the time of a projection goes: the parts of its iterations, repeated on the memory that a call left behind.

A clock inside the compiled iterations would cost as much as what it measures, so each part is timed alone, as often as the
call's iterations needed it, on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import numpy as np
import numpy.typing as npt

from snapfm.kernels.operations import LANES
from snapfm.kernels.phases import repeat_derivatives, repeat_factor, repeat_residual, repeat_solve
from snapfm.project.newton import Newton
from snapfm.project.part import Part

_REPEATS = 5
RESIDUAL, JACOBIAN, FACTOR, SOLVE, REST = "residual", "jacobian", "factor", "solve", "rest"


def phases(method: Newton, call: Callable[[], object], iterations: npt.NDArray[np.int64]) -> dict[str, float]:
    """Give seconds by part of one call; `iterations` (b,) are those that it takes. `rest` is all that is not iterated."""
    call()
    spent = dict.fromkeys((RESIDUAL, JACOBIAN, FACTOR, SOLVE), 0.0)
    for part in method.parts:
        for name, seconds in _of_part(part, iterations).items():
            spent[name] += seconds
    total = median(_seconds(call) for _ in range(_REPEATS))
    return spent | {REST: max(0.0, total - sum(spent.values()))}


def _of_part(part: Part, iterations: npt.NDArray[np.int64]) -> dict[str, float]:
    lanes = np.repeat(iterations, part.system.parts)
    space = part.borrow(-(-len(lanes) // LANES))
    # A tile goes on until its last lane is done.
    padded = np.concatenate([lanes, np.zeros(-len(lanes) % LANES, np.int64)])
    steps = padded.reshape(-1, LANES).max(axis=1)
    code, one, at = part.system.program.code, part.kkt, part.at
    found = {
        RESIDUAL: _timed(lambda times: repeat_residual(code, one.frame, space, at, times), steps + 1),
        JACOBIAN: _timed(lambda times: repeat_derivatives(code, one.frame, space, at, times), steps + 1),
        FACTOR: _timed(lambda times: repeat_factor(one.frame, one.schedule, space, at, times), steps),
        SOLVE: _timed(lambda times: repeat_solve(one.frame, one.schedule, space, at, times), steps),
    }
    part.give_back(space)
    return found


def _timed(work: Callable[[npt.NDArray[np.int64]], None], times: npt.NDArray[np.int64]) -> float:
    work(times)  # compiles
    return median(_seconds(lambda: work(times)) for _ in range(_REPEATS))


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
