"""The data of a demonstration: one model and one noise, sampled without laws (free) and with every step projected (lawful).

`collect` uses the public API only, as a user would, and judges with metrics. It draws and writes nothing. The figures are kept
in evidence.json; the arrays are what the pictures show.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Literal, TypeAlias

import torch
from torch import Tensor

import snapfm
from snapfm.arrays import Values
from snapfm.errors import Status
from snapfm.evidence.machine import versions
from snapfm.flow import shipped
from snapfm.grid import Axis
from snapfm.laws import Law, Params
from snapfm.metrics.scores import residuals

PROBLEM = "heat-ic-mass"
MODEL = "heat-small"
TOLERANCE = 1e-10  # of the float64 projection; far below what float32 fields can hold

Run = Literal["free", "lawful"]
RUNS: tuple[Run, Run] = ("free", "lawful")
Progress: TypeAlias = Callable[[Run, int, int], None]  # run, steps done, number of steps


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
    """The time of one run: network and projection."""

    velocity: float
    projection: float

    @property
    def total(self) -> float:
        """Both parts together."""
        return self.velocity + self.projection

    @property
    def projection_share(self) -> float:
        """The share of the projection, in [0, 1]."""
        return self.projection / self.total if self.total > 0 else 0.0


@dataclass(frozen=True)
class Record:
    """What was run, on what, and the results."""

    problem: str
    model: str
    weights: int
    shape: tuple[int, ...]
    count: int
    steps: int
    seed: int
    tolerance: float
    laws: tuple[LawFigures, ...]
    statuses: tuple[str, ...]
    stationarity: float
    free_seconds: Seconds
    lawful_seconds: Seconds
    threads: int
    versions: dict[str, str]

    @property
    def converged(self) -> int:
        """Number of samples that obey their laws to the tolerance."""
        return sum(status == "CONVERGED" for status in self.statuses)

    def to_json(self) -> str:
        """Write the record as indented JSON."""
        return json.dumps(asdict(self), indent=2) + "\n"


@dataclass(frozen=True, eq=False)
class Evidence:
    """The record, and by run the fields and their masses, with the targets of both laws."""

    record: Record
    x: Values  # (nx,)
    t: Values  # (nt,)
    fields: dict[Run, Values]  # (b, nx, nt), sampled in float32
    initial: Values  # (b, nx): the target of the initial slice
    mass: dict[Run, Values]  # (b, nt)
    target_mass: Values  # (b,)


def collect(count: int = 16, steps: int = 20, seed: int = 0, progress: Progress | None = None) -> Evidence:
    """Sample the shipped heat model without and with laws from the same noise, and judge both.

    Raises ProjectionFailed if any sample misses its laws: a demonstration never shows a failed sample as a good one.
    """
    problem = snapfm.problem(PROBLEM)
    velocity = shipped(MODEL)
    params = problem.params(count, _generator(seed))
    project = snapfm.Projector(problem.laws, shape=problem.grid.shape, params=params, tolerance=TOLERANCE)

    def sampled(run: Run, steps: int, progress: Progress | None) -> snapfm.Samples:
        laws = {"params": params, "dtype": torch.float32} if run == "lawful" else {"shape": problem.grid.shape}
        following = None if progress is None else partial(progress, run)
        projector = project if run == "lawful" else None
        return snapfm.sample(
            velocity, projector, count=count, steps=steps, generator=_generator(seed), progress=following, **laws
        )

    # Not timed: first calls load, compile and trace, which would count against the run they fall into.
    sampled("free", 1, None)
    for _ in range(2):
        nothing = torch.zeros(count, *problem.grid.shape)
        project(nothing, params)
        project.move(nothing, params)
    free, lawful = sampled("free", steps, progress), sampled("lawful", steps, progress)
    certificate = lawful.projection
    assert certificate is not None  # only a run without projector has none
    certificate.raise_for_status()
    # A second lawful run in float64 would at least double the run time. Only the last projection is repeated, on the same
    # fields; the page says so.
    lawful64 = project(lawful.u.double(), params)
    lawful64.raise_for_status()

    x, t, u0 = problem.grid.axis("x"), problem.grid.axis("t"), params["u0"]
    seconds = [Seconds(one.seconds["velocity"], one.seconds.get("projection", 0.0)) for one in (free, lawful)]
    record = Record(
        problem=problem.name,
        model=MODEL,
        weights=sum(weight.numel() for weight in velocity.parameters()),
        shape=tuple(problem.grid.shape),
        count=count,
        steps=steps,
        seed=seed,
        tolerance=TOLERANCE,
        laws=tuple(_figures(law, (free.u, lawful.u, lawful64.u), params) for law in problem.laws),
        statuses=tuple(Status(int(status)).name for status in certificate.status),
        stationarity=float(certificate.stationarity.max()),
        free_seconds=seconds[0],
        lawful_seconds=seconds[1],
        threads=torch.get_num_threads(),
        versions={"python": platform.python_version()} | versions(("snapfm", "torch", "numpy")),
    )
    return Evidence(
        record,
        _array(x.points()),
        _array(t.points()),
        {"free": _array(free.u), "lawful": _array(lawful.u)},
        _array(u0),
        {"free": _mass(x, free.u), "lawful": _mass(x, lawful.u)},
        _mass(x, u0[:, :, None])[:, 0],
    )


def _generator(seed: int) -> torch.Generator:
    # A new one per use: equal seeds then mean equal noise, whatever was drawn before.
    return torch.Generator().manual_seed(seed)


def _figures(law: Law, runs: tuple[Tensor, ...], params: Params) -> LawFigures:
    rows = [residuals(law, u, params) for u in runs]
    worst = [one.amax(dim=1) for one in rows]  # one figure per sample
    judged = [Violation(largest=float(one.max()), typical=float(one.median())) for one in worst]
    return LawFigures(law.name, rows[0].shape[1], *judged)


def _mass(x: Axis, u: Tensor) -> Values:
    """Sum over space as the mass law does: without dx, and without the repeated end point of a periodic axis."""
    weights = x.weights("left" if x.periodic else "full") / x.spacing
    return _array(torch.einsum("x,bxt->bt", weights, u.double()))


def _array(tensor: Tensor) -> Values:
    return tensor.detach().double().cpu().numpy()
