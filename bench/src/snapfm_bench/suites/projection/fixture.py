"""A method on a case, ready to be called: problem, inputs, projector and solver, each cold part timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from snapfm.errors import ParamsError
from snapfm.project import Projector
from snapfm.solve.base import Solution
from snapfm_bench.judge import Answers, Verdict, claims, verdict
from snapfm_bench.machine import forget_peak, peak_bytes, resident_bytes
from snapfm_bench.peers.catalog import PeerSolver
from snapfm_bench.problems import Problem
from snapfm_bench.suites.projection.inputs import Inputs, load
from snapfm_bench.suites.projection.suite import Case, Kind, ProjectionSuite, methods
from snapfm_bench.suites.supervise import Progress, write_progress

FIRST_CALL = "first_call"
RECORD, INPUTS, FIELDS = "record.json", "inputs.npz", "fields.npz"  # files of a job's folder

_SHARE = 0.5  # of a budget, for hot calls: the rest is for building, the first call and those that are judged
_LATE = 0.8  # of a budget: from here on one hot call is enough, so that a slow method still leaves a record


@dataclass(frozen=True)
class Job:
    """What one child process does: a cell, or, without a method, the inputs of a case."""

    suite: ProjectionSuite
    case: str
    method: str | None
    kind: Kind | None
    folder: Path  # for what it writes
    inputs: Path | None = None  # what it reads
    digest: str = ""


@dataclass
class Fixture:
    """A method on a case; reports its progress before every call."""

    job: Job
    suite: ProjectionSuite
    case: Case
    problem: Problem
    inputs: Inputs
    projector: Projector
    solver: PeerSolver
    tolerance: float
    budget: float  # wall seconds of the cell
    cold: dict[str, float]
    base_bytes: int | None
    began: float  # of the clock that times calls

    def first_call(self, call: Callable[[], object]) -> None:
        """Make the call that compiles, timed separately."""
        self.report("first call")
        with _clock(self.cold, FIRST_CALL):
            call()

    def repeated(self, what: str, call: Callable[[], object], turns: int, judged: float = 0.0) -> tuple[float, ...]:
        """Warm up, then time hot calls: as many as the suite asks for, fewer if they would take too much of the budget.

        `turns` inputs share the budget. A method so slow that its judged call used up its share keeps that call's seconds.
        """
        share, more = _SHARE * self.budget / turns, self.suite.warmup - 1
        if judged and more * judged <= share:
            for _ in range(more):
                call()
        if judged > share:
            return (judged,)
        spent: list[float] = []
        while len(spent) < self.suite.repeats:
            next_one = min(spent, default=0.0)
            late = perf_counter() - self.began + next_one > _LATE * self.budget
            if spent and (late or sum(spent) + next_one > share):
                break
            self.report(f"hot call {len(spent) + 1} of {self.suite.repeats} on {what}")
            began = perf_counter()
            call()
            spent.append(perf_counter() - began)
        return tuple(spent)

    def answers(self, solved: Solution) -> Answers:
        """Convert what a method returns to the input of the judge."""
        slices = self.projector.structure.slices()
        return Answers(
            u=solved.u.double().reshape(-1, *self.projector.shape),
            multipliers={name: solved.multipliers[:, part].double() for name, part in slices.items()},
            claimed=claims(solved.status, len(solved.u)),
            iterations=solved.iterations,
        )

    def verdict(self, u_hat: Tensor, answers: Answers) -> Verdict:
        """Judge answers."""
        return verdict(self.projector.laws, u_hat, answers, self.inputs.params, self.tolerance)

    def report(self, doing: str, steps_done: int | None = None, steps: int | None = None) -> None:
        """Report the current activity."""
        write_progress(self.job.folder, Progress(doing, steps_done, steps, dict(self.cold)))

    def more_bytes(self) -> int | None:
        """Measure the peak memory of the method."""
        peak = peak_bytes()
        return None if peak is None or self.base_bytes is None else max(0, peak - self.base_bytes)


def prepared(job: Job) -> Fixture:
    """Build everything a cell needs before its method is called."""
    assert job.inputs is not None
    assert job.method is not None
    assert job.kind is not None
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
        if suite.options:
            _configure(job.method, solver, suite.options)
        solver.prepare(suite.tolerance, case.samples)
    return Fixture(
        job,
        suite,
        case,
        problem,
        inputs,
        projector,
        solver,
        suite.tolerance,
        suite.budget_of(case, job.kind),
        cold,
        base,
        began,
    )


def fields_of(answer: Any, shape: tuple[int, ...]) -> Tensor:
    """Return the fields of what `run` returns: a tensor, or an object with the fields as `u`."""
    found = answer if isinstance(answer, Tensor) else answer.u
    return torch.as_tensor(found).reshape(-1, *shape)


def _configure(name: str, solver: PeerSolver, options: Mapping[str, Any]) -> None:
    """Hand a solver options in place of its own; refuse them for one that takes none."""
    held = getattr(solver, "more", None)
    if held is None:
        raise ParamsError(
            f"options expects a method that takes them, such as ipopt-tuned or rootfinder-2; got '{name}'. Name another, or "
            "leave them out."
        )
    held.update(options)


@contextmanager
def _clock(times: dict[str, float], name: str) -> Iterator[None]:
    began = perf_counter()
    yield
    times[name] = perf_counter() - began
