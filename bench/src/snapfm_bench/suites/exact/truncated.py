"""A truncated Gaussian: bounds on some unknowns and an inequality between others. Its moments are those of many exact draws."""

from __future__ import annotations

import torch
from torch import Tensor

from snapfm.laws import Bounds, Equality, Inequality
from snapfm_bench.suites.exact.case import ExactCase
from snapfm_bench.suites.exact.gaussian import Gaussian
from snapfm_bench.suites.exact.scores import ExactMoments

_DRAWS = 200_000  # their error is a twentieth of that of 500 samples
_SEED = 3
_SUM, _LEAST = 1.0, -0.5


def truncated() -> ExactCase:
    """Four correlated unknowns: their sum is given, all are at least −0.5, and the first is at most the second."""
    correlation = torch.full((4, 4), 0.3, dtype=torch.float64) + 0.7 * torch.eye(4, dtype=torch.float64)
    size = torch.tensor([1.0, 0.8, 0.6, 1.2], dtype=torch.float64)
    prior = Gaussian(torch.tensor([0.4, 0.2, 0.0, 0.1], dtype=torch.float64), correlation * size * size[:, None])
    given = prior.given(torch.ones(1, 4, dtype=torch.float64), torch.tensor([_SUM], dtype=torch.float64))

    def draw(count: int, generator: torch.Generator) -> Tensor:
        """Draw until enough obey."""
        found = torch.zeros(0, 4, dtype=torch.float64)
        while len(found) < count:
            drawn = given.draw(4 * count, generator)
            found = torch.cat([found, drawn[(drawn >= _LEAST).all(1) & (drawn[:, 0] <= drawn[:, 1])]])
        return found[:count]

    laws = (
        Equality("sum", lambda u, p: u.sum()[None] - _SUM),
        Inequality("order", lambda u, p: (u[0] - u[1])[None]),
        Bounds(lower=_LEAST, name="least"),
    )
    moments = ExactMoments.of(draw(_DRAWS, torch.Generator().manual_seed(_SEED)))
    return ExactCase("truncated", "Truncated Gaussian", (4,), laws, prior.expected, prior.draw, draw, moments)
