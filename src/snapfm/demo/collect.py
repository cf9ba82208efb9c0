"""Collecting the evidence: one model and one noise, sampled twice, free (no laws) and lawful (every step projected).

Uses the public API only, as a user would, and leaves the verdict to metrics. Draws and writes nothing.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import TypeAlias

import torch
from torch import Tensor, nn

import snapfm
from snapfm.demo.evidence import Array, Evidence
from snapfm.demo.record import LawFigures, Record, Seconds, Violation
from snapfm.errors import Status
from snapfm.flow import shipped
from snapfm.grid import Axis
from snapfm.laws import Law, Params
from snapfm.metrics.residuals import residuals

PROBLEM = "heat-ic-mass"
MODEL = "heat-small"
TOLERANCE = 1e-10  # of the float64 work inside; far below what float32 fields can hold

_PACKAGES = ("snapfm", "torch", "numpy")

Progress: TypeAlias = Callable[[str, int, int], None]  # progress("free" or "lawful", done, total)


def collect(count: int = 16, steps: int = 20, seed: int = 0, progress: Progress | None = None) -> Evidence:
    """Sample the shipped heat model without and with laws from the same noise, and judge both.

    Raises ProjectionFailed if any sample misses its laws: a demonstration never shows a failed sample as a good one.
    """
    problem = snapfm.problem(PROBLEM)
    velocity = shipped(MODEL)
    params = problem.params(count, _generator(seed))
    project = snapfm.Projector(problem.laws, shape=problem.grid.shape, params=params, tolerance=TOLERANCE)

    def plain(steps: int, progress: Progress | None) -> snapfm.Samples:
        return snapfm.sample(
            velocity,
            None,
            count=count,
            steps=steps,
            generator=_generator(seed),
            shape=problem.grid.shape,
            progress=_stage(progress, "free"),
        )

    # Not timed: what first calls cost (loading, compiling, tracing) would otherwise count against the run they fall into.
    plain(1, None)
    for _ in range(2):
        nothing = torch.zeros(count, *problem.grid.shape)
        project(nothing, params)
        project.move(nothing, params)
    free = plain(steps, progress)
    lawful = snapfm.sample(
        velocity,
        project,
        params=params,
        count=count,
        steps=steps,
        generator=_generator(seed),
        dtype=torch.float32,
        progress=_stage(progress, "lawful"),
    )
    certificate = lawful.projection
    assert certificate is not None  # only a run without projector has none
    certificate.raise_for_status()
    # A second lawful run, in float64, would at least double the waiting. Only the last projection is repeated, on the
    # same fields; the page says so.
    lawful64 = project(lawful.u.double(), params)
    lawful64.raise_for_status()

    x, t = problem.grid.axis("x"), problem.grid.axis("t")
    u0 = params["u0"]
    record = Record(
        problem=problem.name,
        model=MODEL,
        weights=_weights(velocity),
        shape=tuple(problem.grid.shape),
        count=count,
        steps=steps,
        seed=seed,
        tolerance=TOLERANCE,
        laws=tuple(_figures(law, free.u, lawful.u, lawful64.u, params) for law in problem.laws),
        statuses=tuple(Status(int(status)).name for status in certificate.status),
        stationarity=float(certificate.stationarity.max()),
        free_seconds=_seconds(free.seconds),
        lawful_seconds=_seconds(lawful.seconds),
        threads=torch.get_num_threads(),
        versions={"python": platform.python_version()} | {name: metadata.version(name) for name in _PACKAGES},
    )
    return Evidence(
        record=record,
        x=_array(x.points()),
        t=_array(t.points()),
        free=_array(free.u),
        lawful=_array(lawful.u),
        initial=_array(u0),
        free_mass=_array(_mass(x, free.u)),
        lawful_mass=_array(_mass(x, lawful.u)),
        target_mass=_array(_mass(x, u0[:, :, None])[:, 0]),
    )


def _generator(seed: int) -> torch.Generator:
    # A fresh one per use: equal seeds then mean equal noise, whatever was drawn before.
    return torch.Generator().manual_seed(seed)


def _stage(progress: Progress | None, stage: str) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda done, total: progress(stage, done, total)


def _figures(law: Law, free: Tensor, lawful: Tensor, lawful64: Tensor, params: Params) -> LawFigures:
    before, after, after64 = (residuals(law, u, params) for u in (free, lawful, lawful64))
    return LawFigures(law.name, before.shape[1], _violation(before), _violation(after), _violation(after64))


def _violation(rows: Tensor) -> Violation:
    worst = rows.amax(dim=1)  # one figure per sample
    return Violation(largest=float(worst.max()), typical=float(worst.median()))


def _mass(x: Axis, u: Tensor) -> Tensor:
    """Sum over space as the mass law does: without dx, the repeated end point of a periodic axis left out."""
    weights = x.weights("left" if x.periodic else "full") / x.spacing
    return torch.einsum("x,bxt->bt", weights, u.double())


def _seconds(seconds: Mapping[str, float]) -> Seconds:
    return Seconds(velocity=seconds["velocity"], projection=seconds.get("projection", 0.0))


def _weights(velocity: nn.Module) -> int:
    return sum(weight.numel() for weight in velocity.parameters())


def _array(tensor: Tensor) -> Array:
    return tensor.detach().double().cpu().numpy()
