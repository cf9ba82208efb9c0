"""The plain flow: du/dτ = v(u, τ) from noise to data, no laws."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from snapfm.errors import ParamsError
from snapfm.sampling.adaptive import integrate
from snapfm.sampling.settings import is_positive
from snapfm.sampling.task import Task


@dataclass(frozen=True)
class Flow:
    """Integrate the velocity; laws, if given, are not looked at.

    "euler" steps through the task's times. "adaptive" chooses steps of its own, by Dormand and Prince's pair, for each
    sample to the given tolerances per step; the velocity is then asked with one τ per sample, (b,), and must be finite at
    τ = 1. Tolerances are those that released samplers of functional flow matching use with dopri5, 1e-5 (Kerrigan,
    Migliorini, Smyth, "Functional Flow Matching", AISTATS 2024; code of Cheng et al., ICLR 2025, and of PCFM). A sample that
    cannot be integrated ends as NaN.
    """

    solver: Literal["euler", "adaptive"] = "euler"
    relative_tolerance: float = 1e-5
    absolute_tolerance: float = 1e-5

    def __post_init__(self) -> None:
        if self.solver not in ("euler", "adaptive"):
            raise ParamsError(
                f"Flow(solver) expects 'euler' or 'adaptive'; got {self.solver!r}. 'euler' visits the times you ask for."
            )
        if not (is_positive(self.relative_tolerance) and is_positive(self.absolute_tolerance)):
            raise ParamsError(
                "Flow(relative_tolerance, absolute_tolerance) expects positive numbers; got "
                f"{self.relative_tolerance!r} and {self.absolute_tolerance!r}. The default is 1e-5 for both."
            )

    def run(self, task: Task) -> tuple[Tensor, None]:
        """Go from τ = 0 to 1."""
        with torch.no_grad():
            if self.solver == "adaptive":
                return integrate(task, self.relative_tolerance, self.absolute_tolerance), None
            u = task.noise
            for tau, later in pairwise(task.times):
                u = u + (later - tau) * task.velocity(u, tau)
                task.tick()
        return u, None
