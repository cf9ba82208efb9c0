"""Forced Navier–Stokes flow on the periodic unit square as vorticity, and its law sets."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

import numpy as np
import scipy.fft
import torch
from torch import Tensor

from snapfm.errors import ShapeError
from snapfm.grid import Axis, Grid
from snapfm.laws import Law
from snapfm.laws.enstrophy import enstrophy
from snapfm.laws.initial import initial
from snapfm.laws.mass import mass
from snapfm.problems.base import Problem
from snapfm.problems.draws import uniform
from snapfm.problems.fourier import Array, Waves, regrid
from snapfm.problems.variants import Discretization, choose
from snapfm.problems.vorticity import vorticity_waves
from snapfm.seeds import draw

VISCOSITY = 1e-3  # ν
DURATION = 49.0  # T, one time unit between the 50 slices
FORCE = 0.1 * math.sqrt(2)  # amplitude of the forcing sin(2π(x + y) + φ)
FORCE_PHASE = (0.0, math.pi / 2)  # φ
RESOLUTION = 64  # points per axis of the simulation; fields are restricted from it

# The Gaussian random field of initial states: power 2·7³·(4π²|k|² + 7²)^−2.5 per wave, zero mean.
_DECAY = 2.5
_CORRELATION = 7.0
_FIELD_POINTS = 64  # the field is drawn on this lattice whatever the resolution, so that refining keeps the state

_TILE = 8  # samples simulated at once: their work arrays stay in the cache

State: TypeAlias = Literal["sine", "random"]


def navier_stokes_grid(size: int = 16, nt: int = 50, discretization: Discretization = "grid") -> Grid:
    """Space [0, 1) with points j/size, time [0, 49]; "release" puts the points at j/(size − 1), both ends included.

    Neither axis is flagged periodic: that flag means a repeated end point to leave out of sums, and here every point
    counts ("grid" has no repeated one, the release counts it).
    """
    last = 1.0 - 1.0 / max(size, 1)  # Axis refuses sizes below 2, with words
    stop = choose("navier_stokes_grid(discretization)", discretization, {"grid": last, "release": 1.0})
    return Grid((Axis("x", 0.0, stop, size), Axis("y", 0.0, stop, size), Axis("t", 0.0, DURATION, nt)))


def random_state(random: torch.Generator, points: int) -> Tensor:
    """Draw one Gaussian random field (points, points) with zero mean."""
    noise = torch.randn(_FIELD_POINTS, _FIELD_POINTS, 2, generator=random, dtype=torch.float64).numpy()
    waves = _FIELD_POINTS * scipy.fft.fftfreq(_FIELD_POINTS)
    square = 4 * np.pi**2 * (waves[:, None] ** 2 + waves**2)
    deviation = math.sqrt(2) * _CORRELATION ** (_DECAY - 1) * (square + _CORRELATION**2) ** (-_DECAY / 2)
    deviation[0, 0] = 0.0
    field = scipy.fft.ifft2(_FIELD_POINTS**2 * deviation * (noise[..., 0] + 1j * noise[..., 1])).real
    return torch.from_numpy(regrid(scipy.fft.rfft2(field), _FIELD_POINTS, points))


def sine_state(points: int) -> Tensor:
    """Evaluate the initial state asked at inference, sin(2πy), at y = j/points."""
    y = torch.arange(points, dtype=torch.float64) / points
    return torch.sin(2 * math.pi * y).expand(points, points)


def navier_stokes_fields(start: Tensor, phase: Tensor, grid: Grid, step: float | None = None) -> Tensor:
    """Simulate states (b, n, n) with forcing phases (b,), restricted to the grid: (b, *grid.shape).

    Fourier truncation restricts, so the restricted field keeps the mean of the simulated one. Measured on eight
    benchmark states on one core, with the largest error on 16 × 16 points against 128 × 128: five seconds and 4e-7 at
    64 × 64, half a second and 3e-4 (1e-5 on average) at 32 × 32.
    """
    points = start.shape[-1]
    x = np.arange(points) / points
    wave = 2 * np.pi * (x[:, None] + x)
    times = grid.axis("t")
    tiles = []
    for first in range(0, len(start), _TILE):
        angle = phase[first : first + _TILE].numpy()[:, None, None]
        spectra = vorticity_waves(
            start[first : first + _TILE].numpy(), FORCE * np.sin(wave + angle), times.size, times.stop, VISCOSITY, step
        )
        tiles.append(np.stack([_on_grid(spectrum, points, grid) for spectrum in spectra], axis=-1))
    return torch.from_numpy(np.concatenate(tiles))


def navier_stokes_ic_mass(
    size: int = 16,
    nt: int = 50,
    state: State = "sine",
    *,
    resolution: int = RESOLUTION,
    discretization: Discretization = "grid",
) -> Problem:
    """Initial condition and total vorticity, both of which the flow obeys.

    `state` asks every sample for sin(2πy), or for a random state of its own. `resolution` is the simulation's.
    """
    grid = navier_stokes_grid(size, nt, discretization)
    summary = "initial condition and total vorticity, all affine"
    return _problem("navier-stokes-ic-mass", summary, grid, (initial(), mass(grid)), state, resolution)


def navier_stokes_ic_mass_enstrophy(
    size: int = 16,
    nt: int = 50,
    state: State = "sine",
    *,
    resolution: int = RESOLUTION,
    discretization: Discretization = "grid",
) -> Problem:
    """Add constant enstrophy, a law imposed by the benchmark: forced viscous flow does not obey it."""
    grid = navier_stokes_grid(size, nt, discretization)
    summary = "initial condition, total vorticity and imposed constant enstrophy"
    laws = (initial(), mass(grid), enstrophy(grid))
    return _problem("navier-stokes-ic-mass-enstrophy", summary, grid, laws, state, resolution)


def _problem(name: str, summary: str, grid: Grid, laws: tuple[Law, ...], state: State, resolution: int) -> Problem:
    least = math.ceil(1.5 * grid.axis("x").size)
    if resolution < least:
        raise ShapeError(
            f"{name}(resolution) expects at least {least}, so that dealiasing keeps every wave of the grid; got "
            f"{resolution}. Simulate finer and restrict, or ask for a smaller size."
        )
    choose(f"{name}(state)", state, {"sine": None, "random": None})

    def phase(random: torch.Generator) -> Tensor:
        return uniform(random, FORCE_PHASE).reshape(1)

    def drawn_state(random: torch.Generator) -> Tensor:
        return random_state(random, resolution)

    def asked(random: torch.Generator) -> Tensor:
        return drawn_state(random) if state == "random" else sine_state(resolution)

    def draw_params(seed: int, start: int, count: int) -> dict[str, Tensor]:
        return {"u0": draw(seed, start, count, lambda random: _restricted(asked(random), grid))}

    def draw_training(seed: int, start: int, count: int) -> tuple[Tensor, dict[str, Tensor]]:
        drawn = draw(seed, start, count, lambda random: torch.cat([drawn_state(random).flatten(), phase(random)]))
        found = fields(drawn)
        return found, {"u0": found[..., 0], "force_phase": drawn[:, -1]}

    def draw_truth(seed: int, start: int, count: int) -> tuple[Tensor, dict[str, Tensor]]:
        drawn = draw(seed, start, count, lambda random: torch.cat([asked(random).flatten(), phase(random)]))
        return fields(drawn), draw_params(seed, start, count)

    def fields(drawn: Tensor) -> Tensor:
        states = drawn[:, :-1].reshape(-1, resolution, resolution)
        return navier_stokes_fields(states, drawn[:, -1], grid)

    return Problem(
        name=name,
        summary=summary,
        equation="navier-stokes",
        grid=grid,
        laws=laws,
        draw_params=draw_params,
        draw_training=draw_training,
        draw_truth=draw_truth,
    )


def _restricted(state: Tensor, grid: Grid) -> Tensor:
    """Restrict one state to the grid exactly as the simulated slices are."""
    return torch.from_numpy(_on_grid(scipy.fft.rfft2(state.numpy()), state.shape[-1], grid))


def _on_grid(spectrum: Waves, points: int, grid: Grid) -> Array:
    """Evaluate a half spectrum on the points of the grid; an end point at 1 repeats the one at 0."""
    axis = grid.axis("x")
    repeated = axis.stop == 1.0
    field = regrid(spectrum, points, axis.size - repeated)
    return np.pad(field, [(0, 0)] * (field.ndim - 2) + [(0, int(repeated))] * 2, mode="wrap")
