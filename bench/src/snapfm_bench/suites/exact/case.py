"""ExactCase: a distribution of fields, laws, and what the fields given the laws are like. A value; knows no sampler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.laws import Law
from snapfm.sampling.conditional.sampler import Measure

Scores = dict[str, float]
Draw = Callable[[int, torch.Generator], Tensor]  # (count, *shape)


@dataclass(frozen=True, eq=False)
class ExactCase:
    """Fields x of a known distribution, and laws. All tensors are float64.

    `expected(u, τ)` is the mean of x given the state u = τx + (1 − τ)·noise, for states (b, n). `score(u, weights)` compares
    fields (b, *shape) with the exact conditional distribution; each score but "ratio" is zero for a perfect sampler.
    """

    name: str
    title: str
    shape: tuple[int, ...]
    laws: tuple[Law, ...]
    expected: Callable[[Tensor, float], Tensor]
    fields: Draw  # draws that ignore the laws: what a model would be trained on
    given: Draw  # exact draws given the laws
    score: Callable[[Tensor, Tensor], Scores]
    measure: Measure = "surface"  # which conditional distribution is meant; both are the same for affine laws
    curved: bool = False  # whether a law is nonlinear

    def velocity(self, u: Tensor, tau: float) -> Tensor:
        """Evaluate the exact velocity of the straight path at states (b, *shape), for τ < 1."""
        flat = u.double().flatten(1)
        return ((self.expected(flat, float(tau)) - flat) / (1.0 - float(tau))).view(u.shape).to(u.dtype)

    def chance(self, count: int, rounds: int, seed: int) -> Scores:
        """Return the mean scores of `count` exact draws over some seeds: what no sampler can be expected to beat."""
        found: list[Scores] = []
        for k in range(rounds):
            drawn = self.given(count, torch.Generator().manual_seed(seed + k))
            found.append(self.score(drawn, torch.ones(count, dtype=torch.float64)))
        return {name: sum(one[name] for one in found) / rounds for name in found[0]}
