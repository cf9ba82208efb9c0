"""The relaxed correction of PCFM: trade nearness to the state against laws at the end of its flow (math.md, eq. relaxed).

Minimises ‖u − ũ‖² + λ‖h(u + (1 − τ)·v(u, τ))‖² per sample by L-BFGS steps that are only taken when they descend.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import ParamsError
from snapfm.sampling.descent import descend
from snapfm.sampling.settings import is_count, is_positive
from snapfm.sampling.task import Task

_NEARNESS = 0.5  # inverse curvature of ‖u − ũ‖²: no first step need be longer


@dataclass(frozen=True)
class Relaxation:
    """Weight λ of the laws against nearness, and how many descending steps each correction takes."""

    weight: float = 1.0
    iterations: int = 5

    def __post_init__(self) -> None:
        if not (is_positive(self.weight) and is_count(self.iterations)):
            raise ParamsError(
                f"Relaxation expects weight > 0 and iterations >= 1; got {self.weight!r} and {self.iterations!r}. Leave "
                "relaxation=None to go without."
            )

    def correct(self, task: Task, near: Tensor, tau: float) -> Tensor:
        """Give states no worse than `near` in the relaxed objective; a sample whose steps do not descend stays put."""

        def objective(u: Tensor) -> Tensor:
            broken = task.excess(task.shoot(u, tau))
            return (u - near).double().square().flatten(1).sum(1) + self.weight * broken.square().sum(1)

        def slope(u: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                at = u.detach().requires_grad_()
                value = objective(at)
            return value.detach(), task.gradient(value, at).double()

        return descend(objective, slope, near, self.iterations, longest=_NEARNESS)
