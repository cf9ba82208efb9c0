"""Fields of vectors: divergence, energies over the whole field, lengths, and deformations that keep area."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.any_law.case import FEW_SAMPLES, Setting, case
from benchmarks.any_law.draws import randn, smooth
from snapfm.laws import Equality, Params


def divergence(u: Tensor) -> Tensor:
    """The divergence on a periodic staggered grid: (3, n, n, n) to (n, n, n)."""
    return sum((u[axis] - torch.roll(u[axis], 1, axis)) for axis in range(3))  # type: ignore[return-value]


def _solenoidal(samples: int, generator: torch.Generator, size: int) -> Tensor:
    """The curl of a random potential, smooth but for a tenth of noise, by the same differences: divergence-free."""
    shape = (size, size, size)
    potential = torch.stack([smooth(samples, shape, generator) for _ in range(3)], dim=1)
    potential = potential + 0.1 * randn(*potential.shape, generator=generator)

    def step(v: Tensor, axis: int) -> Tensor:
        return v - torch.roll(v, 1, axis)

    x, y, z = potential.unbind(1)
    u = torch.stack([step(z, 2) - step(y, 3), step(x, 3) - step(z, 1), step(y, 1) - step(x, 2)], dim=1)
    return u / u.square().mean((1, 2, 3, 4), keepdim=True).sqrt()


def _divergence_rows(u: Tensor, p: Params) -> Tensor:
    return divergence(u)


@case(32, tiny=4, group="issue", samples=FEW_SAMPLES)
def divergence_free(samples: int, generator: torch.Generator, size: int) -> Setting:
    """No divergence in a periodic box."""
    return Setting((Equality("divergence", _divergence_rows),), _solenoidal(samples, generator, size), {})


@case(32, tiny=4, group="issue", samples=FEW_SAMPLES)
def divergence_energy(samples: int, generator: torch.Generator, size: int) -> Setting:
    """No divergence and a given kinetic energy, per unit volume."""
    u = _solenoidal(samples, generator, size)
    laws = (
        Equality("divergence", _divergence_rows),
        Equality("energy", lambda u, p: 0.5 * u.square().sum() / u[0].numel() - p["energy"]),
    )
    return Setting(laws, u, {"energy": 0.5 * u.square().sum((1, 2, 3, 4)) / u[0, 0].numel()})


@case(12, tiny=4)
def magnetic(samples: int, generator: torch.Generator, size: int) -> Setting:
    """∇·B = 0, a given magnetic energy and a given mean field: dense rows beside stencils."""
    u = _solenoidal(samples, generator, size) + randn(samples, 3, generator=generator)[:, :, None, None, None]
    laws = (
        Equality("divergence", _divergence_rows),
        Equality("energy", lambda u, p: 0.5 * u.square().sum() - p["energy"]),
        Equality("mean", lambda u, p: u.mean((1, 2, 3)) - p["mean"]),
    )
    return Setting(laws, u, {"energy": 0.5 * u.square().sum((1, 2, 3, 4)), "mean": u.mean((2, 3, 4))})


@case(32, tiny=4, group="issue", far=1.0)
def unit_vectors(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A direction at every point of a plane."""
    u = torch.stack([smooth(samples, (size, size), generator) for _ in range(3)], dim=1)
    u = u / u.norm(dim=1, keepdim=True)
    return Setting((Equality("length", lambda u, p: u.square().sum(0) - 1.0),), u, {})


@case(64, tiny=5, group="issue", far=0.3)
def particles(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A chain of particles in space with given distances to the next and the next but one."""
    u = torch.cumsum(0.5 * randn(samples, size, 3, generator=generator) + torch.tensor([1.0, 0.0, 0.0]), dim=1)
    u = u - u.mean(1, keepdim=True)

    def apart(u: Tensor, by: int) -> Tensor:
        return (u[..., by:, :] - u[..., :-by, :]).square().sum(-1)

    laws = (
        Equality("bonds", lambda u, p: apart(u, 1) - p["bonds"]),
        Equality("angles", lambda u, p: apart(u, 2) - p["angles"]),
    )
    return Setting(laws, u, {"bonds": apart(u, 1), "angles": apart(u, 2)})


@case(32, tiny=5, small=0.002, far=0.02)  # in cells: a thirtieth and a third of one
def area_keeping(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A deformation of the plane that keeps the area of every cell: det ∇φ = 1, as a shear of a shear."""
    x = torch.arange(size, dtype=torch.float64) / size
    amount = 0.1 * randn(samples, 2, generator=generator)
    first = x[:, None].expand(samples, size, size) + amount[:, :1, None] * torch.sin(2 * torch.pi * x)
    second = x.expand(samples, size, size) + amount[:, 1:, None] * torch.sin(3 * first)
    u = torch.stack([first, second], dim=1) * size

    def rows(u: Tensor) -> Tensor:
        ahead = u[..., 1:, :-1] - u[..., :-1, :-1], u[..., :-1, 1:] - u[..., :-1, :-1]
        return ahead[0][..., 0, :, :] * ahead[1][..., 1, :, :] - ahead[0][..., 1, :, :] * ahead[1][..., 0, :, :]

    # Shears keep areas exactly, their differences nearly: the small rest is what is asked for.
    return Setting((Equality("area", lambda u, p: rows(u) - p["area"]),), u, {"area": rows(u)})
