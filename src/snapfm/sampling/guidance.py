"""Gradient guidance: each step also descends on what the laws say of the field it leads to (math.md, eq. guidance).

J. Huang, G. Yang, Z. Wang, J. J. Park, "DiffusionPDE: Generative PDE-Solving Under Partial Observation", NeurIPS 2024
(arXiv:2406.17763; code: jhhuangchloe/DiffusionPDE), in the form for flows of the ECI paper (Cheng et al., ICLR 2025) and of
PCFM (Utkarsh et al., NeurIPS 2025; code: cpfpengfei/PCFM).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from snapfm.errors import ParamsError
from snapfm.sampling.penalty import row_weights
from snapfm.sampling.settings import check_flag, is_positive
from snapfm.sampling.task import Task


@dataclass(frozen=True)
class Guidance:
    """Step with the velocity, less `weight` times the gradient of the squared residual at the shot end point.

    Published: DiffusionPDE takes Heun steps of a diffusion model and subtracts ζ times the gradient of the residual's norm
    per value, through the network (Burgers: ζ = 320 for observations, 100 for the equation in the last fifth of 2000 steps).
    The form for flows squares the residual, averages the velocities at τ and τ' of the same state, and does not
    differentiate the network; its η = 200 multiplies a mean over values and over the batch. Adapted: a mean over the
    batch would tie samples together, so each has its own sum of squares; `weight` 0.01, and `physics` 0.01 for rows other
    than given values, are those of a public run of PCFM's code sample by sample, on its problems
    (ispamm/Projection-free-energy-guided-flow-matching); 200 over, say, 100 values and 512 samples is 0.004.
    `through_network` differentiates the velocity too, as DiffusionPDE does. Laws end lower, not obeyed; stiff rows (large
    slopes) need a smaller weight, or their samples blow up, alone.
    """

    weight: float = 0.01
    physics: float = 0.01
    through_network: bool = False

    def __post_init__(self) -> None:
        if not (is_positive(self.weight) and is_positive(self.physics)):
            raise ParamsError(
                f"Guidance expects weight > 0 and physics > 0; got {self.weight!r} and {self.physics!r}. The default is 0.01 for "
                "both; for no guidance use Flow()."
            )
        check_flag("Guidance(through_network)", self.through_network)

    def run(self, task: Task) -> tuple[Tensor, None]:
        """Walk the task's times."""
        weights = self.weight * row_weights(task.laws(), self.physics).to(task.noise.device)
        u = task.noise
        for tau, later in pairwise(task.times):
            at = u.detach().requires_grad_()
            with torch.set_grad_enabled(self.through_network):
                speed = self._speed(task, at, tau, later)
            with torch.enable_grad():
                broken = task.excess(task.path.shoot(at, speed, tau))
                loss = (weights * broken.square()).sum()  # samples meet in this sum only, which has no cross terms
            slope = task.gradient(loss, at)
            u = u + (later - tau) * speed.detach() - slope
            task.tick()
        return u, None

    def _speed(self, task: Task, u: Tensor, tau: float, later: float) -> Tensor:
        """Average the velocities at both ends of the step, at the same state; the last step has no second end."""
        speed = task.velocity(u, tau)
        return speed if later == 1.0 else 0.5 * (speed + task.velocity(u, later))
