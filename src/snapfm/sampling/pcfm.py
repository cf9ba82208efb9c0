"""Physics-constrained flow matching: shoot, project, pull back, and project once more (math.md, eq. pcfm).

Utkarsh, Cai, Edelman, Gómez-Bombarelli, Rackauckas, "Physics-Constrained Flow Matching" (2025).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import ParamsError
from snapfm.laws.checks import Check, check_settings, is_count, is_positive, is_share, or_none
from snapfm.project import Moved, Projection
from snapfm.sampling.checks import FLAG
from snapfm.sampling.descent import descend
from snapfm.sampling.task import Task

_NEARNESS = 0.5  # inverse curvature of ‖u − ũ‖²: no first step needs to be longer


@dataclass(frozen=True)
class Relaxation:
    """The relaxed correction: minimize ‖u − ũ‖² + λ‖h(u + (1 − τ)·v(u, τ))‖² per sample (math.md, eq. relaxed).

    `weight` is λ, `iterations` the number of L-BFGS steps per correction; only steps that descend are taken.
    """

    weight: float = 1.0
    iterations: int = 5

    def __post_init__(self) -> None:
        if not (is_positive(self.weight) and is_count(self.iterations)):
            raise ParamsError(
                f"Relaxation expects weight > 0 and iterations >= 1; got {self.weight!r} and {self.iterations!r}. Leave "
                "relaxation=None to go without."
            )

    def correct(self, task: Task, near: Tensor, tau: float) -> Tensor:
        """Return states no worse than `near` in the relaxed objective; a sample whose steps do not descend stays put."""

        def objective(u: Tensor) -> Tensor:
            excess = task.excess(task.shoot(u, tau))
            return (u - near).double().square().flatten(1).sum(1) + self.weight * excess.square().sum(1)

        def slope(u: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                at = u.detach().requires_grad_()
                value = objective(at)
            return value.detach(), task.gradient(value, at).double()

        return descend(objective, slope, near, self.iterations, longest=_NEARNESS)


@dataclass(frozen=True)
class PCFM:
    """Physics-constrained flow matching: project the predicted end point at each step, then pull back to the original noise.

    `warm` starts each projection from the one before. `early_tolerance`, a number or a function of τ, applies to all but
    the last projection, which always meets the projector's own. Steps before `project_from` are those of the plain flow.
    `relaxation` adds the relaxed correction after every pull-back. It is off by default because it needs network gradients.
    """

    warm: bool = True
    early_tolerance: float | Callable[[float], float] | None = None
    project_from: float = 0.0
    relaxation: Relaxation | None = None

    def __post_init__(self) -> None:
        check_settings(
            self,
            warm=FLAG,
            early_tolerance=Check(
                or_none(lambda value: callable(value) or is_positive(value)),
                "a positive number, or a function of τ", "None is the projector's own.",
            ),
            project_from=Check(is_share, "a flow time in [0, 1]", "0 projects at every step, 1 only at the end."),
            relaxation=Check(
                or_none(lambda value: isinstance(value, Relaxation)), "a Relaxation, or None",
                "Write PCFM(relaxation=snapfm.sampling.Relaxation()).",
            ),
        )  # fmt: skip

    def run(self, task: Task) -> tuple[Tensor, Projection]:
        """Step through the task's times (math.md, eq. pcfm)."""
        task.laws()  # refuse a missing projector before the network is called
        u = task.noise
        last: Moved | Projection | None = None
        with torch.no_grad():  # not inference_mode: its tensors could not be used in a loss afterwards
            for tau, later in task.steps():
                if tau < self.project_from:
                    u = task.step(u, tau, later)
                else:
                    tolerance = self.early_tolerance(tau) if callable(self.early_tolerance) else self.early_tolerance
                    last = task.move(task.shoot(u, tau), last if self.warm else None, tolerance)
                    u = task.path.pull_back(task.noise, last.u, later)
                    if self.relaxation is not None and later < 1.0:
                        u = self.relaxation.correct(task, u, later)
            # No warm start: after the last pull-back u is feasible up to rounding, so its multipliers are near zero.
            found = task.project(u)
        return found.u, found
