"""The heat equation itself, point by point: explicit as the release has it, implicit and spectral as physics has it.

The implicit and spectral rows leave out the point that the repeated end closes: summed over space they would repeat
the conservation of mass, and rows that repeat each other have no multipliers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from snapfm.grid import Grid
from snapfm.laws.base import Equality, Params
from snapfm.laws.steps import checked_steps


def forward_euler(grid: Grid, diffusivity: float, steps: int | None = 5) -> Equality:
    """State u_t = κu_xx by forward Euler on the inner points of the first `steps` steps (math.md, eq. heat-euler).

    Stable data need κ dt/dx² <= 1/2.
    """
    count = checked_steps(grid, steps, "forward_euler(steps)")
    dx, dt = grid.spacing("x"), grid.spacing("t")

    def residual(u: Tensor, params: Params) -> Tensor:
        now, later = u[:, :count], u[:, 1 : count + 1]
        return (later - now)[1:-1] / dt - diffusivity / dx**2 * _bend(now)

    return Equality("pde", residual)


def crank_nicolson(grid: Grid, steps: int | None = 5, param: str = "alpha") -> Equality:
    """State u_t = αu_xx by Crank–Nicolson with α = params[param] per sample (math.md, eq. heat-crank-nicolson).

    Written as an increment, in the units of the field. Second order in dx and dt, stable for any α.
    """
    count = checked_steps(grid, steps, "crank_nicolson(steps)")
    ratio = grid.spacing("t") / (2.0 * grid.spacing("x") ** 2)

    def residual(u: Tensor, params: Params) -> Tensor:
        now, later = u[:, :count], u[:, 1 : count + 1]
        return (later - now)[1:-1] - ratio * params[param] * _bend(now + later)

    return Equality("pde", residual)


def heat_kernel(grid: Grid, steps: int | None = 5, param: str = "alpha") -> Equality:
    """Move each slice to the next by the exact heat kernel, wave by wave (math.md, eq. heat-kernel).

    Obeyed to rounding by every resolved solution; each row reads a whole slice.
    """
    count = checked_steps(grid, steps, "heat_kernel(steps)")
    axis, dt = grid.axis("x"), grid.spacing("t")
    points = axis.size - 1
    base = 2.0 * math.pi / (axis.stop - axis.start)

    def residual(u: Tensor, params: Params) -> Tensor:
        waves = base * torch.arange(points // 2 + 1, dtype=u.dtype, device=u.device)
        decay = torch.exp(-params[param] * dt * waves**2)
        spectrum = torch.fft.rfft(u[:-1, :count], dim=0)
        moved: Tensor = torch.fft.irfft(decay[:, None] * spectrum, n=points, dim=0)
        return u[1:-1, 1 : count + 1] - moved[1:]

    return Equality("pde", residual)


def _bend(u: Tensor) -> Tensor:
    """Second difference over x at the inner points."""
    return u[2:] - 2.0 * u[1:-1] + u[:-2]
