"""Projected sampling: every state is projected onto the laws, as in projected diffusion models (math.md, eq. projected).

J. K. Christopher, S. Baek, F. Fioretto, "Constrained Synthesis with Projected Diffusion Models", NeurIPS 2024
(arXiv:2402.03559; code: RAISELab-atUVA/Projected-Diffusion).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from snapfm.project import Moved, Projection
from snapfm.sampling.settings import check_flag
from snapfm.sampling.task import Task


@dataclass(frozen=True)
class Projected:
    """Step with the velocity, then replace the state by its projection, at every step.

    Published: annealed Langevin dynamics, x ← P(x + γ s(x) + √(2γ) ε), with 10 noise levels from σ = 10 to 0.005 and 25
    steps of γ = 1.5e-5 (σ/0.005)²/2 at each. Adapted: a flow has a velocity where diffusion has a score, so the move that
    is projected is the flow's own step u + Δτ v(u, τ), without Langevin noise, over the task's times. The first noise is not
    projected, as with them. Laws of clean fields are so imposed on noisy ones, which is the method, not an oversight.
    `warm` starts each projection from the one before.
    """

    warm: bool = True

    def __post_init__(self) -> None:
        check_flag("Projected(warm)", self.warm)

    def run(self, task: Task) -> tuple[Tensor, Projection]:
        """Walk the task's times."""
        task.laws()
        u = task.noise
        last: Moved | Projection | None = None
        with torch.no_grad():
            for tau, later in pairwise(task.times[:-1]):
                last = task.move(u + (later - tau) * task.velocity(u, tau), last if self.warm else None)
                u = last.u
                task.tick()
            tau = task.times[-2]
            found = task.project(u + (1.0 - tau) * task.velocity(u, tau), last if self.warm else None)
            task.tick()
        return found.u, found
