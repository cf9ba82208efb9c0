"""The heat family by quadrature: u = exp(−αt)·sin(x + φ) on a lattice of (α, φ); the first slice and the mass are given."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from snapfm.laws import Equality
from snapfm_bench.suites.exact.case import ExactCase
from snapfm_bench.suites.exact.scores import ExactMoments

_DECAYS = (1.0, 5.0)  # the range of α; φ ranges over [0, π)


def heat(points: int = 12, decays: int = 96, phases: int = 64) -> ExactCase:
    """Every (α, φ) of the lattice is equally likely; the laws fix φ and leave α free."""
    x = torch.linspace(0.0, 2.0 * math.pi, points, dtype=torch.float64)
    t = torch.linspace(0.0, 1.0, points, dtype=torch.float64)
    alpha = torch.linspace(*_DECAYS, decays, dtype=torch.float64)
    phi = math.pi * torch.arange(phases, dtype=torch.float64) / phases
    wave, decay = torch.sin(x + phi[:, None]), torch.exp(-alpha[:, None] * t)
    shape = (points, points)
    family = torch.einsum("px,at->apxt", wave, decay)
    flat = family.reshape(-1, points**2)
    half_squares = 0.5 * flat.square().sum(1)

    def expected(u: Tensor, tau: float) -> Tensor:
        logs = (tau * u @ flat.T - tau**2 * half_squares) / (1.0 - tau) ** 2
        return torch.softmax(logs, dim=1) @ flat

    def some(fields: Tensor, count: int, generator: torch.Generator) -> Tensor:
        return fields[torch.randint(len(fields), (count,), generator=generator)].view(-1, *shape)

    chosen = family[:, phases // 4]
    first = chosen[0, :, 0].clone()
    laws = (
        Equality("first slice", lambda u, p: u[:, 0] - first),
        Equality("mass", lambda u, p: u[:-1].sum(0)[1:]),  # periodic: the last point repeats the first
    )
    moments = ExactMoments(chosen.mean(0).flatten(), chosen.std(0, correction=0).flatten())
    return ExactCase(
        "heat", "Heat family", shape, laws, expected, lambda n, g: some(flat, n, g), lambda n, g: some(chosen, n, g), moments
    )  # fmt: skip
