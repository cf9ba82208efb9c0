"""The methods that are compared, each prepared once and timed on hot calls: ours, and Ipopt with tuned and with default options.

Runs in a process of its own (`child`). Timed are calls of ours on the whole batch, and Ipopt's solves one sample after the other
from û; finding structure, compiling and building come before, certificates and the judge after.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter, process_time
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from benchmarks.any_law.case import Case, Setting
from benchmarks.record import statuses
from snapfm import Metric, Projector, Status
from snapfm.compile import CompiledLaws, compile_laws
from snapfm.laws import Params
from snapfm.solve.base import Limits, Solution, limits_of
from snapfm_bench.judge import Answers, claims, verdict
from snapfm_bench.peers import Ipopt

OURS, TUNED, DEFAULT = "ours", "ipopt_tuned", "ipopt_default"
METHODS = (OURS, TUNED, DEFAULT)

_HOT_CALLS = 3
_HOT_SHARE = 0.3  # of the timeout: hot calls beyond the first are made while they fit in it
_RETURN = 0.9  # of the time that is left: a method asked to end by itself then has the rest to do so
_ITERATIONS = 3000  # Ipopt's own default

Report = Callable[[str, int], None]  # what is done now, and samples done


@dataclass(frozen=True)
class Asked:
    """A method's answers to the first samples of a batch."""

    answers: Answers
    status: Tensor
    seconds: float  # a sample, on the wall
    cpu_seconds: float  # a sample, of this process: what others do on the machine does not count
    calls: int  # the time is the best of so many

    def figures(self, setting: Setting, u_hat: Tensor, tolerance: float) -> dict[str, Any]:
        """Judge the answers, and put together what is recorded."""
        count, answers = len(self.answers.u), replace(self.answers, u=setting.scaled(self.answers.u))
        near = setting.scaled(u_hat[:count])
        judged = verdict(setting.scaled_laws(), near, answers, first(setting.params, count), tolerance)
        return {
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "calls": self.calls,
            "asked": count,
            "statuses": statuses(self.status),
            "claimed": judged.claimed,
            "certified": judged.converged,
            "violation": judged.violation,
            "stationarity": judged.stationarity,
            "iterations_median": judged.iterations_median,
            "iterations_worst": judged.iterations_worst,
            "distances": list(judged.exact_distances),  # None where the judge does not confirm the answer
        }


class Method(Protocol):
    """A way to project, prepared for one case."""

    cold: dict[str, float]  # seconds of preparations

    def ask(self, u_hat: Tensor, params: Params, seconds: float, report: Report) -> Asked:
        """Project a batch and time it; return within `seconds`, with fewer samples if need be."""
        ...


def prepared(method: str, case: Case, setting: Setting, seconds: float) -> Method:
    """Prepare a method by its name; `seconds` are those of a call that is to come."""
    if method == OURS:
        return Ours(case, setting)
    return Peer(case, setting, method == TUNED, seconds)


def first(params: Params, count: int) -> dict[str, Tensor]:
    """Take the params of the first samples."""
    return {name: value[:count] for name, value in params.items()}


class Ours:
    """The projector as a user has it."""

    def __init__(self, case: Case, setting: Setting) -> None:
        began = perf_counter()
        metric = None if setting.units is None else Metric(setting.units.expand(setting.truth.shape[1:]).square())
        shape = setting.truth.shape[1:]
        self.project = Projector(setting.laws, shape, setting.params, case.tolerance, metric=metric)
        self.cold = {"prepare_seconds": perf_counter() - began}

    def ask(self, u_hat: Tensor, params: Params, seconds: float, report: Report) -> Asked:
        """Project the batch, again while that is cheap."""
        best, cpu, calls, began = float("inf"), float("inf"), 0, perf_counter()
        while True:
            report(f"call {calls + 1}", 0)
            start, busy = perf_counter(), process_time()
            result = self.project(u_hat, params, seconds=_RETURN * (seconds - (start - began)))
            last = perf_counter() - start
            best, cpu, calls = min(best, last), min(cpu, process_time() - busy), calls + 1
            spent = perf_counter() - began
            # The first call may load or compile what only hard inputs need: it is made again whenever that fits.
            if calls > _HOT_CALLS or spent + last > (_RETURN if calls == 1 else _HOT_SHARE) * seconds:
                break
        answers = Answers(result.u, result.multipliers, result.converged, result.iterations)
        return Asked(answers, result.status, best / len(u_hat), cpu / len(u_hat), calls)


