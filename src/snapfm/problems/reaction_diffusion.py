"""Reaction–diffusion u_t = ρu(1 − u) + νu_xx on [0, 1] with inflow at both ends, and its law set."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from snapfm.grid import Axis, Grid
from snapfm.laws.balance import mass_evolution
from snapfm.laws.initial import initial
from snapfm.problems.base import Problem
from snapfm.problems.draws import uniform
from snapfm.problems.strang import strang_fields
from snapfm.problems.variants import Discretization, law_grid
from snapfm.seeds import draw, stream

RATE = 0.01  # ρ
DIFFUSIVITY = 0.005  # ν
LEFT_FLUX = (0.0, 0.05)  # g_L = 0.05 U, into the domain
RIGHT_FLUX = (-0.05, 0.0)  # g_R = −0.05 U, into the domain too
SUBSTEPS = 1  # per slice: splitting is off by 5e-7 at most on the standard grid, finite volumes by far more

_WAVES = 3  # wave numbers 1 .. 3, two of which are picked, with repetition
_PICKS = 2
_FOLD = 0.1  # chance of taking the absolute value
_WINDOW = 0.1  # chance of a window
_WINDOW_LEFT, _WINDOW_RIGHT, _WINDOW_WIDTH = (0.1, 0.45), (0.55, 0.9), 0.01


def reaction_diffusion_grid(nx: int = 64, nt: int = 100) -> Grid:
    """Space and time [0, 1], both end points included."""
    return Grid((Axis("x", 0.0, 1.0, nx), Axis("t", 0.0, 1.0, nt)))


def profile(grid: Grid, random: torch.Generator) -> Tensor:
    """Draw one initial state (nx,): random sinusoids, sometimes folded or windowed, scaled to [0, 1]."""
    x = grid.axis("x").points()
    picks = torch.randint(_WAVES, (_PICKS,), generator=random)
    # A wave number picked twice counts double, one not picked is a constant, which the scaling removes.
    waves = torch.arange(1, _WAVES + 1) * torch.bincount(picks, minlength=_WAVES)
    size = torch.rand(_WAVES, generator=random, dtype=torch.float64)
    angle = 2 * math.pi * torch.rand(_WAVES, generator=random, dtype=torch.float64)
    u = (size[:, None] * torch.sin(2 * math.pi * waves[:, None] * x + angle[:, None])).sum(0)
    fold, flip, window = torch.rand(3, generator=random, dtype=torch.float64).tolist()
    left, right = uniform(random, _WINDOW_LEFT), uniform(random, _WINDOW_RIGHT)
    if fold < _FOLD:
        u = u.abs()
    if flip < 0.5:
        u = -u
    if window < _WINDOW:
        u = 0.5 * u * (torch.tanh((x - left) / _WINDOW_WIDTH) - torch.tanh((x - right) / _WINDOW_WIDTH))
    return (u - u.min()) / (u.max() - u.min())


def reaction_diffusion_ic_mass(
    nx: int = 64,
    nt: int = 100,
    initial_seed: int | None = 0,
    *,
    inner: bool = False,
    discretization: Discretization = "grid",
) -> Problem:
    """Initial condition and mass evolution; 64 points as in the release, 128 as in the paper.

    Every sample is asked for the initial state that `initial_seed` draws, or with None for one of its own. `inner`
    balances the points between the outermost faces instead of all: simulated fields obey that to second order in dt.
    """
    grid = reaction_diffusion_grid(nx, nt)
    spacing = law_grid("reaction_diffusion_ic_mass(discretization)", grid, discretization)
    shared = None if initial_seed is None else profile(grid, stream(initial_seed, 0))

    def fluxes(random: torch.Generator) -> Tensor:
        return torch.stack([uniform(random, LEFT_FLUX), uniform(random, RIGHT_FLUX)])

    def asked(random: torch.Generator) -> Tensor:
        return profile(grid, random) if shared is None else shared

    def fields(drawn: Tensor) -> Tensor:
        return strang_fields(grid, drawn[:, :nx], drawn[:, nx:], RATE, DIFFUSIVITY, SUBSTEPS)

    def draw_params(seed: int, start: int, count: int) -> dict[str, Tensor]:
        return {"u0": draw(seed, start, count, asked)}

    def draw_training(seed: int, start: int, count: int) -> tuple[Tensor, dict[str, Tensor]]:
        drawn = draw(seed, start, count, lambda random: torch.cat([profile(grid, random), fluxes(random)]))
        return fields(drawn), {"u0": drawn[:, :nx], "flux_left": drawn[:, nx], "flux_right": drawn[:, nx + 1]}

    def draw_truth(seed: int, start: int, count: int) -> tuple[Tensor, dict[str, Tensor]]:
        drawn = draw(seed, start, count, lambda random: torch.cat([asked(random), fluxes(random)]))
        return fields(drawn), {"u0": drawn[:, :nx]}

    return Problem(
        name="reaction-diffusion-ic-mass",
        summary="initial condition and mass evolution by growth and boundary flux",
        equation="reaction-diffusion",
        grid=grid,
        laws=(initial(), mass_evolution(spacing, RATE, DIFFUSIVITY, inner=inner)),
        draw_params=draw_params,
        draw_training=draw_training,
        draw_truth=draw_truth,
    )
