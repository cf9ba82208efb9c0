"""Physics-constrained flow matching: shoot, project, pull back, and project once more (math.md, eq. pcfm).

Utkarsh, Cai, Edelman, Gómez-Bombarelli, Rackauckas, "Physics-Constrained Flow Matching" (2025).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from snapfm.errors import ParamsError
from snapfm.project import Moved, Projection
from snapfm.project.door import is_real
from snapfm.sampling.relax import Relaxation
from snapfm.sampling.settings import check_flag, is_positive
from snapfm.sampling.task import Task


@dataclass(frozen=True)
class PCFM:
    """Project where every step leads, then return to the path from the original noise.

    `warm` starts each projection from the one before. `early_tolerance`, a number or a function of τ, is asked of all but
    the last projection, which always meets the projector's own. Before `project_from` steps are those of the plain flow.
    `relaxation` adds the relaxed correction after every pull-back, off by default: it costs network gradients.
    """

    warm: bool = True
    early_tolerance: float | Callable[[float], float] | None = None
    project_from: float = 0.0
    relaxation: Relaxation | None = None

    def __post_init__(self) -> None:
        check_flag("PCFM(warm)", self.warm)
        if not (self.early_tolerance is None or callable(self.early_tolerance) or is_positive(self.early_tolerance)):
            raise ParamsError(
                f"PCFM(early_tolerance) expects a positive number, or a function of τ; got {self.early_tolerance!r}. None is the "
                "projector's own."
            )
        if not is_real(self.project_from) or not 0.0 <= self.project_from <= 1.0:
            raise ParamsError(
                f"PCFM(project_from) expects a flow time in [0, 1]; got {self.project_from!r}. 0 projects at every step, 1 "
                "only at the end."
            )
        if self.relaxation is not None and not isinstance(self.relaxation, Relaxation):
            raise ParamsError(
                f"PCFM(relaxation) expects a Relaxation, or None; got {self.relaxation!r}. Write "
                "PCFM(relaxation=snapfm.sampling.Relaxation())."
            )

    def run(self, task: Task) -> tuple[Tensor, Projection]:
        """Walk the task's times (math.md, eq. pcfm)."""
        task.laws()  # a missing projector is told before the network walks
        u = task.noise
        last: Moved | Projection | None = None
        with torch.no_grad():  # not inference_mode: its tensors could not be used in a loss afterwards
            for tau, later in pairwise(task.times):
                if tau < self.project_from:
                    u = u + (later - tau) * task.velocity(u, tau)
                else:
                    last = task.move(task.shoot(u, tau), self._known(last), self._tolerance(tau))
                    u = task.path.pull_back(task.noise, last.u, later)
                    if self.relaxation is not None and later < 1.0:
                        u = self.relaxation.correct(task, u, later)
                task.tick()
            # Not warm: after the last pull-back u is lawful but for rounding, so its multipliers are zero, not the last ones.
            found = task.project(u)
        return found.u, found

    def _known(self, last: Moved | Projection | None) -> Moved | Projection | None:
        return last if self.warm else None

    def _tolerance(self, tau: float) -> float | None:
        return self.early_tolerance(tau) if callable(self.early_tolerance) else self.early_tolerance
