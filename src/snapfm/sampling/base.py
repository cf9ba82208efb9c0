"""The seam of samplers: settings in, a task walked, fields and their last projection out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from snapfm.project import Projection
from snapfm.sampling.task import Task


@dataclass(frozen=True)
class Samples:
    """What a sampling run gives: the fields, the last projection with its certificates, and where the time went."""

    u: Tensor  # (count, *shape)
    projection: Projection | None  # None when the sampler ends without one: it certifies nothing
    seconds: dict[str, float]  # "velocity", "projection"
    calls: int = 0  # of the network, for the whole batch


class Sampler(Protocol):
    """A way from noise to fields. Holds settings only; all state of a run is in the task."""

    def run(self, task: Task) -> tuple[Tensor, Projection | None]:
        """Walk the task's times; give the final fields and, where they come from one, their projection."""
        ...
