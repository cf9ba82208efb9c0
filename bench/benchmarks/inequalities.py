"""The two tasks of I-PCFM: Burgers with Oleinik's entropy condition, and reaction–diffusion within 0 and 1.

A hundred fields are sampled with the shipped models. Joint feasibility is the share of fields that break no row of any law by
more than 1e-3, judged by the laws themselves; certified are those whose projection is proven lawful to 1e-8 and nearest. White
noise, projected without a flow, shows what the projector does from far. True fields are judged too: simulated fields obey the
entropy condition to first order in dx alone, and with half the convexity exactly (math.md, eq. oleinik).
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from torch import Tensor

import snapfm
from benchmarks.patience import Patience, TooSlow
from benchmarks.record import statuses
from snapfm.metrics.scores import residuals
from snapfm.sampling import PCFM, Sampler
from snapfm_bench.flow import shipped
from snapfm_bench.problems import Problem
from snapfm_bench.published import INEQUALITIES

# Problem, settings, model
TASKS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("burgers-ic-mass-entropy", {}, "burgers-small"),
    ("burgers-ic-mass-entropy", {"convexity": 0.5}, "burgers-small"),
    ("reaction-diffusion-ic-mass-bounds", {}, "reaction-diffusion-small"),
)
SAMPLERS: dict[str, Sampler] = {"PCFM": PCFM()}
SAMPLES, STEPS, TOLERANCE = 100, 20, 1e-8
NOISE_SAMPLES = 32
FEASIBLE = 1e-3  # the published tolerance of joint feasibility
PATIENCE = 1800.0  # seconds after which a flow is stopped and recorded as not finished
SEED = 0


def run(samples: int = SAMPLES, steps: int = STEPS, noise_samples: int = NOISE_SAMPLES) -> dict[str, Any]:
    """Sample, project and judge all tasks."""
    return {
        "samples": samples,
        "steps": steps,
        "tolerance": TOLERANCE,
        "feasible_at": FEASIBLE,
        "seed": SEED,
        "rows": [row for task in TASKS for row in _task(*task, samples, steps, noise_samples)],
    }


def _task(
    name: str, settings: dict[str, Any], model: str, samples: int, steps: int, noise_samples: int
) -> list[dict[str, Any]]:
    problem = snapfm.problem(name, **settings)
    truth, params = problem.draw_truth(SEED, 0, max(samples, noise_samples))
    began = perf_counter()
    project = snapfm.Projector(problem.laws, problem.grid.shape, _first(params, samples), TOLERANCE)
    prepared = perf_counter() - began
    same = {"problem": name, "settings": settings, "published": INEQUALITIES[name]}
    rows: list[dict[str, Any]] = [
        {"method": "true fields", "state": "DONE", **_judged(problem, truth[:samples], _first(params, samples))}
    ]
    for title, sampler in SAMPLERS.items():
        found = _flow(problem, project, shipped(model), sampler, _first(params, samples), samples, steps)
        rows.append({"method": title, "model": model, "prepare_seconds": prepared, **found})
    noise = torch.randn(noise_samples, *problem.grid.shape, generator=_seeded(2), dtype=torch.float64)
    began = perf_counter()
    projection = project(noise, _first(params, noise_samples))
    spent = (perf_counter() - began) / noise_samples
    rows.append(
        {
            "method": "projection of white noise",
            "state": "DONE",
            "seconds_a_sample": spent,
            "statuses": statuses(projection.status),
            **_judged(problem, projection.u, _first(params, noise_samples), projection.converged),
        }
    )
    return [{**same, **row} for row in rows]


def _flow(
    problem: Problem,
    project: snapfm.Projector,
    velocity: Any,
    sampler: Sampler,
    params: dict[str, Tensor],
    samples: int,
    steps: int,
) -> dict[str, Any]:
    progress = Patience(PATIENCE)
    try:
        out = snapfm.sample(
            velocity, project, params, samples, steps, _seeded(1), sampler=sampler, dtype=torch.float64, on_failure="keep",
            progress=progress,
        )  # fmt: skip
    except TooSlow:
        return {"state": "DNF", "steps_done": progress.done, "seconds": progress.spent()}
    assert out.projection is not None
    return {
        "state": "DONE",
        "seconds_a_sample": progress.spent() / samples,
        "network_seconds": out.seconds["velocity"],
        "projection_seconds": out.seconds["projection"],
        "statuses": statuses(out.projection.status),
        **_judged(problem, out.u, params, out.projection.converged),
    }


def _judged(problem: Problem, u: Tensor, params: dict[str, Tensor], certified: Tensor | None = None) -> dict[str, Any]:
    """Evaluate fields with the laws themselves; a certificate that they contradict does not count."""
    worst = torch.stack([residuals(law, u, params).amax(1) for law in problem.laws])  # (laws, b)
    found: dict[str, Any] = {
        "feasible": float((worst.amax(0) <= FEASIBLE).double().mean()),
        "violation_worst": {law.name: float(row.max()) for law, row in zip(problem.laws, worst)},
    }
    if certified is not None:
        found["certified"] = float((certified & (worst.amax(0) <= TOLERANCE)).double().mean())
    return found


def _first(params: dict[str, Tensor], count: int) -> dict[str, Tensor]:
    return {name: value[:count] for name, value in params.items()}


def _seeded(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(SEED + number)
