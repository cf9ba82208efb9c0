"""Peers that can be stopped after any iteration: a subclass runs, the certificate is the same for all."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from snapfm.compile import CompiledLaws
from snapfm.laws import Params
from snapfm.solve.base import Limits, Solution
from snapfm_bench.peers.certificate import Answer, certified
from snapfm_bench.peers.numeric import Numeric


class Stoppable(ABC):
    """Prepared for compiled laws and limits; pinned unknowns and implied rows are taken out."""

    def __init__(self, structure: CompiledLaws, limits: Limits, iterations: int) -> None:
        self.structure, self.limits, self.iterations = structure, limits, iterations
        self.rows = Numeric(structure, limits)

    @abstractmethod
    def run(self, start: Tensor, params: Params, tolerance: float, iterations: int | None = None) -> Answer:
        """Project without the certificate: what is timed."""

    def solve(self, start: Tensor, params: Params, tolerance: float) -> Solution:
        """Project a float64 batch (b, *shape), each sample from û."""
        return certified(self.structure, self.limits, start, params, self.run(start, params, tolerance), self.rows)

    def limited(self, start: Tensor, params: Params, tolerance: float, iterations: int) -> Solution:
        """Project with a limit of iterations of its own: one point of a convergence curve."""
        answer = self.run(start, params, tolerance, iterations)
        return certified(self.structure, self.limits, start, params, answer, self.rows)
