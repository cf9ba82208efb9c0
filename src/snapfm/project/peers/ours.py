"""Our own projector behind the face of a peer, so that one loop can ask all."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from snapfm.errors import UnsupportedLaw
from snapfm.kernels.threads import Turn
from snapfm.laws import Params
from snapfm.project.affine import Affine
from snapfm.project.aim import Aim
from snapfm.project.base import Projection, Solution
from snapfm.project.budget import Budget
from snapfm.project.limits import Limits
from snapfm.project.newton import Newton
from snapfm.project.part import Ended, Part
from snapfm.project.phases import phases
from snapfm.project.projector import Projector
from snapfm.project.tiles import Index, Values
from snapfm.structure import Structure
from snapfm.structure.reduce import System


class Ours:
    """A Projector, asked in float64. Tolerance: the tolerance asked for is the projector's own.

    Certificate and judgement are part of every call, of `run` too; peers are timed without theirs.
    """

    def __init__(self, project: Projector) -> None:
        self.project = project
        self._plain: dict[int, Newton] = {}

    def prepare(self, tolerance: float, count: int = 1) -> None:
        """Do nothing: the projector is prepared, and what the first call compiles is counted as the first call's."""

    def run(self, start: Tensor, params: Params, tolerance: float) -> Projection:
        """Project a float64 batch (b, *shape)."""
        return self.project(start, params, tolerance=tolerance)

    def solve(self, start: Tensor, params: Params, tolerance: float) -> Solution:
        """Do the same in the terms of a method."""
        return solution(self.project.structure, self.run(start, params, tolerance), start, params)

    def phases(self, start: Tensor, params: Params, tolerance: float) -> dict[str, float]:
        """Say where the seconds of a call go; nothing to say of closed forms and of the slow path."""
        method = self.project.method
        if not isinstance(method, Newton):
            return {}
        iterations = self.run(start, params, tolerance).iterations.numpy()
        return phases(method, lambda: self.run(start, params, tolerance), iterations)

    def limited(self, start: Tensor, params: Params, tolerance: float, iterations: int) -> Solution:
        """Project with the plain iteration alone, stopped early: none of what is tried after it. Closed forms have none."""
        method = self.project.method
        if isinstance(method, Affine):
            return method.solve(start, params, tolerance, None, self._budget())
        if not isinstance(method, Newton):
            raise UnsupportedLaw(
                "Ours.limited expects laws that the projector iterates on in kernels; these go one sample at a time. Use solve."
            )
        if iterations not in self._plain:
            self._plain[iterations] = _PlainNewton(method.structure, method.limits, iterations)
        return self._plain[iterations].solve(start, params, tolerance, None, self._budget())

    def _budget(self) -> Budget:
        return Budget.of(self.project.limit, self.project.seconds)


def solution(structure: Structure, made: Projection, start: Tensor, params: Params) -> Solution:
    """Put a projection of a float64 batch into the terms of a method."""
    return Solution(
        made.u.reshape(len(start), structure.unknowns),
        torch.cat([start.new_zeros(len(start), 0), *made.multipliers.values()], dim=1),
        made.iterations,
        structure.residual(made.u, params),
        made.stationarity,
        made.distance,
        made.status,
    )


class _PlainNewton(Newton):
    def __init__(self, structure: Structure, limits: Limits, iterations: int) -> None:
        super().__init__(structure, limits)
        outside = self.listing.unknowns + 1
        self.parts = [
            _PlainPart(part.system, self.lower, self.upper, outside, part.lengths, iterations) for part in self.parts
        ]


class _PlainPart(Part):
    """A part that tries once, for so many iterations."""

    def __init__(
        self, system: System, lower: Values, upper: Values, first_external: int, lengths: Index, iterations: int
    ) -> None:
        super().__init__(system, lower, upper, first_external, lengths)
        self.iterations = iterations

    def _attempts(self, space: Values, lanes: int, aim: Aim, near: bool, limit: int, turn: Turn) -> Ended:
        return self._run(space, lanes, aim, np.full(lanes, self.iterations), turn)
