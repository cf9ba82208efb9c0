"""Few totals over a whole field beside bounds: states of climates, densities, pictures, portfolios, ensembles, areas."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import randn, smooth
from snapfm.laws import Bounds, Equality, Inequality

_HEAT, _LATENT = 3.5, 8.0  # of dry air and of vapor, in units in which winds, mass and temperature are of order one


@case(36, tiny=4, group="issue", small=0.02, far=0.3, channels=True)
def climate(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Mass, temperature, moisture and winds on a globe: dry mass, water and energy are given, moisture is not negative."""
    latitude = torch.pi * ((torch.arange(size, dtype=torch.float64) + 0.5) / size - 0.5)
    area = (torch.cos(latitude)[:, None] / (2 * size)).expand(size, 2 * size) / torch.cos(latitude).sum()

    def total(values: Tensor) -> Tensor:
        return (area * values).sum((-2, -1))

    def dry(u: Tensor) -> Tensor:
        return total(u[..., 0, :, :] * (1.0 - u[..., 2, :, :]))

    def water(u: Tensor) -> Tensor:
        return total(u[..., 0, :, :] * u[..., 2, :, :])

    def energy(u: Tensor) -> Tensor:
        mass, heat, moisture, east, north = u.unbind(-3)
        return total(mass * (_HEAT * heat + _LATENT * moisture + 0.5 * (east.square() + north.square())))

    draws = [smooth(samples, (size, 2 * size), generator) for _ in range(5)]
    mass, heat = 1.0 + 0.03 * draws[0], 1.0 + 0.05 * draws[1]
    truth = torch.stack([mass, heat, 0.01 * torch.relu(draws[2]), 0.3 * draws[3], 0.3 * draws[4]], dim=1)
    amounts = {"dry": dry, "water": water, "energy": energy}
    low = torch.tensor([0.0, 0.0, 0.0, -torch.inf, -torch.inf], dtype=torch.float64)[:, None, None]
    laws = tuple(
        Equality(name, lambda u, p, name=name, amount=amount: amount(u) - p[name]) for name, amount in amounts.items()
    )
    return Setting((*laws, Bounds(lower=low)), truth, {name: amount(truth) for name, amount in amounts.items()})


@case(64, tiny=8, group="issue", small=0.1, far=1.0)
def downscaling(samples: int, generator: torch.Generator, size: int, block: int = 4) -> Setting:
    """Rain on a fine grid: means of blocks are those of the coarse field, and no rain is negative."""

    def coarse(u: Tensor) -> Tensor:
        return u.unflatten(-1, (-1, block)).unflatten(-3, (-1, block)).mean((-3, -1))

    u = torch.relu(smooth(samples, (size, size), generator))
    laws = (Equality("blocks", lambda u, p: coarse(u) - p["coarse"]), Bounds(lower=0.0))
    return Setting(laws, u, {"coarse": coarse(u)})


@case(40, tiny=6, small=0.05, far=0.5)
def density(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A positive density in a plane: its total, mean energy and entropy are given."""
    place = torch.linspace(-1.0, 1.0, size, dtype=torch.float64)
    potential = place[:, None].square() + 0.5 * place**4

    def energy(u: Tensor) -> Tensor:
        return (potential * u).mean((-2, -1))

    def entropy(u: Tensor) -> Tensor:
        return -(u * torch.log(u)).mean((-2, -1))

    u = torch.exp(smooth(samples, (size, size), generator) - potential)
    u = u / u.mean((1, 2), keepdim=True)
    laws = (
        Equality("total", lambda u, p: u.mean() - 1.0),
        Equality("energy", lambda u, p: energy(u) - p["energy"]),
        Equality("entropy", lambda u, p: entropy(u) - p["entropy"]),
        Bounds(lower=1e-3),
    )
    return Setting(laws, u, {"energy": energy(u), "entropy": entropy(u)})


@case(50, tiny=6, small=0.1, far=1.0)
def portfolio(samples: int, generator: torch.Generator, size: int, periods: int = 12) -> Setting:
    """Shares of assets over several periods: they sum to one, are not negative; limits of risk and of turnover."""
    seed = torch.Generator().manual_seed(21)
    loading = randn(size, 4, generator=seed)
    spread = 0.1 + torch.rand(size, generator=seed, dtype=torch.float64)

    def risk(w: Tensor) -> Tensor:
        return (w @ loading).square().sum(-1) + (spread * w.square()).sum(-1)

    def turnover(w: Tensor) -> Tensor:
        return (w[..., 1:, :] - w[..., :-1, :]).abs().sum(-1)

    w = torch.softmax(smooth(samples, (periods, size), generator), dim=-1)
    laws = (
        Equality("whole", lambda w, p: w.sum(-1) - 1.0),
        Inequality("risk", lambda w, p: risk(w) - p["risk"]),
        Inequality("turnover", lambda w, p: turnover(w) - p["turnover"]),
        Bounds(lower=0.0),
    )
    return Setting(laws, w, {"risk": risk(w), "turnover": turnover(w)})


@case(48, tiny=6, small=0.1, far=0.5)
def histogram(samples: int, generator: torch.Generator, size: int, bins: int = 8) -> Setting:
    """A picture with values between zero and one: a smoothed histogram, the mean and the variance are given."""
    center = (torch.arange(bins, dtype=torch.float64) + 0.5) / bins

    def shares(u: Tensor) -> Tensor:
        return torch.exp(-0.5 * ((u[..., None] - center) * bins).square()).mean((-3, -2))

    u = torch.sigmoid(1.5 * smooth(samples, (size, size), generator))
    laws = (
        Equality("histogram", lambda u, p: shares(u) - p["shares"]),
        Equality("mean", lambda u, p: u.mean() - p["mean"]),
        Equality("variance", lambda u, p: u.var() - p["variance"]),
        Bounds(lower=0.0, upper=1.0),
    )
    return Setting(laws, u, {"shares": shares(u), "mean": u.mean((1, 2)), "variance": u.var((1, 2))})


@case(16, tiny=4, small=0.1, far=0.5)
def ensemble(samples: int, generator: torch.Generator, size: int, members: int = 8) -> Setting:
    """Members of a forecast: their mean and variance at every point, and the total of each of them."""
    u = torch.stack([smooth(samples, (size, size), generator) for _ in range(members)], dim=1)
    laws = (
        Equality("mean", lambda u, p: u.mean(0) - p["mean"]),
        Equality("variance", lambda u, p: u.var(0) - p["variance"]),
        Equality("total", lambda u, p: u[1:].mean((1, 2)) - p["total"]),
    )
    return Setting(laws, u, {"mean": u.mean(1), "variance": u.var(1), "total": u[:, 1:].mean((2, 3))})


@case(32, tiny=6, small=0.1, far=0.5)
def area(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A surface over a square whose area is at most that of the true one and whose volume is given."""

    def surface(u: Tensor) -> Tensor:
        across = (u[..., 1:, :-1] - u[..., :-1, :-1]) * size
        along = (u[..., :-1, 1:] - u[..., :-1, :-1]) * size
        return (1.0 + across.square() + along.square()).sqrt().mean((-2, -1))

    u = 0.2 * smooth(samples, (size, size), generator)
    laws = (
        Inequality("area", lambda u, p: surface(u) - p["most"]),
        Equality("volume", lambda u, p: u.mean() - p["volume"]),
    )
    return Setting(laws, u, {"most": surface(u), "volume": u.mean((1, 2))})
