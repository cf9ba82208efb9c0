"""A whole flow through Burgers' equation with a flux row at every step: 20 steps, 32 samples, projected from white noise on.

With the shipped network, and with a velocity that stands still, so that the first projection gets plain white noise and all
later ones a share of it. Asked for: seconds of projection below a minute. A flow that takes far longer is stopped.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch
from torch import Tensor

import snapfm
from benchmarks.patience import Patience, TooSlow
from benchmarks.record import statuses
from snapfm_bench.flow import shipped

PROBLEM = "burgers-ic-mass-flux"
SAMPLES, STEPS, TOLERANCE = 32, 20, 1e-5  # the tolerance of float32 fields, as in `cost`
ASKED = 60.0  # seconds of projection that a flow may take
PATIENCE = 600.0  # seconds after which a flow is stopped and recorded as not finished


def run(steps: int = STEPS, samples: int = SAMPLES, points: int | None = None) -> dict[str, Any]:
    """Draw with both velocities; `points` replaces the problem's own 101 along space and time."""
    size = {} if points is None else {"nx": points, "nt": points}
    problem = snapfm.problem(PROBLEM, flux_steps=None, **size)
    params = problem.params(samples, torch.Generator().manual_seed(0))
    began = perf_counter()
    project = snapfm.Projector(problem.laws, problem.grid.shape, params, TOLERANCE)
    prepared = perf_counter() - began
    velocities = {"standing still": _still} | ({"burgers-small": shipped("burgers-small")} if points is None else {})
    return {
        "problem": PROBLEM,
        "samples": samples,
        "steps": steps,
        "tolerance": TOLERANCE,
        "prepare_seconds": prepared,
        "asked_seconds": ASKED,
        "rows": [{"velocity": name, **_flow(one, project, params, steps, samples)} for name, one in velocities.items()],
    }


def _flow(
    velocity: Any, project: snapfm.Projector, params: dict[str, Tensor], steps: int, samples: int
) -> dict[str, Any]:
    progress = Patience(PATIENCE)
    generator = torch.Generator().manual_seed(1)
    try:
        out = snapfm.sample(
            velocity, project, params, samples, steps, generator, on_failure="keep", progress=progress
        )  # fmt: skip
    except TooSlow:
        return {"state": "DNF", "steps_done": progress.done, "seconds": progress.spent(), "fast_enough": False}
    assert out.projection is not None
    spent = out.seconds["projection"]
    return {
        "state": "DONE",
        "projection_seconds": spent,
        "network_seconds": out.seconds["velocity"],
        "fast_enough": spent < ASKED,
        "statuses": statuses(out.projection.status),
        "violation_worst": float(out.projection.violation.max()),
    }


def _still(u: Tensor, tau: object) -> Tensor:
    return torch.zeros_like(u)