class TimedIpopt(Ipopt):
    """Ipopt on presolved laws, with tuned or default options, that ends when its time for a sample is over."""

    statuses: ClassVar[Mapping[str, Status]] = {
        **Ipopt.statuses,
        "Maximum_WallTime_Exceeded": Status.ITERATION_LIMIT,
    }

    def __init__(self, structure: CompiledLaws, limits: Limits, tuned: bool, seconds: float) -> None:
        super().__init__(structure, limits, True, _ITERATIONS)
        self.tuned, self._seconds = tuned, seconds  # laws are presolved either way: defaults fail on implied rows

    def options(self, tolerance: float, iterations: int) -> dict[str, Any]:
        """Add the limit of time."""
        return {**super().options(tolerance, iterations), "ipopt.max_wall_time": self._seconds}


class Peer:
    """Ipopt, sample by sample, each from its input; in the setting's units, as it knows no metric."""

    def __init__(self, case: Case, setting: Setting, tuned: bool, seconds: float) -> None:
        self.tolerance, shape, self.units = case.tolerance, tuple(setting.truth.shape[1:]), setting.units
        began, laws = perf_counter(), setting.scaled_laws()
        structure = compile_laws(laws, shape, setting.params)
        found = perf_counter()
        self.peer = TimedIpopt(structure, limits_of(laws, shape), tuned, _RETURN * seconds)
        self.peer.prepare(self.tolerance)
        self.cold = {"structure_seconds": found - began, "prepare_seconds": perf_counter() - found}

    def ask(self, u_hat: Tensor, params: Params, seconds: float, report: Report) -> Asked:
        """Solve as many samples as there is time for."""
        solved: list[Solution] = []
        took, busy, calls, began = [], [], _HOT_CALLS, perf_counter()
        units = 1.0 if self.units is None else self.units
        u_hat = u_hat / units
        for i in range(len(u_hat)):
            left = seconds - (perf_counter() - began)
            if took and 2 * max(took) > left:  # the next one may be a hard one
                break
            report(f"sample {i + 1}", i)
            own = {name: value[i : i + 1] if len(value) > 1 else value for name, value in params.items()}
            best, cpu, answer = float("inf"), float("inf"), None
            for call in range(_HOT_CALLS):
                start, used = perf_counter(), process_time()
                answer = self.peer.run(u_hat[i : i + 1], own, self.tolerance)
                last = perf_counter() - start
                best, cpu = min(best, last), min(cpu, process_time() - used)
                if last * (len(u_hat) - i) > _HOT_SHARE * left:
                    calls = min(calls, call + 1)
                    break
            assert answer is not None
            took.append(best)
            busy.append(cpu)
            solved.append(self.peer.certify(u_hat[i : i + 1], own, self.tolerance, answer))
        status = torch.cat([one.status for one in solved if one.status is not None])
        slices = self.peer.structure.slices()
        multipliers = torch.cat([one.multipliers for one in solved])
        answers = Answers(
            torch.cat([one.u for one in solved]).reshape(-1, *u_hat.shape[1:]) * units,
            {name: multipliers[:, rows] for name, rows in slices.items()},
            claims(status, len(solved)),
            torch.cat([one.iterations for one in solved]),
        )
        return Asked(answers, status, sum(took) / len(took), sum(busy) / len(busy), calls)
