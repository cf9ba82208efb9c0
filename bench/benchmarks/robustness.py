"""What becomes of 500 samples of each kind of input on every problem: statuses, iterations, worst violation and gap.

Raw model output is that of the shipped network of the equation, after a few plain flow steps; where none is shipped the
kind is left out and said so.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import snapfm
from benchmarks.record import statuses
from snapfm_bench.problems import Problem, names

SAMPLES = 500
DISTINCT = 50  # true fields among them, each with noise of its own ten times: simulating 500 flows would take minutes
STEPS = 10  # of the flow that makes raw model output

# Beside every problem as it is: the forms whose laws simulated fields obey.
VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("burgers-bc-mass", {"mass": "flux"}),
    ("burgers-ic-mass-flux", {"mass": "flux"}),
    ("reaction-diffusion-ic-mass", {"inner": True}),
)


def run() -> dict[str, Any]:
    return {
        "samples": SAMPLES,
        "distinct_fields": DISTINCT,
        "tolerance": 1e-8,
        "rows": [
            row
            for name, settings in (*((name, {}) for name in names()), *VARIANTS)
            for row in problem_rows(name, settings)
        ],
    }


def problem_rows(
    name: str, settings: dict[str, Any], samples: int = SAMPLES, distinct: int = DISTINCT
) -> list[dict[str, Any]]:
    """Project every kind of input of one problem: one row each."""
    problem, generator = snapfm.problem(name, **settings), torch.Generator().manual_seed(0)
    label = " ".join([name, *(f"{key}={value}" for key, value in settings.items())])
    some, given = problem.truth(distinct, generator)
    fields = some.repeat(samples // distinct, *[1] * (some.dim() - 1))
    params = {key: value.repeat(samples // distinct, *[1] * (value.dim() - 1)) for key, value in given.items()}
    project = snapfm.Projector(problem.laws, problem.grid.shape, params)
    noise = torch.randn(fields.shape, generator=generator, dtype=torch.float64)
    inputs: dict[str, Tensor | None] = {
        "truth + 0.1 noise": fields + 0.1 * noise,
        "raw model output": _generated(problem, samples),
        "noise 1": noise,
        "noise 3": 3.0 * noise,
        "constant": torch.full_like(noise, 0.7),
        "zero": torch.zeros_like(noise),
    }
    rows = []
    for kind, u_hat in inputs.items():
        if u_hat is None:
            rows.append({"problem": label, "input": kind, "statuses": "ABSENT: no model of this equation is shipped"})
            continue
        result = project(u_hat, params)
        rows.append(
            {
                "problem": label,
                "input": kind,
                "distinct": distinct_inputs(u_hat, params),
                "statuses": statuses(result.status),
                "iterations_median": int(result.iterations.median()),
                "iterations_worst": int(result.iterations.max()),
                "violation_worst": float(result.violation.max()),
                "gap_worst": float(result.stationarity.max()),
            }
        )
    return rows


def distinct_inputs(u_hat: Tensor, params: dict[str, Tensor]) -> int:
    """Count the samples that differ in their field or in what the laws read."""
    parts = [u_hat, *(params[name] for name in sorted(params))]
    return len({b"".join(part[i].numpy().tobytes() for part in parts) for i in range(len(u_hat))})


def _generated(problem: Problem, samples: int) -> Tensor | None:
    from snapfm_bench.flow import shipped, shipped_names

    name = f"{problem.equation}-small"
    if name not in shipped_names():
        return None
    generator, shape = torch.Generator().manual_seed(1), problem.grid.shape
    return snapfm.sample(shipped(name), None, count=samples, steps=STEPS, generator=generator, shape=shape).u.double()
