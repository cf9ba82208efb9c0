"""How shipped models behave under constrained sampling as the number of flow steps grows: range and sample quality.

Laws are those the data obey, so that samples can be scored against simulated truth under the same conditions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import snapfm
from snapfm.metrics.moments import mmse, moments, smse
from snapfm_bench.flow import shipped, shipped_names

STEPS = (10, 20, 50, 100)
SAMPLES = 32
TRUTH = 256

# Per model: problem and its settings. To save time, Navier-Stokes is simulated on fewer points than by default, and its
# network, which takes most of the time of the whole benchmark, is not asked for 100 steps.
FEW_STEPS = {"navier-stokes-ic-mass": (10, 20, 50)}
CASES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "heat-small": [("heat-ic-mass", {})],
    "burgers-small": [
        ("burgers-ic-mass-flux", {"mass": "flux"}),
        ("burgers-bc-mass", {"mass": "flux"}),
    ],
    "reaction-diffusion-small": [("reaction-diffusion-ic-mass", {"inner": True})],
    "navier-stokes-small": [
        ("navier-stokes-ic-mass", {"resolution": 32}),
        ("navier-stokes-ic-mass", {"resolution": 32, "state": "random"}),
    ],
}


def run() -> dict[str, Any]:
    names = [name for name in CASES if name in shipped_names()]
    rows = [row for name in names for problem, settings in CASES[name] for row in _rows(name, problem, settings)]
    return {"samples": SAMPLES, "truth": TRUTH, "rows": rows}


def _rows(model: str, name: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    problem, velocity = snapfm.problem(name, **settings), shipped(model)
    truth, params = problem.truth(TRUTH, torch.Generator().manual_seed(1))
    data = problem.simulate(TRUTH, torch.Generator().manual_seed(2))
    asked = {key: value[:SAMPLES] for key, value in params.items()}
    project = snapfm.Projector(problem.laws, problem.grid.shape, asked)
    rows = []
    for steps in FEW_STEPS.get(name, STEPS):
        run = {"count": SAMPLES, "steps": steps, "on_failure": "keep"}
        free = snapfm.sample(velocity, None, generator=_noise(), shape=problem.grid.shape, **run)
        lawful = snapfm.sample(velocity, project, asked, generator=_noise(), **run)
        assert lawful.projection is not None
        rows.append(
            {
                "model": model,
                "problem": name,
                "settings": settings,
                "steps": steps,
                "without_laws": _score(free.u, data),
                "with_laws": _score(lawful.u, truth),
                # The same, for answers that need no model: the true mean every time, and as many true fields.
                "mean_without_laws": _score(data.mean(0).expand(SAMPLES, *data.shape[1:]), data),
                "mean_with_laws": _score(truth.mean(0).expand(SAMPLES, *truth.shape[1:]), truth),
                "true_with_laws": _score(truth[:SAMPLES], truth),
                "unconverged": int((~lawful.projection.converged).sum()),
                "velocity_seconds": lawful.seconds["velocity"],
                "projection_seconds": lawful.seconds["projection"],
            }
        )
    return rows


def _noise() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def _score(fields: Tensor, truth: Tensor) -> dict[str, float]:
    found, true = moments(fields), moments(truth)
    return {
        "mmse": mmse(found, true),
        "smse": smse(found, true),
        "smallest": float(fields.min()),
        "largest": float(fields.max()),
        # Past the range of the truth, 0 for samples within it: what an unstable sampler shows first.
        "beyond_truth": max(0.0, float(fields.max() - truth.max()), float(truth.min() - fields.min())),
    }
