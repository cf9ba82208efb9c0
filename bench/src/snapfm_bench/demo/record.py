"""The data of a demonstration: two problems, each with one model and one noise, sampled without laws (free) and with every step
projected (lawful).

`collect` uses the public API only, as a user would, and judges with metrics. It draws and writes nothing. The figures are kept
in evidence.json; the arrays are what the pictures show.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

import snapfm
from snapfm.arrays import Values
from snapfm.errors import Status
from snapfm.grid import Axis
from snapfm.metrics.scores import residuals
from snapfm_bench.flow import shipped
from snapfm_bench.machine import versions
from snapfm_bench.problems import Problem

TOLERANCE = 1e-10  # of the float64 projection; far below what float32 fields can hold

Run = Literal["free", "lawful"]
RUNS: tuple[Run, Run] = ("free", "lawful")
Progress: TypeAlias = Callable[[str, Run, int, int], None]  # problem, run, steps done, number of steps


@dataclass(frozen=True)
class Chosen:
    """A problem of the demonstration, the shipped model of its equation, and settings of its laws."""

    problem: str
    model: str
    settings: dict[str, Any]


# Affine laws, and a set in which most rows are nonlinear; true fields of each obey it.
HEAT = Chosen("heat-ic-mass", "heat-small", {})
BURGERS = Chosen("burgers-ic-mass-flux", "burgers-small", {"mass": "flux"})
CHOSEN = (HEAT, BURGERS)


@dataclass(frozen=True)
class Violation:
    """The violation of a law: the largest of all samples, and that of the median sample."""

    largest: float
    typical: float


@dataclass(frozen=True)
class LawFigures:
    """One law: the free run, the lawful run (both float32), and the lawful fields projected once more in float64."""

    name: str
    rows: int
    free: Violation
    lawful: Violation
    lawful64: Violation


@dataclass(frozen=True)
class Seconds:
    """The time of one run: network, projection, and all the rest, such as drawing noise and pulling back."""

    velocity: float
    projection: float
    other: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.velocity + self.projection + self.other

    @property
    def projection_share(self) -> float:
        """The share of the projection, in [0, 1]."""
        return self.projection / self.total if self.total > 0 else 0.0


@dataclass(frozen=True)
class DemoCase:
    """One problem: what was run and the results."""

    problem: str
    model: str
    weights: int
    shape: tuple[int, ...]
    tolerance: float
    laws: tuple[LawFigures, ...]
    statuses: tuple[str, ...]
    stationarity: float
    iterations: int  # of the last projection, the most of any sample
    free_seconds: Seconds
    lawful_seconds: Seconds

    @property
    def converged(self) -> int:
        """Number of samples that obey their laws to the tolerance."""
        return sum(status == "CONVERGED" for status in self.statuses)


@dataclass(frozen=True)
class Record:
    """What was run, on what, and the results of each problem."""

    count: int
    steps: int
    seed: int
    cases: tuple[DemoCase, ...]
    threads: int
    versions: dict[str, str]

    def to_json(self) -> str:
        """Write the record as indented JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"


@dataclass(frozen=True, eq=False)
class DemoScene:
    """One problem as pictures show it: grid points, and by run the fields and the violation of each law by each sample."""

    case: DemoCase
    x: Values  # (nx,)
    t: Values  # (nt,)
    fields: dict[Run, Values]  # (b, nx, nt), sampled in float32
    by_law: dict[Run, dict[str, Values]]  # (b,) each


@dataclass(frozen=True, eq=False)
class Evidence:
    """The record, the scene of each problem, and of heat the targets and the masses by run."""

    record: Record
    heat: DemoScene
    burgers: DemoScene
    initial: Values  # (b, nx): the target of the initial slice
    mass: dict[Run, Values]  # (b, nt)
    target_mass: Values  # (b,)


