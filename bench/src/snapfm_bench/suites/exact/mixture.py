"""Gaussian mixtures with affine laws: modes must end with their conditional weights, whether the laws change them or not."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.laws import Equality
from snapfm_bench.suites.exact.case import ExactCase, Scores
from snapfm_bench.suites.exact.gaussian import Gaussian
from snapfm_bench.suites.exact.scores import ExactMoments, Shares

_WEIGHTS = (0.5, 0.3, 0.2)
_UNKNOWNS, _ROWS = 8, 2
_APART = 2.5  # size of the modes' means; their spread is near 0.6
_SEED = 5
_SHIFTS = ((-0.4, 0.2), (0.3, 0.3), (0.2, -0.4))  # of the modes, where the laws can see them


@dataclass(frozen=True, eq=False)
class Mixture:
    """Gaussians with weights."""

    weights: Tensor  # (k,)
    modes: tuple[Gaussian, ...]

    def shares(self, u: Tensor, tau: float = 1.0) -> Tensor:
        """Return the probability (b, k) of each mode given states (b, n)."""
        logs = torch.stack([mode.log_density(u, tau) for mode in self.modes], dim=1)
        return torch.softmax(logs + self.weights.log(), dim=1)

    def expected(self, u: Tensor, tau: float) -> Tensor:
        """Return the mean of x given states (b, n)."""
        means = torch.stack([mode.expected(u, tau) for mode in self.modes], dim=1)
        return (self.shares(u, tau)[..., None] * means).sum(1)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw x, (count, n)."""
        which = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        drawn = torch.stack([mode.draw(count, generator) for mode in self.modes])
        return drawn[which, torch.arange(count)]

    def given(self, rows: Tensor, values: Tensor) -> Mixture:
        """Return the distribution of x given rows @ x = values."""
        evidence = torch.cat([mode.of_rows(rows).log_density(values[None]) for mode in self.modes])
        weights = torch.softmax(self.weights.log() + evidence, dim=0)
        return Mixture(weights, tuple(mode.given(rows, values) for mode in self.modes))

    def moments(self) -> ExactMoments:
        """Return mean and spread."""
        own = [mode.moments() for mode in self.modes]
        means = torch.stack([one.mean for one in own])
        mean = self.weights @ means
        variance = self.weights @ (torch.stack([one.spread for one in own]).square() + (means - mean).square())
        return ExactMoments(mean, variance.sqrt())


def mixture(changed: bool) -> ExactCase:
    """Three modes in eight unknowns, of which two are given; `changed` shifts the modes so that the laws tell them apart."""
    seeded = torch.Generator().manual_seed(_SEED)
    modes = []
    for shift in _SHIFTS:
        mean = torch.randn(_UNKNOWNS, generator=seeded, dtype=torch.float64)
        mean[:_ROWS] = 0.0
        mean *= _APART / mean.norm()
        root = 0.2 * torch.randn(_UNKNOWNS, _UNKNOWNS, generator=seeded, dtype=torch.float64)
        root += 0.3 * torch.eye(_UNKNOWNS, dtype=torch.float64)
        # The unknowns that are given are alike in all modes, but correlated with the others in each mode's own way.
        root[:_ROWS] = 0.4 * torch.eye(_UNKNOWNS, dtype=torch.float64)[:_ROWS]
        if changed:
            mean[:_ROWS] = torch.tensor(shift, dtype=torch.float64)
        modes.append(Gaussian(mean, root @ root.T))
    prior = Mixture(torch.tensor(_WEIGHTS, dtype=torch.float64), tuple(modes))
    values = torch.tensor([0.3, -0.2], dtype=torch.float64)
    given = prior.given(torch.eye(_UNKNOWNS, dtype=torch.float64)[:_ROWS], values)
    moments, shares = given.moments(), Shares("modes", given.weights, lambda u: prior.shares(u).argmax(1))

    def score(u: Tensor, weights: Tensor) -> Scores:
        return moments(u, weights) | shares(u, weights)

    name, title = ("mixture-changed", "Mixture, weights change") if changed else ("mixture", "Mixture, weights stay")
    laws = (Equality("given", lambda u, p: u[:_ROWS] - values),)
    return ExactCase(name, title, (_UNKNOWNS,), laws, prior.expected, prior.draw, given.draw, score)
