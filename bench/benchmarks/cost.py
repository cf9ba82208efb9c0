"""What hard constraints cost next to the network: constrained sampling as a multiple of its network's time, from one run each.

All six problems in the release's form, 32 samples, tolerance 1e-5, float32. With the small shipped networks over the whole walk;
with a network of the paper's size (its first weights, which cost as much as trained ones) over a shorter one: its answer is
computed, timed and dropped, and the walk follows the small network, whose time is not counted, so that projections see what a
trained model gives. `ratio` is (network + projection) / network.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from torch import Tensor, nn

import snapfm
from snapfm_bench.flow import FNOVelocity, evaluator, preset, shipped

SAMPLES, TOLERANCE = 32, 1e-5
STEPS, PAPER_STEPS, WARM_STEPS = 100, 20, 3
MODELS = {
    "heat-ic-mass": "heat-small",
    "heat-ic-mass-pde-energy": "heat-small",
    "burgers-bc-mass": "burgers-small",
    "burgers-ic-mass-flux": "burgers-small",
    "reaction-diffusion-ic-mass": "reaction-diffusion-small",
    "navier-stokes-ic-mass-enstrophy": "navier-stokes-small",
}


def run() -> dict[str, Any]:
    rows = [row for name, model in MODELS.items() for row in _rows(name, model)]
    return {"samples": SAMPLES, "tolerance": TOLERANCE, "threads": torch.get_num_threads(), "rows": rows}


def _rows(name: str, model: str) -> list[dict[str, Any]]:
    problem = snapfm.problem(name)
    params = problem.params(SAMPLES, torch.Generator().manual_seed(0))
    project = snapfm.Projector(problem.laws, problem.grid.shape, params, TOLERANCE)
    small = shipped(model)
    paper = Paced(small, FNOVelocity(preset("paper", problem.grid.shape)).eval())
    return [
        {"problem": name, "network": size, **_walk(velocity, project, params, steps)}
        for size, velocity, steps in (("small", small, STEPS), ("paper", paper, PAPER_STEPS))
    ]


def _walk(velocity: Any, project: snapfm.Projector, params: dict[str, Tensor], steps: int) -> dict[str, Any]:
    def walked(count: int) -> Any:
        generator = torch.Generator().manual_seed(1)
        return snapfm.sample(velocity, project, params, SAMPLES, count, generator, on_failure="keep")

    walked(WARM_STEPS)  # compiles, and takes memory
    if isinstance(velocity, Paced):
        velocity.seconds = 0.0
    load = os.getloadavg()[0]
    out = walked(steps)
    network = velocity.seconds if isinstance(velocity, Paced) else out.seconds["velocity"]
    projection = out.seconds["projection"]
    return {
        "steps": steps,
        "load": load,
        "network_ms_a_step": 1e3 * network / steps,
        "projection_ms_a_step": 1e3 * projection / steps,
        "ratio": (network + projection) / network,
        "unconverged": int((~out.projection.converged).sum()),
    }


class Paced(nn.Module):
    """A velocity that follows one network and takes the time of another, which it counts."""

    def __init__(self, leads: nn.Module, paces: nn.Module) -> None:
        super().__init__()
        self.leads, self.paces = evaluator(leads), evaluator(paces)
        self.seconds = 0.0

    def forward(self, u: Tensor, tau: Any) -> Tensor:
        """Give the leader's velocity after the pacer's, timed."""
        began = time.perf_counter()
        self.paces(u, tau)
        self.seconds += time.perf_counter() - began
        velocity: Tensor = self.leads(u, tau)
        return velocity
