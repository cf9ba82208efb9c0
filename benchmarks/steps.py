"""How the shipped heat model behaves under constrained sampling as the number of flow steps grows: largest |u|."""

from __future__ import annotations

from typing import Any

import torch

import snapfm
from snapfm.flow import shipped

STEPS = (10, 12, 20, 30, 50, 100)
SAMPLES = 16


def run() -> dict[str, Any]:
    problem, velocity = snapfm.problem("heat-ic-mass"), shipped("heat-small")
    params = problem.params(SAMPLES, torch.Generator().manual_seed(0))
    project = snapfm.Projector(problem.laws, problem.grid.shape, params)
    rows = []
    for steps in STEPS:
        run = {"count": SAMPLES, "steps": steps, "shape": problem.grid.shape}
        free = snapfm.sample(velocity, None, generator=torch.Generator().manual_seed(0), **run)
        lawful = snapfm.sample(velocity, project, params, generator=torch.Generator().manual_seed(0), **run)
        sizes = lawful.u.abs().flatten(1).amax(1)
        rows.append(
            {
                "steps": steps,
                "largest_without_laws": float(free.u.abs().max()),
                "largest_with_laws": float(sizes.max()),
                "samples_above_1.1": int((sizes > 1.1).sum()),
                "velocity_seconds": lawful.seconds["velocity"],
                "projection_seconds": lawful.seconds["projection"],
            }
        )
    return {"samples": SAMPLES, "rows": rows}
