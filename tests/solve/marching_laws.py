"""Laws whose rows determine unknowns in blocks, one time step after the other: for the tests of the march."""

from __future__ import annotations

import torch
from torch import Tensor

import snapfm

DT = 0.05


def laplacian(u: Tensor) -> Tensor:
    """Five points, periodic, over the last two axes."""
    return sum(torch.roll(u, shift, axis) for axis in (-1, -2) for shift in (1, -1)) - 4 * u


def initial(name: str = "initial") -> snapfm.Equality:
    return snapfm.Equality(name, lambda u, p: u[0] - p["u0"])


def reaction_diffusion() -> list[snapfm.Equality]:
    """Implicit Euler in 2-D: field (t, y, x)."""

    def step(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        return (u[1:] - u[:-1]) / DT - laplacian(u[1:]) + u[1:] ** 3 - u[1:]

    return [initial(), snapfm.Equality("step", step)]


def crank_nicolson() -> list[snapfm.Equality]:
    """Heat with fixed ends: field (t, x), affine blocks."""

    def rate(u: Tensor) -> Tensor:
        return u[:, 2:] - 2 * u[:, 1:-1] + u[:, :-2]

    def step(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        return (u[1:, 1:-1] - u[:-1, 1:-1]) / DT - 0.5 * (rate(u[1:]) + rate(u[:-1]))

    ends = snapfm.Equality("ends", lambda u, p: torch.stack([u[1:, 0], u[1:, -1]]))
    return [initial(), ends, snapfm.Equality("step", step)]


def predator_prey() -> list[snapfm.Equality]:
    """Two fields with diffusion that react with each other: field (t, 2, x); a rate in params."""

    def step(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        a, b = u[1:, 0], u[1:, 1]
        spread = torch.roll(u[1:], 1, -1) - 2 * u[1:] + torch.roll(u[1:], -1, -1)
        source = torch.stack([a * (1 - a) - p["rate"] * a * b, b * (p["rate"] * a - 0.5)], dim=1)
        return (u[1:] - u[:-1]) / DT - 0.3 * spread - source

    return [initial(), snapfm.Equality("step", step)]


def wave() -> list[snapfm.Equality]:
    """Implicit wave equation with a cubic force, two steps back: field (t, x)."""

    def step(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        new = u[2:]
        force = torch.roll(new, 1, -1) - 2 * new + torch.roll(new, -1, -1) - new**3
        return (new - 2 * u[1:-1] + u[:-2]) / DT - force

    return [initial(), snapfm.Equality("velocity", lambda u, p: u[1] - p["u0"]), snapfm.Equality("step", step)]


def projection_step() -> list[snapfm.Equality]:
    """A velocity and a pressure that keeps it free of divergence, one step after the other: field (t, 2, x), staggered.

    The pressure's level is fixed at the first point, so that velocity and pressure of a step are determined together; no entry of
    the continuity rows is in the pressure's columns, so that a factorization without pivoting needs the matching.
    """

    def momentum(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        v, q = u[1:, 0], u[1:, 1]
        return (v - u[:-1, 0]) / DT + 0.2 * v * v + (torch.roll(q, -1, -1) - q)

    def continuity(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        v = u[1:, 0]
        return (v - torch.roll(v, 1, -1))[:, 1:]

    level = snapfm.Equality("level", lambda u, p: u[1:, 1, 0])
    return [initial(), snapfm.Equality("momentum", momentum), snapfm.Equality("continuity", continuity), level]


def midpoint() -> list[snapfm.Equality]:
    """Implicit midpoint rule for a pendulum at many places: tiny blocks, many of a kind: field (t, 2, x)."""

    def step(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        middle = 0.5 * (u[1:] + u[:-1])
        rate = torch.stack([middle[:, 1], -torch.sin(middle[:, 0])], dim=1)
        return (u[1:] - u[:-1]) / DT - rate

    return [initial(), snapfm.Equality("step", step)]


def partial_condition() -> list[snapfm.Equality]:
    """Two rods, only the first with an initial condition: field (t, 2, x)."""

    def step(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        spread = torch.roll(u[1:], 1, -1) - 2 * u[1:] + torch.roll(u[1:], -1, -1)
        return (u[1:] - u[:-1]) / DT - spread + u[1:] ** 3

    return [snapfm.Equality("initial", lambda u, p: u[0, 0] - p["u0"][0]), snapfm.Equality("step", step)]


def chain() -> list[snapfm.Equality]:
    """Block, explicit row, block, …: the source of the next implicit step is the total of the last: field (t, x + 1)."""

    def step(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        v, source = u[1:, :-1], u[:-1, -1:]
        spread = torch.roll(v, 1, -1) - 2 * v + torch.roll(v, -1, -1)
        return (v - u[:-1, :-1]) / DT - spread + v**3 - source

    def total(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        return u[1:, -1] - 0.1 * u[1:, :-1].mean(-1)

    return [initial(), snapfm.Equality("step", step), snapfm.Equality("total", total)]


# Name: laws, shape of a field, rows that blocks determine.
CASES = {
    "reaction–diffusion": (reaction_diffusion, (6, 8, 8), 320),
    "Crank–Nicolson": (crank_nicolson, (6, 17), 75),
    "predator and prey": (predator_prey, (5, 2, 9), 72),
    "wave": (wave, (7, 11), 55),
    "projection step": (projection_step, (5, 2, 8), 60),
    "midpoint": (midpoint, (6, 2, 10), 100),
    "partial condition": (partial_condition, (5, 2, 9), 36),
    "chain": (chain, (6, 9), 45),
}


def example(
    name: str, count: int, seed: int = 0
) -> tuple[list[snapfm.Equality], tuple[int, ...], dict[str, Tensor], Tensor]:
    """Return laws, shape, params and fields of a case."""
    make, shape, _ = CASES[name]
    generator = torch.Generator().manual_seed(seed)
    u0 = 0.5 * torch.randn(count, *shape[1:], generator=generator, dtype=torch.float64)
    params = {"u0": u0}
    if name == "predator and prey":
        params = {"u0": u0.abs(), "rate": 1.0 + torch.rand(count, generator=generator, dtype=torch.float64)}
    return make(), shape, params, torch.randn(count, *shape, generator=generator, dtype=torch.float64)
