"""Published samplers that project at every step, beside PCFM: ECI and projected diffusion."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.laws.checks import Check, check_settings, is_count, or_none
from snapfm.project import Moved, Projection
from snapfm.sampling.checks import FLAG
from snapfm.sampling.task import Task


@dataclass(frozen=True)
class ECI:
    """Extrapolate, correct, interpolate, `mixing` times per step; draw new noise every `renew` corrections, or never.

    C. Cheng, B. Han, D. C. Maddix, A. F. Ansari, A. Stuart, M. W. Mahoney, Y. Wang, "Gradient-Free Generation for
    Hard-Constrained Systems", ICLR 2025 (arXiv:2412.01786; code: amazon-science/ECI-sampling); math.md, eq. eci.

    Published: the released sampler leaves both numbers to its caller, problem by problem; 5 and 5 are those of a public
    run of it on PCFM's problems (ispamm/Projection-free-energy-guided-flow-matching), and None keeps the first noise, as
    there. Adapted: their correction is defined for given values, periodic ends and regional sums, law after law. Here it is
    the projection onto all laws at once, which is the same for such laws if they share no unknowns, and also handles
    any other law. The last correction is at τ = 1, so the result is a projection. With mixing=1 and renew=None this
    is PCFM without its last projection. `warm` starts each projection from the one before.
    """

    mixing: int = 5
    renew: int | None = 5
    warm: bool = True

    def __post_init__(self) -> None:
        check_settings(
            self,
            mixing=Check(is_count, "a whole number >= 1", "The default is 5."),
            renew=Check(or_none(is_count), "a whole number >= 1 or None", "None keeps the first noise."),
            warm=FLAG,
        )

    def run(self, task: Task) -> tuple[Tensor, Projection]:
        """Step through the task's times."""
        task.laws()
        u, noise, corrected = task.noise, task.noise, 0
        last: Moved | Projection | None = None
        corrections = self.mixing * (len(task.times) - 1)
        with torch.no_grad():
            for tau, later in task.steps():
                for turn in range(1, self.mixing + 1):
                    corrected += 1
                    if self.renew is not None and corrected % self.renew == 0:
                        noise = task.renew()
                    shot = task.shoot(u, tau)
                    if corrected < corrections:
                        last = task.move(shot, last if self.warm else None)
                        u = task.path.pull_back(noise, last.u, later if turn == self.mixing else tau)
            found = task.project(shot, last if self.warm else None)
        return found.u, found


@dataclass(frozen=True)
class Projected:
    """Step with the velocity, then replace the state by its projection, at every step.

    J. K. Christopher, S. Baek, F. Fioretto, "Constrained Synthesis with Projected Diffusion Models", NeurIPS 2024
    (arXiv:2402.03559; code: RAISELab-atUVA/Projected-Diffusion); math.md, eq. projected.

    Published: annealed Langevin dynamics, x ← P(x + γ s(x) + √(2γ) ε), with 10 noise levels from σ = 10 to 0.005 and 25
    steps of γ = 1.5e-5 (σ/0.005)²/2 at each. Adapted: a flow has a velocity where diffusion has a score, so the projected
    step is the flow's own, u + Δτ v(u, τ), without Langevin noise, over the task's times. As in the paper, the first noise
    is not projected. The method imposes laws of clean fields on noisy ones by design. `warm` starts each projection from the
    one before.
    """

    warm: bool = True

    def __post_init__(self) -> None:
        check_settings(self, warm=FLAG)

    def run(self, task: Task) -> tuple[Tensor, Projection]:
        """Step through the task's times."""
        task.laws()
        u = task.noise
        last: Moved | Projection | None = None
        with torch.no_grad():
            for tau, later in task.steps():
                u = task.step(u, tau, later)
                if later < 1.0:
                    last = task.move(u, last if self.warm else None)
                    u = last.u
            found = task.project(u, last if self.warm else None)
        return found.u, found
