"""How the cost of a projection grows with the batch and with the grid, and how much memory it takes.

Samples: 1 to 1024 on every nonlinear problem. Grid: Burgers with the flux form of its laws, n from 10⁴ to 10⁶, one sample per
call. Memory: the peak above the input in units of the batch in float64, for 32 samples (Navier–Stokes also 2), by
resident size, each in a process of its own.
"""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import torch

import snapfm
from benchmarks.record import median_seconds
from snapfm_bench.machine import forget_peak, peak_bytes
from snapfm_bench.problems import Problem
from snapfm_bench.suites.projection.report.loaded import slope

PROBLEMS = (
    "heat-ic-mass",
    "heat-ic-mass-pde-energy",
    "burgers-bc-mass",
    "burgers-ic-mass-flux",
    "reaction-diffusion-ic-mass",
    "navier-stokes-ic-mass-enstrophy",
)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
GRIDS = (101, 201, 401, 1001)  # nx = nt
NEAR = 0.01  # noise added to fields that obey


def run() -> dict[str, Any]:
    samples = [_samples(name) for name in PROBLEMS]
    grid = [_grid(size) for size in GRIDS]
    return {
        "samples": samples,
        "samples_exponent_8_to_1024": {
            row["problem"]: slope(list(zip(row["batch"][3:], row["seconds"][3:]))) for row in samples
        },
        "grid": grid,
        "grid_exponent": slope([(row["unknowns"], row["seconds"]) for row in grid]),
        "memory": [_apart(name, count) for name in PROBLEMS for count in _counts(name)],
    }


def _samples(name: str) -> dict[str, Any]:
    project, params, near = nearby(snapfm.problem(name), 64)
    seconds = []
    for count in BATCHES:
        repeats = -(-count // 64)
        u_hat = near.repeat(repeats, *[1] * (near.dim() - 1))[:count]
        given = {key: value.repeat(repeats, *[1] * (value.dim() - 1))[:count] for key, value in params.items()}
        seconds.append(median_seconds(lambda u_hat=u_hat, given=given: project(u_hat, given)))
    return {"problem": name, "batch": list(BATCHES), "seconds": seconds}


def _grid(size: int) -> dict[str, Any]:
    problem = snapfm.problem("burgers-ic-mass-flux", nx=size, nt=size, flux_steps=5)
    began = time.perf_counter()
    project, params, near = nearby(problem, 1)
    cold = time.perf_counter() - began
    result = project(near, params)
    return {
        "unknowns": size * size,
        "rows": project.structure.rows,
        "cold_seconds": cold,
        "seconds": median_seconds(lambda: project(near, params)),
        "converged": bool(result.converged.all()),
    }


def nearby(problem: Problem, count: int) -> tuple[snapfm.Projector, dict[str, torch.Tensor], torch.Tensor]:
    """Give a projector, params and fields that obey but for a little noise."""
    generator = torch.Generator().manual_seed(0)
    fields, params = problem.truth(count, generator)
    project = snapfm.Projector(problem.laws, problem.grid.shape, params)
    lawful = project(fields, params).u
    return project, params, lawful + NEAR * torch.randn(lawful.shape, generator=generator, dtype=torch.float64)


def _counts(name: str) -> tuple[int, ...]:
    return (2, 32) if name.startswith("navier") else (32,)


def _apart(name: str, count: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_memory, (name, count))


def _memory(name: str, count: int) -> dict[str, Any]:
    """Measure in a fresh process; one sample first, so that compiled code and torch's own pools are not counted."""
    project, params, near = nearby(snapfm.problem(name), count)
    project(near[:1], {key: value[:1] for key, value in params.items()})
    forget_peak()
    before = peak_bytes() or 0
    project(near, params)
    batch = near.numel() * 8
    return {"problem": name, "samples": count, "peak_over_batch": ((peak_bytes() or 0) - before) / batch}
