"""Our own projector as called by a model on a GPU: tensors of the device in, tensors of it out. Not measured by us."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from snapfm.errors import MissingDependency
from snapfm.laws import Params
from snapfm.project.projector import Projector
from snapfm.solve.base import Projection, Solution
from snapfm_bench.peers.ours import Ours, solution

GPU = "cuda"


class OursGpu(Ours):
    """Ours, called with fields and params on a device. Tolerance: that asked for.

    Work is done there, as for any caller (project.on_device); the CPU does what that leaves open, and laws without a form there.
    """

    def __init__(self, project: Projector, device: str = GPU) -> None:
        if device == GPU and not torch.cuda.is_available():
            raise MissingDependency(
                "a CUDA device is needed for snapfm on a GPU; torch finds none. Run it where there is one, with a CUDA build of "
                "torch."
            )
        super().__init__(project)
        self.device = torch.device(device)
        self._given: tuple[Tensor, Params, Tensor, Params] | None = None

    def run(self, start: Tensor, params: Params, tolerance: float) -> Projection:
        """Project a float64 batch that lies on the device; the answer lies there too."""
        u_hat, there = self._there(start, params)
        made = self.project(u_hat, there, tolerance=tolerance)
        if self.device.type == GPU:
            torch.cuda.synchronize(self.device)
        return made

    def solve(self, start: Tensor, params: Params, tolerance: float) -> Solution:
        """Project, and return a Solution on the CPU, where the judge works."""
        made = self.run(start, params, tolerance)
        return solution(self.project.sparse("a comparison of methods"), _fetched(made), start, params)

    def _there(self, start: Tensor, params: Params) -> tuple[Tensor, Params]:
        """Copy a batch to the device, once: a model would have made it there."""
        if self._given is None or self._given[0] is not start or self._given[1] is not params:
            there = {name: value.to(self.device) for name, value in params.items()}
            self._given = start, params, start.to(self.device), there
        return self._given[2:]


def _fetched(made: Projection) -> Projection:
    """Copy an answer to the CPU."""
    return replace(
        made,
        u=made.u.cpu(),
        status=made.status.cpu(),
        violation=made.violation.cpu(),
        stationarity=made.stationarity.cpu(),
        iterations=made.iterations.cpu(),
        distance=made.distance.cpu(),
        multipliers={name: value.cpu() for name, value in made.multipliers.items()},
        by_law={name: value.cpu() for name, value in made.by_law.items()},
        rounding=made.rounding.cpu(),
        second_order=made.second_order.cpu(),
        generalized=made.generalized.cpu(),
    )