def collect(count: int = 16, steps: int = 20, seed: int = 0, progress: Progress | None = None) -> Evidence:
    """Sample the shipped models without and with laws from the same noise, and judge both.

    Raises ProjectionFailed if any sample misses its laws: a demonstration never shows a failed sample as a good one.
    """
    problems = [snapfm.problem(one.problem, **one.settings) for one in CHOSEN]
    given = [problem.params(count, _generator(seed)) for problem in problems]
    stages = [
        _Stage(problem, one.model, params, count, steps, seed) for one, problem, params in zip(CHOSEN, problems, given)
    ]
    for stage in stages:
        stage.rehearse()
    heat, burgers = (_scene(stage, progress) for stage in stages)
    record = Record(
        count=count,
        steps=steps,
        seed=seed,
        cases=(heat.case, burgers.case),
        threads=torch.get_num_threads(),
        versions={"python": platform.python_version()} | versions(("snapfm", "torch", "numpy")),
    )
    x, u0 = problems[0].grid.axis("x"), given[0]["u0"]
    mass = {run: _mass(x, torch.from_numpy(fields)) for run, fields in heat.fields.items()}
    return Evidence(record, heat, burgers, _array(u0), mass, _mass(x, u0[:, :, None])[:, 0])


class _Stage:
    """One problem, its model and projector, ready to be sampled with and without laws."""

    def __init__(
        self, problem: Problem, model: str, params: dict[str, Tensor], count: int, steps: int, seed: int
    ) -> None:
        self.problem, self.model, self.params = problem, model, params
        self.velocity = shipped(model)
        self.project = snapfm.Projector(problem.laws, problem.grid.shape, params, tolerance=TOLERANCE)
        self._settings: dict[str, Any] = {"count": count, "steps": steps, "seed": seed}

    def sampled(self, run: Run, progress: Progress | None = None) -> snapfm.Samples:
        """Sample from the noise that both runs share."""
        laws: dict[str, Any] = {"params": self.params} if run == "lawful" else {"shape": self.problem.grid.shape}
        following = None if progress is None else partial(progress, self.problem.name, run)
        projector = self.project if run == "lawful" else None
        return snapfm.sample(self.velocity, projector, progress=following, **self._settings, **laws)

    def rehearse(self) -> None:
        """Make both runs once, untimed: first calls load, trace and compile, which would count as the cost of the laws."""
        for run in RUNS:
            self.sampled(run)


def _scene(stage: _Stage, progress: Progress | None) -> DemoScene:
    problem, params, project = stage.problem, stage.params, stage.project
    free, lawful = stage.sampled("free", progress), stage.sampled("lawful", progress)
    certificate = lawful.projection
    assert certificate is not None  # only a run without projector has none
    # A second lawful run in float64 would at least double the run time. Only the last projection is repeated, on the same
    # fields; the page says so.
    lawful64 = project(lawful.u.double(), params).raise_for_status()
    rows = {law.name: [residuals(law, u, params) for u in (free.u, lawful.u, lawful64.u)] for law in problem.laws}
    case = DemoCase(
        problem=problem.name,
        model=stage.model,
        weights=sum(weight.numel() for weight in stage.velocity.parameters()),
        shape=tuple(problem.grid.shape),
        tolerance=TOLERANCE,
        laws=tuple(_figures(name, found) for name, found in rows.items()),
        statuses=tuple(Status(int(status)).name for status in certificate.status),
        stationarity=float(certificate.stationarity.max()),
        iterations=int(lawful64.iterations.max()),
        free_seconds=Seconds(**free.seconds),
        lawful_seconds=Seconds(**lawful.seconds),
    )
    return DemoScene(
        case,
        _array(problem.grid.axis("x").points()),
        _array(problem.grid.axis("t").points()),
        {"free": _array(free.u), "lawful": _array(lawful.u)},
        {
            run: {name: _array(found[place].amax(dim=1)) for name, found in rows.items()}
            for place, run in enumerate(RUNS)
        },
    )


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _figures(name: str, runs: list[Tensor]) -> LawFigures:
    worst = [rows.amax(dim=1) for rows in runs]  # one figure per sample
    judged = [Violation(largest=float(one.max()), typical=float(one.median())) for one in worst]
    return LawFigures(name, runs[0].shape[1], *judged)


def _mass(x: Axis, u: Tensor) -> Values:
    """Sum over space as the mass law does: without dx, and without the repeated end point of a periodic axis."""
    weights = x.weights("left" if x.periodic else "full") / x.spacing
    return _array(torch.einsum("x,bxt->bt", weights, u.double()))


def _array(tensor: Tensor) -> Values:
    return tensor.detach().double().cpu().numpy()
