"""Where a cell's method stands ready: problem, inputs, projector and solver, built with a clock for each cold part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from snapfm.bench.inputs import Inputs, load
from snapfm.bench.job import Job, Progress, write_progress
from snapfm.bench.judge import Answers, claims, verdict
from snapfm.bench.machine import forget_peak, peak_bytes, resident_bytes
from snapfm.bench.methods import Solver, methods
from snapfm.bench.record import Verdict
from snapfm.bench.suite import Case, Suite
from snapfm.problems import Problem
from snapfm.project import Projector
from snapfm.project.base import Solution

FIRST_CALL = "first_call"

_SHARE = 0.5  # of a budget, for hot calls: the rest is for building, the first call and those that are judged
_LATE = 0.8  # of a budget: from here on one hot call has to do, so that a slow method leaves a record after all


@dataclass
class Stand:
    """A method on a case, ready to be called; tells how far it is after every call."""

    job: Job
    suite: Suite
    case: Case
    problem: Problem
    inputs: Inputs
    projector: Projector
    solver: Solver
    cold: dict[str, float]
    base_bytes: int | None
    began: float  # of the clock that times calls

    @property
    def tolerance(self) -> float:
        """What is asked of the method."""
        return self.suite.tolerance

    def first_call(self, call: Callable[[], object]) -> None:
        """Make the call that compiles what has to be, and keep its time apart."""
        self.tell("first call")
        with _clock(self.cold, FIRST_CALL):
            call()

    def warm_up(self, call: Callable[[], object], turns: int, judged: float) -> None:
        """Make the calls before the timed ones, after the judged one; none if they would take a share of the budget."""
        more = self.suite.warmup - 1
        if more * judged <= self._share(turns):
            for _ in range(more):
                call()

    def repeated(self, what: str, call: Callable[[], object], turns: int, judged: float = 0.0) -> tuple[float, ...]:
        """Time hot calls: as many as the suite says, fewer if that would take too much of the budget, at least one.

        A method so slow that the call that was judged took its share of the budget already has that call's seconds.
        """
        share = self._share(turns)
        if judged > share:
            return (judged,)
        spent: list[float] = []
        while len(spent) < self.suite.repeats:
            more = min(spent, default=0.0)
            late = perf_counter() - self.began + more > _LATE * self._budget
            if spent and (late or sum(spent) + more > share):
                break
            self.tell(f"hot call {len(spent) + 1} of {self.suite.repeats} on {what}")
            began = perf_counter()
            call()
            spent.append(perf_counter() - began)
        return tuple(spent)

    @property
    def _budget(self) -> float:
        assert self.job.kind is not None
        return self.suite.budget_of(self.case, self.job.kind)

    def _share(self, turns: int) -> float:
        """Give the seconds that hot calls may take on one of so many inputs."""
        return _SHARE * self._budget / turns

    def answers(self, solved: Solution) -> Answers:
        """Put what a method gives into the judge's terms."""
        slices = self.projector.structure.slices()
        return Answers(
            u=solved.u.double().reshape(-1, *self.projector.shape),
            multipliers={name: solved.multipliers[:, part].double() for name, part in slices.items()},
            claimed=claims(solved.status, len(solved.u)),
            iterations=solved.iterations,
        )

    def verdict(self, u_hat: Tensor, solved: Solution) -> Verdict:
        """Judge what a method gives."""
        return verdict(self.projector.laws, u_hat, self.answers(solved), self.inputs.params, self.tolerance)

    def tell(self, doing: str, steps_done: int | None = None, steps: int | None = None) -> None:
        """Leave word of what is done now."""
        write_progress(self.job.folder, Progress(doing, steps_done, steps, dict(self.cold)))

    def more_bytes(self) -> int | None:
        """Say how much memory the method took at most."""
        peak = peak_bytes()
        return None if peak is None or self.base_bytes is None else max(0, peak - self.base_bytes)


def made_ready(job: Job) -> Stand:
    """Build everything a cell needs before its method is called."""
    assert job.inputs is not None
    assert job.method is not None
    suite, case = job.suite, job.suite.case(job.case)
    method = methods(suite.catalog)[job.method]
    began = perf_counter()
    problem, inputs = case.build(), load(job.inputs, job.digest)
    forget_peak()
    base = resident_bytes()
    cold: dict[str, float] = {}
    write_progress(job.folder, Progress("structure"))
    with _clock(cold, "structure"):
        projector = Projector(problem.laws, problem.grid.shape, inputs.params, suite.tolerance)
    write_progress(job.folder, Progress("build", cold=cold))
    with _clock(cold, "build"):
        solver = method.build(projector)
        solver.prepare(suite.tolerance, case.samples)
    return Stand(job, suite, case, problem, inputs, projector, solver, cold, base, began)


def fields_of(answer: Any, shape: tuple[int, ...]) -> Tensor:
    """Take the fields out of what `run` gives: a tensor, or something whose `u` they are."""
    found = answer if isinstance(answer, Tensor) else answer.u
    return torch.as_tensor(found).reshape(-1, *shape)


@contextmanager
def _clock(times: dict[str, float], name: str) -> Iterator[None]:
    began = perf_counter()
    yield
    times[name] = perf_counter() - began
