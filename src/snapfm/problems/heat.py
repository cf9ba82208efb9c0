"""The heat equation u_t = α u_xx on [0, 2π], periodic, with its exact solutions and law sets."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from snapfm.grid import Axis, Grid
from snapfm.laws.initial import initial
from snapfm.laws.mass import mass
from snapfm.problems.base import Problem
from snapfm.seeds import draw

DIFFUSIVITY = (1.0, 5.0)  # α ~ U(1, 5)
PHASE = (0.0, math.pi)  # φ ~ U(0, π)
INFERENCE_PHASE = math.pi / 4  # the initial condition asked of every sample at inference: sin(x + π/4)


def heat_grid(nx: int = 100, nt: int = 100) -> Grid:
    """Space [0, 2π] with its repeated end point, time [0, 1]."""
    return Grid((Axis("x", 0.0, 2 * math.pi, nx, periodic=True), Axis("t", 0.0, 1.0, nt)))


def exact(grid: Grid, diffusivity: Tensor, phase: Tensor) -> Tensor:
    """Evaluate exp(−αt) sin(x + φ) for a batch of (α, φ) (math.md, eq. heat)."""
    x, t = grid.axis("x").points(), grid.axis("t").points()
    decay = torch.exp(-diffusivity[:, None] * t)
    wave = torch.sin(x + phase[:, None])
    return wave[:, :, None] * decay[:, None, :]


def heat_ic_mass(nx: int = 100, nt: int = 100, phase: float | None = INFERENCE_PHASE) -> Problem:
    """Initial condition and conserved mass; `phase=None` draws the initial phase per sample instead of fixing it."""
    grid = heat_grid(nx, nt)
    x = grid.axis("x").points()

    def draw_params(seed: int, start: int, count: int) -> dict[str, Tensor]:
        if phase is None:
            phases = draw(seed, start, count, lambda stream: _uniform(stream, PHASE))
        else:
            phases = torch.full((count,), phase, dtype=torch.float64)
        return {"u0": torch.sin(x + phases[:, None])}

    def draw_fields(seed: int, start: int, count: int) -> Tensor:
        drawn = draw(
            seed, start, count, lambda stream: torch.stack([_uniform(stream, DIFFUSIVITY), _uniform(stream, PHASE)])
        )
        return exact(grid, drawn[:, 0], drawn[:, 1])

    return Problem(
        name="heat-ic-mass",
        summary="initial condition and conserved mass, all affine",
        equation="heat",
        grid=grid,
        laws=(initial(), mass(grid)),
        draw_params=draw_params,
        draw_fields=draw_fields,
    )


def _uniform(stream: torch.Generator, limits: tuple[float, float]) -> Tensor:
    low, high = limits
    return low + (high - low) * torch.rand((), generator=stream, dtype=torch.float64)
