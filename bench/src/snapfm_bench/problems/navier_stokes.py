"""Forced Navier–Stokes flow w_t + u·∇w = ν∇²w + f on the periodic unit square: its simulation and law sets.

The simulator is pseudo-spectral with 2/3 dealiasing, a whole batch at once. Viscosity is exact (integrating factor), the
rest is classical Runge–Kutta of fourth order. Advection is written as second derivatives of velocity products, which takes
two transforms each way and leaves the mean vorticity unchanged. It works in numpy with scipy.fft, whose transforms give a
sample the same bits in every batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy  # its modules are imported when they are used
import torch
from torch import Tensor

from snapfm.arrays import Values
from snapfm.errors import ShapeError
from snapfm.grid import Axis, Grid
from snapfm.laws import Law, enstrophy, initial, mass
from snapfm_bench.problems.base import Discretization, Params, Problem, Simulation, choose, uniform

VISCOSITY = 1e-3  # ν
DURATION = 49.0  # T, one time unit between the 50 slices
FORCE = 0.1 * math.sqrt(2)  # amplitude of the forcing sin(2π(x + y) + φ)
FORCE_PHASE = (0.0, math.pi / 2)  # φ
RESOLUTION = 64  # points per axis of the simulation; fields are restricted from it

# The Gaussian random field of initial states: power 2·7³·(4π²|k|² + 7²)^−2.5 per wave, zero mean.
_DECAY = 2.5
_CORRELATION = 7.0
_FIELD_POINTS = 64  # the field is drawn on this lattice whatever the resolution, so that refining keeps the state

# The wide distribution of initial states, for models that have to follow states unlike the random field: as often random
# fields of several correlations and sizes as one to three waves of any direction. sin(2πy) is one of the latter.
_WIDE_CORRELATION = (3.0, 12.0)
_WIDE_FACTOR = (0.5, 2.0)  # times the size of the random field
_WIDE_AMPLITUDE = (0.25, 1.5)  # of all waves together: the root of the sum of their squares
_WIDE_WAVES = 3
_WIDE_NUMBER = 2  # largest wave number along an axis

_TILE = 8  # samples simulated at once: their work arrays stay in the cache

# Largest time step at 64 × 64, in proportion at others. Measured on eight benchmark states to T = 49, largest error
# over space and time against a step of 1/160: 1/8 gives 8e-3 (nearly unstable), 1/10 1e-5, 1/20 6e-7, 1/40 4e-8.
_STEP = 0.05
_STEP_POINTS = 64

State: TypeAlias = Literal["sine", "random"]
States: TypeAlias = Literal["random", "wide"]
Waves: TypeAlias = npt.NDArray[np.complex128]


def navier_stokes_grid(size: int = 16, nt: int = 50, discretization: Discretization = "grid") -> Grid:
    """Space [0, 1) with points j/size, time [0, 49]; "release" puts the points at j/(size − 1), both ends included.

    Neither axis is flagged periodic: that flag means a repeated end point to leave out of sums, and here every point
    counts ("grid" has no repeated one, the release counts it).
    """
    last = 1.0 - 1.0 / max(size, 1)  # Axis refuses sizes below 2, with words
    stop = choose("navier_stokes_grid(discretization)", discretization, {"grid": last, "release": 1.0})
    return Grid((Axis("x", 0.0, stop, size), Axis("y", 0.0, stop, size), Axis("t", 0.0, DURATION, nt)))


def random_state(random: torch.Generator, points: int, correlation: float = _CORRELATION) -> Tensor:
    """Draw one Gaussian random field (points, points) with zero mean; the correlation length is 1 / correlation."""
    noise = torch.randn(_FIELD_POINTS, _FIELD_POINTS, 2, generator=random, dtype=torch.float64).numpy()
    waves = _FIELD_POINTS * scipy.fft.fftfreq(_FIELD_POINTS)
    square = 4 * np.pi**2 * (waves[:, None] ** 2 + waves**2)
    deviation = math.sqrt(2) * correlation ** (_DECAY - 1) * (square + correlation**2) ** (-_DECAY / 2)
    deviation[0, 0] = 0.0
    field = scipy.fft.ifft2(_FIELD_POINTS**2 * deviation * (noise[..., 0] + 1j * noise[..., 1])).real
    return torch.from_numpy(regrid(scipy.fft.rfft2(field), _FIELD_POINTS, points))


def wide_state(random: torch.Generator, points: int) -> Tensor:
    """Draw one initial state (points, points) of the wide distribution, zero mean."""
    if float(uniform(random, (0.0, 1.0))) < 0.5:
        correlation, factor = (_scale(random, limits) for limits in (_WIDE_CORRELATION, _WIDE_FACTOR))
        return factor * random_state(random, points, correlation)
    count = int(torch.randint(_WIDE_WAVES, (), generator=random)) + 1
    size = torch.rand(count, generator=random, dtype=torch.float64)
    size *= uniform(random, _WIDE_AMPLITUDE) / size.square().sum().sqrt()
    x = torch.arange(points, dtype=torch.float64) / points
    state = torch.zeros(points, points, dtype=torch.float64)
    for amplitude in size:
        place = int(torch.randint((2 * _WIDE_NUMBER + 1) ** 2 - 1, (), generator=random))
        place += place >= 2 * _WIDE_NUMBER * (_WIDE_NUMBER + 1)  # leaves out wave number zero, in the middle
        along, across = (part - _WIDE_NUMBER for part in divmod(place, 2 * _WIDE_NUMBER + 1))
        angle = 2 * math.pi * (along * x[:, None] + across * x + uniform(random, (0.0, 1.0)))
        state += amplitude * torch.sin(angle)
    return state


def _scale(random: torch.Generator, limits: tuple[float, float]) -> float:
    """Draw a number between the limits whose logarithm is uniform."""
    low, high = limits
    return math.exp(float(uniform(random, (math.log(low), math.log(high)))))


STATES: dict[str, Callable[[torch.Generator, int], Tensor]] = {"random": random_state, "wide": wide_state}


def sine_state(points: int) -> Tensor:
    """Evaluate the initial state at inference, sin(2πy), at y = j/points."""
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


def vorticity_waves(
    start: Values, forcing: Values, times: int, duration: float, viscosity: float, step: float | None = None
) -> Iterator[Waves]:
    """Evolve start under a steady forcing, both (b, n, n); yield the half spectrum at `times` times from 0 to duration.

    `step` is the largest time step; None takes the measured one (math.md, eq. navier-stokes).
    """
    points = start.shape[-1]
    interval = duration / (times - 1)
    substeps = math.ceil(interval / (step or _STEP * _STEP_POINTS / points))
    dt = interval / substeps
    kx, ky = wavenumbers(points)
    square = kx**2 + ky**2
    kept = (np.maximum(np.abs(kx), np.abs(ky)) < 2 * np.pi * points / 3).astype(float)
    half = np.exp(-0.5 * dt * viscosity * square)
    whole = half * half
    rate = _Advection(points, kept, scipy.fft.rfft2(forcing) * kept)
    w: Waves = scipy.fft.rfft2(start) * kept
    yield w
    for _ in range(times - 1):
        for _ in range(substeps):
            a = rate(w)
            b = rate(half * (w + 0.5 * dt * a))
            c = rate(half * w + 0.5 * dt * b)
            d = rate(whole * w + dt * (half * c))
            w = whole * (w + dt / 6 * a) + dt / 6 * (2.0 * half * (b + c) + d)
        yield w


class _Advection:
    """−u·∇w + f of a half spectrum: from velocity products, as (∂xx − ∂yy)(uv) + ∂x∂y(v² − u²)."""

    def __init__(self, points: int, kept: Values, forcing: Waves) -> None:
        kx, ky = wavenumbers(points)
        square = kx**2 + ky**2
        square[0, 0] = 1.0  # the mean has no velocity; any number keeps the quotient finite
        self._points = points
        self._velocity = np.stack([1j * ky / square, -1j * kx / square]) * kept
        self._products = np.stack([kx**2 - ky**2, kx * ky]) * kept
        self._forcing = forcing

    def __call__(self, w: Waves) -> Waves:
        flow = scipy.fft.irfft2(self._velocity * w[:, None], s=(self._points, self._points))
        u, v = flow[:, 0], flow[:, 1]
        products = scipy.fft.rfft2(np.stack([u * v, (v - u) * (v + u)], axis=1))
        products *= self._products
        return np.asarray(products[:, 0] + products[:, 1] + self._forcing)


def wavenumbers(size: int) -> tuple[Values, Values]:
    """Return 2πk along both axes, shaped to broadcast with the half spectrum (size, size // 2 + 1)."""
    return (
        2 * np.pi * size * scipy.fft.fftfreq(size)[:, None],
        2 * np.pi * size * scipy.fft.rfftfreq(size)[None, :],
    )


def regrid(spectrum: Waves, points: int, size: int) -> Values:
    """Evaluate a half spectrum (..., points, points // 2 + 1) on size × size points, both x_j = j/size.

    Waves that the coarser of the two grids cannot tell apart are left out, so the mean over points does not change. Sizes
    may be even or odd.
    """
    kept = (min(points, size) - 1) // 2  # highest wave number that both resolve, without the Nyquist wave
    wide = np.zeros((*spectrum.shape[:-2], size, size // 2 + 1), dtype=np.complex128)
    wide[..., : kept + 1, : kept + 1] = spectrum[..., : kept + 1, : kept + 1]
    if kept:
        wide[..., -kept:, : kept + 1] = spectrum[..., -kept:, : kept + 1]
    return np.asarray(scipy.fft.irfft2(wide * (size / points) ** 2, s=(size, size)))


def navier_stokes_ic_mass(
    size: int = 16,
    nt: int = 50,
    state: State = "sine",
    *,
    resolution: int = RESOLUTION,
    discretization: Discretization = "grid",
    training: States = "random",
) -> Problem:
    """Initial condition and total vorticity, both of which the flow obeys.

    With `state="sine"` every sample starts from sin(2πy), with "random" from a random state of its own. `resolution` is
    that of the simulation. `training` names the initial states of the training distribution: the Gaussian random field
    of the paper, which hardly contains a wave such as sin(2πy), or the "wide" distribution, which does.
    """
    grid = navier_stokes_grid(size, nt, discretization)
    summary = "initial condition and total vorticity, all affine"
    return _problem("navier-stokes-ic-mass", summary, grid, (initial(), mass(grid)), state, training, resolution)


def navier_stokes_ic_mass_enstrophy(
    size: int = 16,
    nt: int = 50,
    state: State = "sine",
    *,
    resolution: int = RESOLUTION,
    discretization: Discretization = "grid",
    training: States = "random",
) -> Problem:
    """Add constant enstrophy, a law imposed by the benchmark: forced viscous flow does not obey it."""
    grid = navier_stokes_grid(size, nt, discretization)
    summary = "initial condition, total vorticity and imposed constant enstrophy"
    laws = (initial(), mass(grid), enstrophy(grid))
    return _problem("navier-stokes-ic-mass-enstrophy", summary, grid, laws, state, training, resolution)


def _problem(
    name: str, summary: str, grid: Grid, laws: tuple[Law, ...], state: State, training: States, resolution: int
) -> Problem:
    least = math.ceil(1.5 * grid.axis("x").size)
    if resolution < least:
        raise ShapeError(
            f"{name}(resolution) expects at least {least}, so that dealiasing keeps every wave of the grid; got "
            f"{resolution}. Simulate finer and restrict, or ask for a smaller size."
        )
    choose(f"{name}(state)", state, {"sine": None, "random": None})
    draw_state = choose(f"{name}(training)", training, STATES)

    def row(state: Tensor, random: torch.Generator) -> Tensor:
        return torch.cat([state.flatten(), uniform(random, FORCE_PHASE)[None]])

    def inference(random: torch.Generator) -> Tensor:
        return row(random_state(random, resolution) if state == "random" else sine_state(resolution), random)

    def train(random: torch.Generator) -> Tensor:
        return row(draw_state(random, resolution), random)

    def states(rows: Tensor) -> Tensor:
        return rows[:, :-1].reshape(-1, resolution, resolution)

    def fields(rows: Tensor) -> Tensor:
        return navier_stokes_fields(states(rows), rows[:, -1], grid)

    def params(rows: Tensor) -> Params:
        return {"u0": torch.from_numpy(_on_grid(scipy.fft.rfft2(states(rows).numpy()), resolution, grid))}

    def labels(rows: Tensor) -> Params:
        return {"force_phase": rows[:, -1]}

    return Simulation(inference, train, fields, params, labels).problem(name, summary, "navier-stokes", grid, laws)


def _on_grid(spectrum: Waves, points: int, grid: Grid) -> Values:
    """Evaluate half spectra on the points of the grid; an end point at 1 repeats the one at 0."""
    axis = grid.axis("x")
    repeated = axis.stop == 1.0
    field = regrid(spectrum, points, axis.size - repeated)
    return np.pad(field, [(0, 0)] * (field.ndim - 2) + [(0, int(repeated))] * 2, mode="wrap")
