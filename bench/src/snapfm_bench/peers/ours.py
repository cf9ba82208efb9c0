"""Our own projector with the interface of a peer, so that one loop can run all."""

from __future__ import annotations

import torch
from torch import Tensor

from snapfm.compile import CompiledLaws
from snapfm.errors import UnsupportedLaw
from snapfm.laws import Params
from snapfm.project.projector import Projector
from snapfm.solve.base import Solution
from snapfm.solve.budget import Budget
from snapfm.solve.newton import Newton
from snapfm.solve.projection import Projection
from snapfm_bench.peers.phases import phases


class Ours:
    """A Projector, called in float64. Tolerance: that of the projector.

    Certificate and judgement are part of every call, of `run` too; peers are timed without theirs.
    """

    def __init__(self, project: Projector) -> None:
        self.project = project
        self._plain: Newton | None = None

    def prepare(self, tolerance: float, count: int = 1) -> None:
        """Do nothing: the projector is prepared, and compilation counts towards the first call."""

    def run(self, start: Tensor, params: Params, tolerance: float) -> Projection:
        """Project a float64 batch (b, *shape)."""
        return self.project(start, params, tolerance=tolerance)

    def solve(self, start: Tensor, params: Params, tolerance: float) -> Solution:
        """Project, and return a Solution."""
        return solution(
            self.project.require_sparse("a comparison of methods"), self.run(start, params, tolerance), start, params
        )

    def phases(self, start: Tensor, params: Params, tolerance: float) -> dict[str, float]:
        """Return the seconds of a call by phase; nothing if kernels do not iterate."""
        method = self.project.method
        if not isinstance(method, Newton) or method.opaque or not method.plan.systems:
            return {}
        iterations = self.run(start, params, tolerance).iterations.numpy()
        return phases(method, lambda: self.run(start, params, tolerance), iterations)

    def limited(self, start: Tensor, params: Params, tolerance: float, iterations: int) -> Solution:
        """Project with Newton's iteration alone, stopped early, without the other attempts. Closed forms have no iterations."""
        method = self.project.method
        if not isinstance(method, Newton) or method.opaque:
            raise UnsupportedLaw(
                "Ours.limited expects laws that the projector iterates on in kernels; these go one sample at a time. Use solve."
            )
        if self._plain is None:
            self._plain = Newton(method.laws, method.limits, retry=False)
        return self._plain.solve(start, params, tolerance, None, Budget.of(iterations, self.project.seconds))


def solution(structure: CompiledLaws, made: Projection, start: Tensor, params: Params) -> Solution:
    """Convert a projection of a float64 batch to a Solution."""
    return Solution(
        made.u.reshape(len(start), structure.unknowns),
        torch.cat([start.new_zeros(len(start), 0), *made.multipliers.values()], dim=1),
        made.iterations,
        structure.residual(made.u, params),
        made.stationarity,
        made.distance,
        made.status,
    )
