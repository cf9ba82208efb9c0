"""Projection only at the end: the plain flow, then the nearest lawful field.

What post-processing can do without touching the walk; every method that projects on the way is measured against it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import ParamsError
from snapfm.project import Projection
from snapfm.sampling.flow import Flow
from snapfm.sampling.task import Task


@dataclass(frozen=True)
class EndProjection:
    """Integrate the velocity as `flow` does, then project once, exactly (math.md, eq. end)."""

    flow: Flow = Flow()  # noqa: RUF009  # frozen: one instance may serve all

    def __post_init__(self) -> None:
        if not isinstance(self.flow, Flow):
            raise ParamsError(
                f"EndProjection(flow) expects how to integrate, a Flow; got {self.flow!r}. Write "
                "EndProjection(Flow(solver='adaptive'))."
            )

    def run(self, task: Task) -> tuple[Tensor, Projection]:
        """Go from τ = 0 to 1 and project."""
        task.laws()  # told before the walk, not after it
        u, _ = self.flow.run(task)
        with torch.no_grad():
            last = task.project(u)
        return last.u, last
