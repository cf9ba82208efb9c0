"""One cell: a sampler on a task, within its wall budget, judged; and what all cells of a task share.

What a first call costs (tracing, compiling) is spent in `prepare`, before any clock runs.
"""

from __future__ import annotations

import hashlib
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch
from torch import Tensor, nn

from snapfm.flow import VelocityNetwork, evaluator, shipped, shipped_names
from snapfm.laws import Params
from snapfm.metrics.moments import Moments, moments
from snapfm.problems import Problem
from snapfm.project import Projector
from snapfm.quality.judge import Truth, judge
from snapfm.quality.record import TRUE_FIELDS, Cell, Status
from snapfm.quality.suite import SamplerEntry, Suite, TaskEntry
from snapfm.sampling import Samples, sample

_TRUTH_SEED = 1  # added to the suite's: conditions and truth share no random number with the noise

Told = Callable[[int, int], None]  # steps done, steps in all


@dataclass(frozen=True)
class Outcome:
    """The record of a cell and, if it came to fields, their mean and spread."""

    cell: Cell
    moments: Moments | None


@dataclass(frozen=True)
class Prepared:
    """What the cells of one task share; no network where the task's model is not shipped."""

    entry: TaskEntry
    problem: Problem
    truth: Truth
    params: Params
    network: VelocityNetwork | None
    projector: Projector | None


def digest(model: str) -> str | None:
    """Name the weights of a shipped model by what they are; None if it is not shipped."""
    if model not in shipped_names():
        return None
    found = hashlib.sha256()
    for name, weight in sorted(shipped(model).state_dict().items()):
        values = weight if isinstance(weight, Tensor) else torch.as_tensor(weight)
        found.update(name.encode())
        found.update(torch.view_as_real(values).numpy().tobytes() if values.is_complex() else values.numpy().tobytes())
    return found.hexdigest()[:16]


def prepare(suite: Suite, entry: TaskEntry) -> Prepared:
    """Simulate the truth of a task, load its model and build its projector."""
    problem = entry.build()
    count = entry.truth or suite.truth
    fields, params = problem.draw_truth(suite.seed + _TRUTH_SEED, 0, max(count, _most(suite)))
    truth = Truth.of(fields[:count])
    network = shipped(entry.model) if entry.model in shipped_names() else None
    projector = None
    if network is not None:
        some = _first(params, suite.samples)
        projector = Projector(problem.laws, problem.grid.shape, some, tolerance=suite.tolerance)
        projector(torch.zeros(suite.samples, *problem.grid.shape), some)
    return Prepared(entry, problem, truth, params, network, projector)


def reference_cell(suite: Suite, task: Prepared, name: str) -> Outcome:
    """Score an answer that needs no model: as many true fields, drawn independently, or the true mean every time."""
    if name == TRUE_FIELDS:
        u, params = task.problem.draw_truth(suite.seed + _TRUTH_SEED, task.truth.count, suite.samples)
    else:
        mean = task.truth.moments.mean
        u, params = mean.expand(suite.samples, *mean.shape), _first(task.params, suite.samples)
    scores = judge(task.problem.laws, u, params, task.truth, suite.bootstrap, suite.seed)
    cell = Cell(
        task=task.entry.name, sampler=name, status=Status.DONE, samples=suite.samples, machine=machine(), **scores
    )
    return Outcome(cell, moments(u))


def sampler_cell(suite: Suite, task: Prepared, entry: SamplerEntry, told: Told | None = None) -> Outcome:
    """Run and judge a sampler; what it raises and what it takes too long for is data."""
    count, steps = entry.samples or suite.samples, entry.steps or suite.steps
    about: dict[str, Any] = {
        "task": task.entry.name, "sampler": entry.name, "samples": count, "steps": steps, "machine": machine(),
    }  # fmt: skip
    if task.network is None or task.projector is None:
        return Outcome(Cell(**about, status=Status.ABSENT, error=f"model '{task.entry.model}' is not shipped"), None)
    watch = _Watch(entry.budget or suite.budget, told)
    params = _first(task.params, count)
    about["model"] = digest(task.entry.model)
    try:
        with watch.timed():
            samples = sample(
                _Watched(task.network, watch),
                task.projector,
                params,
                count=count,
                steps=steps,
                generator=torch.Generator().manual_seed(suite.seed),
                sampler=entry.build(),
                dtype=getattr(torch, suite.dtype),
                on_failure="keep",
                progress=watch.step,
            )
        scores = judge(task.problem.laws, samples.u, params, task.truth, suite.bootstrap, suite.seed)
    except _Late:
        spent = {"total": watch.seconds}
        return Outcome(Cell(**about, status=Status.DNF, steps_done=watch.done, seconds=spent, calls=watch.calls), None)
    except Exception as error:  # a rival that fails is a result of the table, not its end
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        spent = {"total": watch.seconds}
        return Outcome(
            Cell(**about, status=Status.FAILED, error=words, steps_done=watch.done, seconds=spent, calls=watch.calls),
            None,
        )
    return Outcome(
        Cell(
            **about,
            status=Status.DONE,
            steps_done=watch.done,
            converged=_converged(samples),
            seconds={**samples.seconds, "total": watch.seconds},
            calls=samples.calls,
            **scores,
        ),
        moments(samples.u),
    )


def machine() -> dict[str, Any]:
    """Describe what seconds were measured on."""
    return {
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "versions": {name: metadata.version(name) for name in ("snapfm", "torch", "numpy")},
    }


class _Late(Exception):
    """The wall budget is used up."""


class _Watch:
    """The clock of one cell: counts steps and network calls, and ends the run when its budget is used up."""

    def __init__(self, budget: float, told: Told | None) -> None:
        self._budget, self._told = budget, told
        self._began = time.perf_counter()
        self._ended: float | None = None
        self.done = self.calls = 0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *raised: object) -> None:
        self._ended = time.perf_counter()

    def timed(self) -> _Watch:
        """Run the clock inside the block."""
        return self

    @property
    def seconds(self) -> float:
        """Wall time of the block, or of what has passed of it."""
        return (time.perf_counter() if self._ended is None else self._ended) - self._began

    def step(self, done: int, total: int) -> None:
        """Take note of a step."""
        self.done = done
        if self._told is not None:
            self._told(done, total)
        if done < total:  # what is finished is finished, late or not
            self.check()

    def check(self) -> None:
        """Raise if it is too late to go on."""
        if self.seconds > self._budget:
            raise _Late


class _Watched(nn.Module):
    """A network whose every call looks at the clock: some samplers take minutes between two steps."""

    def __init__(self, network: VelocityNetwork, watch: _Watch) -> None:
        super().__init__()
        self.network, self._watch = network, watch
        self._quick = evaluator(network)

    def forward(self, u: Tensor, tau: float | Tensor) -> Tensor:
        self._watch.check()
        self._watch.calls += 1
        speed: Tensor = self._quick(u, tau)
        return speed


def _converged(samples: Samples) -> int | None:
    return None if samples.projection is None else int(samples.projection.converged.sum())


def _most(suite: Suite) -> int:
    return max(suite.samples, *(entry.samples or 0 for entry in suite.samplers))


def _first(params: Params, count: int) -> dict[str, Tensor]:
    return {name: value[:count] for name, value in params.items()}
