"""Laws with kinks: abs, where, max, clamp and sorted sums. The nearest field often lies on a kink."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import smooth
from snapfm.laws import Equality, Inequality, Params


@case(64, tiny=8, group="issue", small=0.1, far=1.0)
def total_variation(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Total variation at most that of the true profile."""
    u = torch.where(torch.arange(size) < size // 2, 0.0, 1.0) + 0.2 * smooth(samples, (size,), generator)

    def variation(u: Tensor) -> Tensor:
        return (u[..., 1:] - u[..., :-1]).abs().sum(-1)

    laws = (Inequality("variation", lambda u, p: variation(u) - p["most"]),)
    return Setting(laws, u, {"most": variation(u)})


@case(24, tiny=5, small=0.1)
def variation_plane(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Total variation of a picture at most that of the true one, and its mean given."""
    u = torch.where(smooth(samples, (size, size), generator) > 0, 1.0, 0.0).double()

    def variation(u: Tensor) -> Tensor:
        return (u[..., 1:, :] - u[..., :-1, :]).abs().sum((-2, -1)) + (u[..., 1:] - u[..., :-1]).abs().sum((-2, -1))

    laws = (
        Inequality("variation", lambda u, p: variation(u) - p["most"]),
        Equality("mean", lambda u, p: u.mean() - p["mean"]),
    )
    return Setting(laws, u, {"most": variation(u), "mean": u.mean((1, 2))})


@case(9, tiny=5, group="issue")
def upwind(samples: int, generator: torch.Generator, size: int, count: int = 7) -> Setting:
    """uₜ + u uₓ = 0 with the difference taken against the wind, by torch.where."""
    ratio = 0.2

    def new(u: Tensor) -> Tensor:
        middle = u[..., 1:-1, :]
        behind, ahead = middle - u[..., :-2, :], u[..., 2:, :] - middle
        return middle - ratio * middle * torch.where(middle > 0, behind, ahead)

    slices = [smooth(samples, (size,), generator)[..., None]]
    for _ in range(count - 1):
        old = slices[-1]
        slices.append(torch.cat([old[:, :1], new(old), old[:, -1:]], dim=1))
    laws = (Equality("upwind", lambda u, p: u[1:-1, 1:] - new(u[:, :-1])),)
    return Setting(laws, torch.cat(slices, dim=-1), {})


@case(9, tiny=4, group="issue")
def highest(samples: int, generator: torch.Generator, size: int, count: int = 7) -> Setting:
    """The highest value of each column is given, by amax over an axis."""
    u = smooth(samples, (size, count), generator)
    return Setting((Equality("highest", lambda u, p: u.amax(0) - p["peak"]),), u, {"peak": u.amax(1)})


@case(24, tiny=5)
def peak_limit(samples: int, generator: torch.Generator, size: int, count: int = 20) -> Setting:
    """The highest value over time of every point stays below its limit, and the total of every time is given."""
    u = smooth(samples, (size, count), generator)
    laws = (
        Inequality("peak", lambda u, p: u.amax(-1) - p["limit"]),
        Equality("total", lambda u, p: u.sum(0) - p["total"]),
    )
    return Setting(laws, u, {"limit": u.amax(-1), "total": u.sum(1)})


@case(32, tiny=6)
def largest_sums(samples: int, generator: torch.Generator, size: int) -> Setting:
    """The sum of the quarter of largest values is bounded, by a sort, and the mean is given."""
    u = smooth(samples, (size,), generator)
    few = max(1, size // 4)

    def top(u: Tensor) -> Tensor:
        return torch.sort(u, dim=-1, descending=True).values[..., :few].sum(-1)

    laws = (
        Inequality("largest", lambda u, p: top(u) - p["most"]),
        Equality("mean", lambda u, p: u.mean() - p["mean"]),
    )
    return Setting(laws, u, {"most": top(u), "mean": u.mean(1)})


def _temperature(heat: Tensor) -> Tensor:
    """Temperature from enthalpy: ice below 0, melting between 0 and 1, water above."""
    return torch.clamp(heat, max=0.0) + torch.relu(heat - 1.0)


@case(40, tiny=6)
def stefan(samples: int, generator: torch.Generator, size: int, count: int = 12) -> Setting:
    """Melting ice: enthalpy hₜ = T(h)ₓₓ with a plateau in T, explicit at every step, no initial condition."""
    ratio = 0.3
    slices = [(0.5 + 1.2 * smooth(samples, (size,), generator))[..., None]]

    def bend(u: Tensor) -> Tensor:
        t = _temperature(u)
        return t[..., 2:, :] - 2 * t[..., 1:-1, :] + t[..., :-2, :]

    for _ in range(count - 1):
        old = slices[-1]
        slices.append(torch.cat([old[:, :1], old[:, 1:-1] + ratio * bend(old), old[:, -1:]], dim=1))
    laws = (Equality("melting", lambda u, p: u[1:-1, 1:] - u[1:-1, :-1] - ratio * bend(u[:, :-1])),)
    return Setting(laws, torch.cat(slices, dim=-1), {})


@case(32, tiny=6)
def friction(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Coulomb's cone at every contact: |tangential force| ≤ μ · normal force, both sums given."""
    normal = 1.0 + 0.3 * smooth(samples, (size,), generator).clamp(-2, 2)
    share = smooth(samples, (size,), generator).clamp(-1, 1)
    u = torch.stack([normal, 0.5 * normal * share], dim=1)

    def cone(u: Tensor, p: Params) -> Tensor:
        return u[1].abs() - 0.5 * u[0]

    laws = (Inequality("cone", cone), Equality("total", lambda u, p: u.sum(1) - p["total"]))
    return Setting(laws, u, {"total": u.sum(2)})


@case(9, tiny=5, group="issue")
def upwind_slopes(samples: int, generator: torch.Generator, size: int, count: int = 7) -> Setting:
    """Differences against the wind are given at inner points, by torch.where: rows jump where the wind turns."""

    def slopes(u: Tensor) -> Tensor:
        middle = u[..., 1:-1, :]
        return torch.where(middle > 0, middle - u[..., :-2, :], u[..., 2:, :] - middle)

    u = smooth(samples, (size, count), generator)
    return Setting((Equality("slopes", lambda u, p: slopes(u) - p["slopes"]),), u, {"slopes": slopes(u)})


@case(24, tiny=6)
def upwind_eikonal(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Distances on a grid with given speeds: the largest one-sided slope of each axis, squared and summed, by maximum."""
    u = smooth(samples, (size, size), generator)

    def rows(u: Tensor) -> Tensor:
        middle = u[..., 1:-1, 1:-1]
        across = torch.maximum(middle - u[..., :-2, 1:-1], middle - u[..., 2:, 1:-1]).clamp(min=0.0)
        along = torch.maximum(middle - u[..., 1:-1, :-2], middle - u[..., 1:-1, 2:]).clamp(min=0.0)
        return across.square() + along.square()

    return Setting((Equality("eikonal", lambda u, p: rows(u) - p["speed"]),), u, {"speed": rows(u)})
