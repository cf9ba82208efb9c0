"""Small problems every peer is tried on, and a way to ask a peer and our own projector the same question."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projection, Projector
from snapfm.laws import Law

SHAPE = (3, 5)


@dataclass(frozen=True)
class Question:
    """A projector, a batch, its params expanded as methods get them, and our own answer."""

    project: Projector
    u_hat: Tensor
    params: dict[str, Tensor]
    ours: Projection

    def multipliers(self) -> Tensor:
        return torch.cat(list(self.ours.multipliers.values()), dim=1)


Ask = Callable[..., Question]


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


_START = Equality("start", lambda u, p: 2.0 * (u[:, 0] - p["start"]))
_SETS: dict[str, list[Law]] = {
    "affine": [_START, Equality("total", lambda u, p: u[:, 1:].sum(0) - p["start"].sum())],
    "square": [_START, Equality("square", lambda u, p: (u[:, 1:] ** 2).sum(0) - 2.0)],
    "mixed": [
        _START,
        Equality("waves", lambda u, p: torch.exp(0.3 * u[1:, 1]) + torch.sin(u[:-1, 2]) - u[1:, 3] * u[1:, 4] - 1.0),
    ],
    # The first total repeats the start, as in the Burgers problem.
    "redundant": [
        _START,
        Equality("total", lambda u, p: u.sum(0) - p["start"].sum()),
        Equality("square", lambda u, p: (u[0, 1:] ** 2).sum() - 2.0),
    ],
    # Convex, so that there is one answer to agree on; it holds in some slices and not in others.
    "inequality": [_START, Inequality("decay", lambda u, p: (u[:, 1:] ** 2).sum(0) - 2.0)],
    "bounds": [_START, Equality("total", lambda u, p: u[:, 1:].sum() - 1.0), Bounds(lower=-2.5, upper=2.5)],
}
EQUALITIES = ("affine", "square", "mixed", "redundant")


@pytest.fixture
def ask() -> Ask:
    def asked(name: str, count: int = 3, tolerance: float = 1e-8) -> Question:
        params = {"start": randn(count, SHAPE[0], seed=1)}
        project = Projector(_SETS[name], SHAPE, params, tolerance=tolerance)
        u_hat = randn(count, *SHAPE, seed=2)
        return Question(project, u_hat, params, project(u_hat, params).raise_for_status())

    return asked
