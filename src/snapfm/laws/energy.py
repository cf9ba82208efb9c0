"""The energy of the heat equation: it may only fall, or falls exactly by what diffusion dissipates."""

from __future__ import annotations

from torch import Tensor

from snapfm.grid import Grid
from snapfm.laws.base import Equality, Inequality, Params


def energy_decay(grid: Grid) -> Inequality:
    """Let dx·Σu² never grow from one slice to the next (math.md, eq. energy-decay)."""
    dx = grid.spacing("x")

    def residual(u: Tensor, params: Params) -> Tensor:
        energy = dx * (u**2).sum(0)
        return energy[1:] - energy[:-1]

    return Inequality("energy", residual)


def energy_balance(grid: Grid, diffusivity: float) -> Equality:
    """Let dx·Σu² fall by 2κ dt ∫u_x², explicit in time (math.md, eq. energy-balance).

    Together with an initial condition, mass and the forward-Euler rows of the first steps it is slightly infeasible:
    they leave two end points free, whose smallest energy is already above the one asked for.
    """
    dx, dt = grid.spacing("x"), grid.spacing("t")

    def residual(u: Tensor, params: Params) -> Tensor:
        energy = dx * (u**2).sum(0)
        dissipation = ((u[1:] - u[:-1]) ** 2).sum(0) / dx
        return energy[1:] - energy[:-1] + 2.0 * diffusivity * dt * dissipation[:-1]

    return Equality("energy", residual)
