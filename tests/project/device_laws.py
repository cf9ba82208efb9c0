"""Sets of laws that reach every step of a projection on a device, with fields and params for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import snapfm

COUNT = 3


@dataclass(frozen=True)
class Case:
    """Laws on fields of one shape; params have one line a sample."""

    laws: list[snapfm.Equality | snapfm.Inequality | snapfm.Bounds]
    shape: tuple[int, ...]
    params: dict[str, Tensor]

    def projector(self) -> snapfm.Projector:
        return snapfm.Projector(self.laws, self.shape, {name: value[:1] for name, value in self.params.items()})

    def fields(self, seed: int = 0, count: int = COUNT) -> Tensor:
        return noise(count, *self.shape, seed=seed)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Drift(torch.nn.Module):
    """A network with a weight, which says where fields are made."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)

    def forward(self, u: Tensor, tau: Tensor) -> Tensor:
        return (0.3 * torch.sin(u) - 0.2 * u) * self.weight


def totals() -> Case:
    """Sums over slices after an initial state: a diagonal Gram matrix, and unknowns that params alone determine."""
    u0 = noise(COUNT, 6, seed=1)
    laws = [
        snapfm.Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
        snapfm.Equality("mass", lambda u, p: u[:, 1:].sum(0) - p["u0"].sum()),
    ]
    return Case(laws, (6, 5), {"u0": u0})


def coupled_affine() -> Case:
    """Affine rows that share unknowns, with a constant that the laws close over."""
    weight = torch.linspace(0.5, 1.5, 6, dtype=torch.float64)
    laws = [
        snapfm.Equality("mass", lambda u, p: weight @ u - p["m"]),
        snapfm.Equality("ties", lambda u, p: u[0, 1:] - 2.0 * u[1, :-1]),
    ]
    return Case(laws, (6, 5), {"m": noise(COUNT, 5, seed=2)})


def energies() -> Case:
    """Σu and Σu² over slices: aggregates, small systems, many parts."""
    laws = [
        snapfm.Equality("mass", lambda u, p: u.sum(0) - 0.5),
        snapfm.Equality("energy", lambda u, p: (u**2).sum(0) - p["e"]),
    ]
    return Case(laws, (8, 4), {"e": 3.0 + noise(COUNT, 4, seed=3).abs()})


def fluxes() -> Case:
    """A nonlinear flux beside totals: eliminated unknowns, and rows with products."""
    laws = [
        snapfm.Equality("mass", lambda u, p: u.sum(0) - p["m"]),
        snapfm.Equality("flux", lambda u, p: u[0, 1:] - u[0, :-1] + 0.1 * (u[-1, :-1] ** 2 - u[1, :-1] ** 2)),
    ]
    return Case(laws, (7, 6), {"m": noise(COUNT, 6, seed=5)})


def bounded() -> Case:
    """Energies with an inequality and bounds."""
    laws = [
        snapfm.Equality("energy", lambda u, p: (u**2).sum(0) - p["e"]),
        snapfm.Inequality("first", lambda u, p: u[0] ** 3 + u[1] - 1.5),
        snapfm.Bounds(lower=-1.8, upper=1.8),
    ]
    return Case(laws, (6, 4), {"e": 3.0 + noise(COUNT, 4, seed=4).abs().clamp(max=1.0)})


def explicit() -> Case:
    """Explicit steps with functions after an initial state: substitutions; products beside them: an augmented matrix."""

    def step(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        return u[1:-1, 1:3] - u[1:-1, :2] - p["rate"] * torch.sin(u[2:, :2] * u[:-2, :2])

    laws = [
        snapfm.Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
        snapfm.Equality("step", step),
        snapfm.Equality("products", lambda u, p: u[1:4, 3] * u[2:5, 4] + u[0, 3] - 0.3),
    ]
    return Case(laws, (6, 5), {"u0": noise(COUNT, 6, seed=6), "rate": 0.1 + noise(COUNT, seed=7).abs()})


def implicit() -> Case:
    """Implicit steps of a nonlinear equation after an initial state: a march; a total of the last column beside it."""

    def step(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        new, old = u[:-1, 1:], u[:-1, :-1]
        diffused = torch.roll(new, 1, 0) - 2.0 * new + torch.roll(new, -1, 0)
        return new - old - 0.2 * diffused + 0.1 * new**3

    laws = [
        snapfm.Equality("initial", lambda u, p: u[:-1, 0] - p["u0"]),
        snapfm.Equality("step", step),
        snapfm.Equality("energy", lambda u, p: (u[-1] ** 2).sum() - 2.0),
    ]
    return Case(laws, (33, 10), {"u0": 0.5 * noise(COUNT, 32, seed=8)})


CASES: dict[str, Callable[[], Case]] = {
    case.__name__: case for case in (totals, coupled_affine, energies, fluxes, bounded, explicit, implicit)
}
