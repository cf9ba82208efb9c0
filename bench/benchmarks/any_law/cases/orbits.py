"""Orbits: what they keep, their steps, and systems of planets."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import randn
from snapfm.laws import Equality

_SETTLED = 60  # rounds of a fixed point: all here contract by two in each


def _ellipse(samples: int, generator: torch.Generator, size: int) -> Tensor:
    """Draw places and velocities on Kepler's ellipses around a unit mass at even times of one turn: (b, size, 4)."""
    axis = 0.8 + 0.4 * torch.rand(samples, 1, generator=generator, dtype=torch.float64)
    bent = 0.4 * torch.rand(samples, 1, generator=generator, dtype=torch.float64)
    mean = 2 * torch.pi * torch.arange(size, dtype=torch.float64) / size
    angle = mean.expand(samples, size)
    for _ in range(_SETTLED):
        angle = mean + bent * torch.sin(angle)
    root, rate = (1 - bent.square()).sqrt(), axis**-0.5 / (1 - bent * torch.cos(angle))
    return torch.stack(
        [
            axis * (torch.cos(angle) - bent), axis * root * torch.sin(angle),
            -rate * torch.sin(angle), rate * root * torch.cos(angle),
        ],
        dim=-1,
    )  # fmt: skip


def _energy(u: Tensor) -> Tensor:
    return 0.5 * u[..., 2:].square().sum(-1) - 1.0 / u[..., :2].norm(dim=-1)


def _spin(u: Tensor) -> Tensor:
    return u[..., 0] * u[..., 3] - u[..., 1] * u[..., 2]


@case(100, tiny=6, group="issue", small=0.02, far=0.3)
def orbit(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Energy and angular momentum at every time of an orbit."""
    truth = _ellipse(samples, generator, size)
    laws = (
        Equality("energy", lambda u, p: _energy(u) - p["energy"]),
        Equality("angular momentum", lambda u, p: _spin(u) - p["spin"]),
    )
    return Setting(laws, truth, {"energy": _energy(truth)[:, :1], "spin": _spin(truth)[:, :1]})


@case(60, tiny=6, group="issue", small=0.02, far=0.2)
def kepler_steps(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Steps of an orbit by the implicit midpoint rule, and the energy of the first."""
    step = 0.06

    def rate(u: Tensor) -> Tensor:
        return torch.cat([u[..., 2:], -u[..., :2] / u[..., :2].norm(dim=-1, keepdim=True) ** 3], dim=-1)

    slices = [_ellipse(samples, generator, 1)[:, 0]]
    for _ in range(size - 1):
        old = new = slices[-1]
        for _ in range(_SETTLED):
            new = old + step * rate(0.5 * (old + new))
        slices.append(new)
    truth = torch.stack(slices, dim=1)
    laws = (
        Equality("steps", lambda u, p: u[1:] - u[:-1] - step * rate(0.5 * (u[1:] + u[:-1]))),
        Equality("energy", lambda u, p: _energy(u[0]) - p["energy"]),
    )
    return Setting(laws, truth, {"energy": _energy(truth[:, 0])})


@case(20, tiny=3, small=0.02, far=0.2)
def planets(samples: int, generator: torch.Generator, size: int, bodies: int = 5) -> Setting:
    """Bodies that attract each other, at many times: energy, momentum and angular momentum are those of the start."""
    mass = torch.tensor([1.0, *[0.05] * (bodies - 1)], dtype=torch.float64)
    one, two = torch.triu_indices(bodies, bodies, 1)

    def force(place: Tensor) -> Tensor:
        apart = place[..., two, :] - place[..., one, :]
        pull = mass[one, None] * mass[two, None] * apart / apart.norm(dim=-1, keepdim=True) ** 3
        none = torch.zeros_like(place)
        return none.index_add(-2, one, pull) - none.index_add(-2, two, pull)

    def energy(u: Tensor) -> Tensor:
        moving = 0.5 * (mass * u[..., 3:].square().sum(-1)).sum(-1)
        apart = (u[..., one, :3] - u[..., two, :3]).norm(dim=-1)
        return moving - (mass[one] * mass[two] / apart).sum(-1)

    def momentum(u: Tensor) -> Tensor:
        return (mass[:, None] * u[..., 3:]).sum(-2)

    def spin(u: Tensor) -> Tensor:
        return (mass[:, None] * torch.linalg.cross(u[..., :3], u[..., 3:])).sum(-2)

    far = torch.arange(bodies, dtype=torch.float64)
    angle = 2 * torch.pi * torch.rand(samples, bodies, generator=generator, dtype=torch.float64)
    place = torch.stack([far * torch.cos(angle), far * torch.sin(angle), 0.1 * far + 0.0 * angle], dim=-1)
    fast = far.clamp(min=1.0) ** -0.5 * (far > 0)
    velocity = torch.stack([-fast * torch.sin(angle), fast * torch.cos(angle), torch.zeros_like(angle)], dim=-1)
    velocity = velocity + 0.02 * randn(samples, bodies, 3, generator=generator)
    slices = []
    for _ in range(size):
        slices.append(torch.cat([place, velocity], dim=-1))
        for _ in range(20):
            velocity = velocity + 0.01 * force(place) / mass[:, None]
            place = place + 0.01 * velocity
    truth = torch.stack(slices, dim=1)  # nearly keeps what the laws keep exactly: each time has its own amounts
    amounts = {"energy": energy, "momentum": momentum, "spin": spin}
    laws = tuple(
        Equality(name, lambda u, p, name=name, amount=amount: amount(u) - p[name]) for name, amount in amounts.items()
    )
    return Setting(laws, truth, {name: amount(truth) for name, amount in amounts.items()})
