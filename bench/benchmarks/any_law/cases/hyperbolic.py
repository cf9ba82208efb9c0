"""Conservation laws in one dimension with a row for every cell and step: gas, shallow water, Burgers; time is the last axis."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import snapfm
from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import smooth
from snapfm.laws import Bounds, Equality, Inequality, Params

GAMMA = 1.4
LEAST = 1e-3  # density, pressure or depth that counts as positive
STEPS = 20

Flux = Callable[[Tensor], Tensor]


def _friedrichs(u: Tensor, flux: Flux, ratio: float) -> Tensor:
    """One Lax–Friedrichs step at inner cells: (…, channels, cells, steps) to (…, channels, cells − 2, steps)."""
    f = flux(u)
    left, right = u[..., :-2, :], u[..., 2:, :]
    return 0.5 * (left + right) - 0.5 * ratio * (f[..., 2:, :] - f[..., :-2, :])


def _rows(flux: Flux, ratio: float) -> Callable[[Tensor, Params], Tensor]:
    return lambda u, p: u[..., 1:-1, 1:] - _friedrichs(u[..., :-1], flux, ratio)


def _march(start: Tensor, flux: Flux, ratio: float, count: int) -> Tensor:
    """March (b, channels, cells); end cells copy their neighbors."""
    slices = [start[..., None]]
    for _ in range(count - 1):
        inner = _friedrichs(slices[-1], flux, ratio)
        slices.append(torch.cat([inner[..., :1, :], inner, inner[..., -1:, :]], dim=-2))
    return torch.cat(slices, dim=-1)


def _pressure(u: Tensor) -> Tensor:
    density, momentum, energy = u.unbind(-3)
    return (GAMMA - 1) * (energy - 0.5 * momentum.square() / density)


def _gas(u: Tensor) -> Tensor:
    density, momentum, energy = u.unbind(-3)
    velocity, pressure = momentum / density, _pressure(u)
    return torch.stack([momentum, momentum * velocity + pressure, (energy + pressure) * velocity], dim=-3)


@case(64, tiny=6, group="issue", far=0.2, channels=True)
def euler(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A shock tube: mass, momentum and energy of a gas; density and pressure stay positive."""
    ratio = 0.3
    left = torch.arange(size) < size // 2
    jump = 0.5 + torch.rand(samples, 2, 1, generator=generator, dtype=torch.float64)
    ripple = 1.0 + 0.02 * smooth(samples, (size,), generator)
    density = torch.where(left, 1.0 * jump[:, 0], 0.25 * jump[:, 1]) * ripple
    pressure = torch.where(left, 1.0 * jump[:, 0], 0.2 * jump[:, 1])
    momentum = 0.1 * density
    energy = pressure / (GAMMA - 1) + 0.5 * momentum.square() / density
    truth = _march(torch.stack([density, momentum, energy], dim=1), _gas, ratio, STEPS)
    laws = (
        Equality("euler", _rows(_gas, ratio)),
        Inequality("density", lambda u, p: LEAST - u[0]),
        Inequality("pressure", lambda u, p: LEAST - _pressure(u)),
    )
    return Setting(laws, truth, {})


@case(64, tiny=6, group="issue", far=0.1, channels=True)
def shock_tube(samples: int, generator: torch.Generator, size: int) -> Setting:
    """The same in kilograms, meters and seconds: densities near 1, momenta near 100, energies near 250 000.

    Nearest is meant in units of this size; rounding of energies is a hundredth of the tolerance.
    """
    ratio = 0.001  # seconds per meter
    left = torch.arange(size) < size // 2
    jump = 1.0 + 0.2 * torch.rand(samples, 2, 1, generator=generator, dtype=torch.float64)
    density = torch.where(left, 1.2 * jump[:, 0], 0.3 * jump[:, 1]) * (1.0 + 0.02 * smooth(samples, (size,), generator))
    pressure = torch.where(left, 1e5 * jump[:, 0], 2e4 * jump[:, 1])
    momentum = 30.0 * density
    energy = pressure / (GAMMA - 1) + 0.5 * momentum.square() / density
    truth = _march(torch.stack([density, momentum, energy], dim=1), _gas, ratio, STEPS)
    laws = (
        Equality("euler", _rows(_gas, ratio)),
        Inequality("density", lambda u, p: LEAST - u[0]),
        Inequality("pressure", lambda u, p: LEAST - _pressure(u)),
    )
    units = torch.tensor([1.0, 100.0, 2.5e5], dtype=torch.float64)[:, None, None]
    return Setting(laws, truth, {}, units)


