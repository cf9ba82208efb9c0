"""Collecting the evidence: one model and one noise, sampled twice, free (no laws) and lawful (every step projected).

Uses the public API only, as a user would, and leaves the verdict to metrics. Draws and writes nothing.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

import snapfm
from snapfm.errors import Status
from snapfm.evidence.demo.record import Array, Evidence, LawFigures, Record, Run, Seconds, Violation
from snapfm.evidence.machine import versions
from snapfm.flow import shipped
from snapfm.grid import Axis
from snapfm.laws import Law, Params
from snapfm.metrics.residuals import residuals

PROBLEM = "heat-ic-mass"
MODEL = "heat-small"
TOLERANCE = 1e-10  # of the float64 work inside; far below what float32 fields can hold

Progress: TypeAlias = Callable[[Run, int, int], None]  # run, steps done, steps in all


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
        told = None if progress is None else partial(progress, run)
        projector = project if run == "lawful" else None
        return snapfm.sample(
            velocity, projector, count=count, steps=steps, generator=_generator(seed), progress=told, **laws
        )

    # Not timed: what first calls cost (loading, compiling, tracing) would otherwise count against the run they fall into.
    sampled("free", 1, None)
    for _ in range(2):
        nothing = torch.zeros(count, *problem.grid.shape)
        project(nothing, params)
        project.move(nothing, params)
    free, lawful = sampled("free", steps, progress), sampled("lawful", steps, progress)
    certificate = lawful.projection
    assert certificate is not None  # only a run without projector has none
    certificate.raise_for_status()
    # A second lawful run, in float64, would at least double the waiting. Only the last projection is repeated, on the
    # same fields; the page says so.
    lawful64 = project(lawful.u.double(), params)
    lawful64.raise_for_status()

    x, t, u0 = problem.grid.axis("x"), problem.grid.axis("t"), params["u0"]
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
        free_seconds=_seconds(free.seconds),
        lawful_seconds=_seconds(lawful.seconds),
        threads=torch.get_num_threads(),
        versions={"python": platform.python_version()} | versions(("snapfm", "torch", "numpy")),
    )
    arrays = {
        "x": x.points(),
        "t": t.points(),
        "free": free.u,
        "lawful": lawful.u,
        "initial": u0,
        "free_mass": _mass(x, free.u),
        "lawful_mass": _mass(x, lawful.u),
        "target_mass": _mass(x, u0[:, :, None])[:, 0],
    }
    return Evidence(record, **{name: _array(values) for name, values in arrays.items()})


def _generator(seed: int) -> torch.Generator:
    # A fresh one per use: equal seeds then mean equal noise, whatever was drawn before.
    return torch.Generator().manual_seed(seed)


def _figures(law: Law, runs: tuple[Tensor, ...], params: Params) -> LawFigures:
    rows = [residuals(law, u, params) for u in runs]
    worst = [one.amax(dim=1) for one in rows]  # one figure per sample
    judged = [Violation(largest=float(one.max()), typical=float(one.median())) for one in worst]
    return LawFigures(law.name, rows[0].shape[1], *judged)


def _mass(x: Axis, u: Tensor) -> Tensor:
    """Sum over space as the mass law does: without dx, the repeated end point of a periodic axis left out."""
    weights = x.weights("left" if x.periodic else "full") / x.spacing
    return torch.einsum("x,bxt->bt", weights, u.double())


def _seconds(seconds: Mapping[str, float]) -> Seconds:
    return Seconds(velocity=seconds["velocity"], projection=seconds.get("projection", 0.0))


def _array(tensor: Tensor) -> Array:
    return tensor.detach().double().cpu().numpy()
