"""What a flow step of Conditional costs next to one of PCFM, with the plain shipped networks, by turns in one run.

`ratio` compares whole runs, networks included; `projection_ratio` leaves them out. Medians over rounds; each round runs both
samplers, on the same noise, so that whatever the machine does meanwhile meets both.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import torch

import snapfm
from snapfm.sampling import PCFM, Conditional
from snapfm_bench.flow import shipped

SAMPLES, STEPS, ROUNDS, WARM_STEPS = 32, 20, 5, 3
MODELS = {
    "heat-ic-mass": "heat-plain",
    "heat-ic-mass-pde-energy": "heat-plain",
    "burgers-bc-mass": "burgers-plain",
    "burgers-ic-mass-flux": "burgers-plain",
    "reaction-diffusion-ic-mass": "reaction-diffusion-plain",
    "navier-stokes-ic-mass-enstrophy": "navier-stokes-plain",
}
SAMPLERS = {"PCFM": PCFM(), "Conditional": Conditional()}


def run() -> dict[str, Any]:
    """Time both samplers on all problems."""
    rows = [_row(name, model) for name, model in MODELS.items()]
    return {"samples": SAMPLES, "steps": STEPS, "rounds": ROUNDS, "threads": torch.get_num_threads(), "rows": rows}


def _row(name: str, model: str) -> dict[str, Any]:
    problem, velocity = snapfm.problem(name), shipped(model)
    params = problem.params(SAMPLES, torch.Generator().manual_seed(0))
    project = snapfm.Projector(problem.laws, problem.grid.shape, params)

    def seconds(sampler: Any, steps: int) -> tuple[float, float, int]:
        random = torch.Generator().manual_seed(1)
        began = time.perf_counter()
        out = snapfm.sample(velocity, project, params, SAMPLES, steps, random, sampler=sampler, on_failure="keep")
        return time.perf_counter() - began, out.seconds["projection"], int((~out.projection.converged).sum())

    for sampler in SAMPLERS.values():
        seconds(sampler, WARM_STEPS)  # compiles, and takes memory
    load = os.getloadavg()[0]
    rounds = [{key: seconds(sampler, STEPS) for key, sampler in SAMPLERS.items()} for _ in range(ROUNDS)]
    found: dict[str, Any] = {"problem": name, "load": load}
    for place, word in enumerate(("ratio", "projection_ratio")):
        found[word] = statistics.median(one["Conditional"][place] / one["PCFM"][place] for one in rounds)
    for key in SAMPLERS:
        found[key] = {
            "ms_a_step": 1e3 * statistics.median(one[key][0] for one in rounds) / STEPS,
            "projection_ms_a_step": 1e3 * statistics.median(one[key][1] for one in rounds) / STEPS,
            "unconverged": max(one[key][2] for one in rounds),
        }
    print(f"{name:34} {found['ratio']:.2f} with the network, {found['projection_ratio']:.2f} without", flush=True)
    return found
