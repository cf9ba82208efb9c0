"""Many inequalities and bounds: monotone and convex profiles, transport plans."""

from __future__ import annotations

import torch

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import randn
from snapfm.laws import Bounds, Equality, Inequality


@case(128, tiny=8)
def monotone(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A rising profile between 0 and 1 with a given integral."""
    u = torch.sort(torch.rand(samples, size, generator=generator, dtype=torch.float64), dim=1).values
    laws = (
        Inequality("rising", lambda u, p: u[:-1] - u[1:]),
        Equality("integral", lambda u, p: u.mean() - p["mean"]),
        Bounds(lower=0.0, upper=1.0),
    )
    return Setting(laws, u, {"mean": u.mean(1)})


@case(96, tiny=8)
def convex(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A convex profile with given ends and a given length of its graph at most."""
    bends = torch.rand(samples, size - 2, generator=generator, dtype=torch.float64) / size**2
    slopes = torch.cumsum(torch.cat([-0.5 * torch.ones(samples, 1, dtype=torch.float64) / size, bends], 1), 1)
    u = torch.cat([torch.ones(samples, 1, dtype=torch.float64), 1.0 + torch.cumsum(slopes, 1)], 1)

    def length(u: torch.Tensor) -> torch.Tensor:
        return torch.sqrt(1.0 + ((u[..., 1:] - u[..., :-1]) * size).square()).mean(-1)

    laws = (
        Inequality("convex", lambda u, p: 2 * u[1:-1] - u[:-2] - u[2:]),
        Inequality("length", lambda u, p: length(u) - p["length"]),
        Equality("ends", lambda u, p: u[[0, -1]] - p["ends"]),
    )
    return Setting(laws, u, {"length": length(u), "ends": u[:, [0, -1]]})


@case(24, tiny=4)
def transport(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A transport plan: both marginals given, nothing negative; one row too many."""
    u = torch.softmax(randn(samples, size * size, generator=generator), dim=1).reshape(samples, size, size) * size
    laws = (
        Equality("rows", lambda u, p: u.sum(1) - p["rows"]),
        Equality("columns", lambda u, p: u.sum(0) - p["columns"]),
        Bounds(lower=0.0),
    )
    return Setting(laws, u, {"rows": u.sum(2), "columns": u.sum(1)})


@case(40, tiny=6)
def tank(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A reservoir over time: level, inflow and outflow balance, outflow √level times a valve, all within limits."""
    valve = 0.3 + 0.4 * torch.rand(samples, size, generator=generator, dtype=torch.float64)
    inflow = 0.4 + 0.3 * torch.rand(samples, size, generator=generator, dtype=torch.float64)
    level = [torch.ones(samples, dtype=torch.float64)]
    for k in range(size - 1):
        level.append(level[-1] + 0.1 * (inflow[:, k] - valve[:, k] * torch.sqrt(level[-1])))
    u = torch.stack([torch.stack(level, 1), inflow, valve], dim=1)
    low = torch.tensor([0.05, 0.0, 0.0], dtype=torch.float64)[:, None]
    high = torch.tensor([3.0, 1.0, 1.0], dtype=torch.float64)[:, None]
    laws = (
        Equality(
            "balance", lambda u, p: u[0, 1:] - u[0, :-1] - 0.1 * (u[1, :-1] - u[2, :-1] * torch.sqrt(u[0, :-1]))
        ),
        Equality("start", lambda u, p: u[0, 0] - 1.0),
        Bounds(lower=low, upper=high),
    )  # fmt: skip
    return Setting(laws, u, {})
