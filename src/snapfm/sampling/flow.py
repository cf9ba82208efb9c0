"""The plain flow: du/dτ = v(u, τ) from noise to data, no laws."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from snapfm.sampling.task import Task


@dataclass(frozen=True)
class Flow:
    """Integrate the velocity by Euler's method over the task's times; laws, if given, are not looked at."""

    def run(self, task: Task) -> tuple[Tensor, None]:
        """Walk the task's times."""
        u = task.noise
        with torch.no_grad():
            for tau, later in pairwise(task.times):
                u = u + (later - tau) * task.velocity(u, tau)
                task.tick()
        return u, None
