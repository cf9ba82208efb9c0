"""Balances without a grid: reactions at equilibrium, and radiation between surfaces."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import randn
from snapfm.laws import Bounds, Equality

# Species A, B, C, AB, AC, BC, ABC, A₂: how much of each element is in them.
_ELEMENTS = ((1, 0, 0, 1, 1, 0, 1, 2), (0, 1, 0, 1, 0, 1, 1, 0), (0, 0, 1, 0, 1, 1, 1, 0))


@case(64, tiny=4, small=0.05, far=0.5)
def equilibrium(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Concentrations of eight species in many cells: mass action of five reactions, and the total of every element."""
    elements = torch.tensor(_ELEMENTS, dtype=torch.float64)
    strength = torch.tensor([2.0, 0.5, 1.0, 3.0, 0.2], dtype=torch.float64)

    def products(u: Tensor) -> Tensor:
        a, b, c = u[..., 0], u[..., 1], u[..., 2]
        return strength * torch.stack([a * b, a * c, b * c, a * b * c, a * a], dim=-1)

    free = torch.exp(0.5 * randn(samples, size, 3, generator=generator))
    u = torch.cat([free, products(free)], dim=-1)
    laws = (
        Equality("mass action", lambda u, p: u[..., 3:] - products(u)),
        Equality("elements", lambda u, p: u.mean(0) @ elements.T - p["elements"]),
        Bounds(lower=0.0),
    )
    return Setting(laws, u, {"elements": u.mean(1) @ elements.T})


@case(80, tiny=6, small=0.05, far=0.3, channels=True)
def radiation(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Temperatures and heat sources of surfaces that all see each other: gray radiation T⁴, and conduction to neighbors."""
    place = torch.rand(size, 3, generator=torch.Generator().manual_seed(22), dtype=torch.float64)
    view = 1.0 / (1.0 + 20.0 * torch.cdist(place, place).square())
    view = view - torch.diag(view.diagonal())
    view = view / view.sum()  # symmetric: what one sends to another is what it would get from it

    def heat(t: Tensor) -> Tensor:
        sent = t**4
        exchanged = size * (view.sum(1) * sent - sent @ view)
        return exchanged + 0.2 * (2.0 * t - torch.roll(t, 1, -1) - torch.roll(t, -1, -1))

    t = 1.0 + 0.2 * randn(samples, size, generator=generator).clamp(-2.5, 2.5)
    low = torch.tensor([[0.3], [-torch.inf]], dtype=torch.float64)
    laws = (
        Equality("balance", lambda u, p: heat(u[0]) - u[1]),
        Equality("mean", lambda u, p: u[0].mean() - p["mean"]),
        Bounds(lower=low),
    )
    return Setting(laws, torch.stack([t, heat(t)], dim=1), {"mean": t.mean(1)})