def _water(u: Tensor) -> Tensor:
    depth, momentum = u.unbind(-3)
    return torch.stack([momentum, momentum.square() / depth + 0.5 * depth.square()], dim=-3)


@case(64, tiny=6, group="issue", far=0.2, channels=True)
def shallow_water(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Depth and momentum of water after a dam breaks, depth positive, the total of each step balanced by the rows."""
    ratio = 0.4
    depth = torch.where(torch.arange(size) < size // 2, 1.0, 0.4) + 0.05 * smooth(samples, (size,), generator)
    momentum = 0.1 * depth
    truth = _march(torch.stack([depth, momentum], dim=1), _water, ratio, STEPS)
    lower = torch.tensor([LEAST, -torch.inf], dtype=torch.float64).reshape(2, 1, 1)
    return Setting((Equality("shallow water", _rows(_water, ratio)), Bounds(lower=lower)), truth, {})


def _burgers(u: Tensor) -> Tensor:
    return 0.5 * u.square()


@case(48, tiny=6)
def entropy_burgers(samples: int, generator: torch.Generator, size: int, count: int = 16) -> Setting:
    """Burgers' equation by Lax–Friedrichs with the entropy condition of every cell and step as an inequality."""
    ratio = 0.3
    start = torch.where(torch.arange(size) < size // 2, 1.0, -0.2) + 0.1 * smooth(samples, (size,), generator)
    truth = _march(start[:, None], _burgers, ratio, count)[:, 0]

    def entropy(u: Tensor, p: Params) -> Tensor:
        old, new = 0.5 * u[:, :-1].square(), 0.5 * u[1:-1, 1:].square()
        through = u[:, :-1] ** 3 / 3
        return new - 0.5 * (old[2:] + old[:-2]) + 0.5 * ratio * (through[2:] - through[:-2])

    laws = (Equality("burgers", _rows(_burgers, ratio)), Inequality("entropy", entropy))
    return Setting(laws, truth, {})


@case(101, tiny=11, slack=1.0)
def burgers_flux(samples: int, generator: torch.Generator, size: int) -> Setting:
    """The shipped problem burgers-ic-mass-flux with a flux row at every step; inflow changes the mass of its truth."""
    problem = snapfm.problem("burgers-ic-mass-flux", nx=size, nt=size, flux_steps=None)
    truth, params = problem.truth(samples, generator)
    return Setting(tuple(problem.laws), truth, dict(params))


@case(64, tiny=8, channels=True)
def traffic(samples: int, generator: torch.Generator, size: int, count: int = 24) -> Setting:
    """Density and flow of traffic: q = ρ(1 − ρ)², ρ balanced by q at every step, 0 ≤ ρ ≤ 1."""
    ratio = 0.5
    density = 0.4 + 0.1 * smooth(samples, (size,), generator).clamp(-3, 3)
    slices = [density]
    for _ in range(count - 1):
        old = slices[-1]
        flow = old * (1 - old).square()
        ahead, behind = torch.roll(old, -1, 1), torch.roll(old, 1, 1)
        slices.append(
            0.5 * (ahead + behind) - 0.5 * ratio * (torch.roll(flow, -1, 1) - torch.roll(flow, 1, 1))
        )  # fmt: skip
    density = torch.stack(slices, dim=-1)
    truth = torch.stack([density, density * (1 - density).square()], dim=1)

    def balance(u: Tensor, p: Params) -> Tensor:
        old, flow = u[0, :, :-1], u[1, :, :-1]
        spread = 0.5 * (torch.roll(old, -1, 0) + torch.roll(old, 1, 0))
        return u[0, :, 1:] - spread + 0.5 * ratio * (torch.roll(flow, -1, 0) - torch.roll(flow, 1, 0))

    laws = (
        Equality("balance", balance),
        Equality("diagram", lambda u, p: u[1] - u[0] * (1 - u[0]).square()),
        Bounds(lower=0.0, upper=1.0),
    )
    return Setting(laws, truth, {})
