"""Reaction–diffusion u_t = ρu(1 − u) + νu_xx on [0, 1] with inflow at both ends, its simulation and its law sets.

The simulator is Strang splitting, a whole batch at once. Both halves are solved exactly: the logistic reaction point by
point, and the diffusion of finite volumes around the grid points (half cells at the ends) in its cosine modes. The error
that remains is that of the splitting, of second order in dt, and that of the finite volumes, of second order in dx. It
works in numpy, because torch has no cosine transform.
"""

from __future__ import annotations

import math

import numpy as np
import scipy  # its modules are imported when they are used
import torch
from torch import Tensor

from snapfm.arrays import Values
from snapfm.errors import DataError
from snapfm.grid import Axis, Grid
from snapfm.laws import Bounds, Law, initial, mass_evolution
from snapfm.seeds import stream
from snapfm_bench.problems.base import Discretization, Params, Problem, Simulation, law_grid, uniform

RATE = 0.01  # ρ
DIFFUSIVITY = 0.005  # ν
LEFT_FLUX = (0.0, 0.05)  # g_L = 0.05 U, into the domain
RIGHT_FLUX = (-0.05, 0.0)  # g_R = −0.05 U, into the domain too
LIMITS = (0.0, 1.0)  # of a concentration
SUBSTEPS = 1  # per slice: splitting is off by 5e-7 at most on the standard grid, finite volumes by far more

_WAVES = 3  # wave numbers 1 .. 3, two of which are picked, with repetition
_PICKS = 2
_FOLD = 0.1  # chance of taking the absolute value
_WINDOW = 0.1  # chance of a window
_DRAWS_AT_ONCE, _DRAWS = (
    8,
    500,
)  # conditions drawn again until a field is within limits; a state of one in 300 is found for sure
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


def strang_fields(
    grid: Grid, start: Tensor, flux: Tensor, rate: float, diffusivity: float, substeps: int = 1
) -> Tensor:
    """Evolve start (b, nx) with fluxes −νu_x = (g_L, g_R) at the ends (b, 2) to fields (b, nx, nt).

    The trapezoidal mass grows by g_L − g_R per unit of time to rounding, apart from the reaction (math.md, eq.
    reaction-diffusion). `substeps` divide the time between two slices.
    """
    step = grid.spacing("t") / substeps
    decay, gain = _diffusion(grid, diffusivity, step)
    inflow = _inverse(gain * _boundary(grid, flux.numpy()))
    u = start.numpy().copy()
    slices = [u]
    for _ in range(grid.axis("t").size - 1):
        for _ in range(substeps):
            u = react(u, rate, 0.5 * step)
            u = _inverse(decay * _forward(u)) + inflow
            u = react(u, rate, 0.5 * step)
        slices.append(u)
    return torch.from_numpy(np.stack(slices, axis=2))


def react(u: Values, rate: float, step: float) -> Values:
    """Solve u' = ρu(1 − u) exactly over one step."""
    growth = math.exp(rate * step)
    return u * growth / (1.0 + u * (growth - 1.0))


def _diffusion(grid: Grid, diffusivity: float, step: float) -> tuple[Values, Values]:
    """Return, per cosine mode, its decay factor over a step and what a steady source of size one adds to it."""
    axis = grid.axis("x")
    half_angle = 0.5 * np.pi * np.arange(axis.size) / (axis.size - 1)
    exponent = -step * diffusivity * (2.0 / axis.spacing * np.sin(half_angle)) ** 2
    exponent[0] = -1.0  # the mean does not decay; any number keeps the quotient below finite
    decay, gain = np.exp(exponent), step * np.expm1(exponent) / exponent
    decay[0], gain[0] = 1.0, step
    return decay, gain


def _boundary(grid: Grid, flux: Values) -> Values:
    """Return the cosine modes of the boundary fluxes, spread over the half cells at the ends."""
    axis = grid.axis("x")
    alternating = np.where(np.arange(axis.size) % 2, -1.0, 1.0)
    return 2.0 / axis.spacing * (flux[:, :1] - alternating * flux[:, 1:])


def _forward(u: Values) -> Values:
    return np.asarray(scipy.fft.dct(u, type=1, axis=1))


def _inverse(modes: Values) -> Values:
    return np.asarray(scipy.fft.idct(modes, type=1, axis=1))


def reaction_diffusion_ic_mass(
    nx: int = 64,
    nt: int = 100,
    initial_seed: int | None = 0,
    *,
    inner: bool = False,
    discretization: Discretization = "grid",
) -> Problem:
    """Initial condition and mass evolution; 64 points as in the release, 128 as in the paper.

    Every sample has the initial state that `initial_seed` draws, or with None one of its own. `inner` balances the points
    between the outermost faces instead of all: simulated fields obey that to second order in dt.
    """
    grid = reaction_diffusion_grid(nx, nt)
    spacing = law_grid("reaction_diffusion_ic_mass(discretization)", grid, discretization)
    laws = (initial(), mass_evolution(spacing, RATE, DIFFUSIVITY, inner=inner))
    summary = "initial condition and mass evolution by growth and boundary flux"
    return _problem("reaction-diffusion-ic-mass", summary, grid, laws, initial_seed)


def reaction_diffusion_ic_mass_bounds(
    nx: int = 64, nt: int = 100, initial_seed: int | None = 0, *, inner: bool = True
) -> Problem:
    """Add 0 <= u <= 1, the limits of a concentration.

    Strong inflow lifts the ends above 1, in two of three fields of the default initial state. Conditions at inference are
    therefore those of the training distribution whose field stays within the limits: drawn again until it does. `inner` is the
    mass evolution that simulated fields obey to second order in dt.
    """
    grid = reaction_diffusion_grid(nx, nt)
    laws = (initial(), mass_evolution(grid, RATE, DIFFUSIVITY, inner=inner), Bounds(*LIMITS))
    summary = "initial condition, mass evolution and limits 0 and 1"
    return _problem("reaction-diffusion-ic-mass-bounds", summary, grid, laws, initial_seed, LIMITS)


def _problem(
    name: str,
    summary: str,
    grid: Grid,
    laws: tuple[Law, ...],
    initial_seed: int | None,
    limits: tuple[float, float] | None = None,
) -> Problem:
    """Join grid and laws with the draws; a row of numbers is (*initial state, left flux, right flux).

    `limits` keep only the draws at inference whose field lies within them.
    """
    nx = grid.axis("x").size
    shared = None if initial_seed is None else profile(grid, stream(initial_seed, 0))

    def fluxes(random: torch.Generator) -> Tensor:
        return torch.stack([uniform(random, LEFT_FLUX), uniform(random, RIGHT_FLUX)])

    def conditions(random: torch.Generator) -> Tensor:
        return torch.cat([profile(grid, random) if shared is None else shared, fluxes(random)])

    def within(random: torch.Generator) -> Tensor:
        assert limits is not None
        for _ in range(_DRAWS):
            rows = torch.stack([conditions(random) for _ in range(_DRAWS_AT_ONCE)])
            found = fields(rows).flatten(1)
            kept = (found.amin(1) >= limits[0]) & (found.amax(1) <= limits[1])
            if bool(kept.any()):
                return rows[int(kept.int().argmax())]
        raise DataError(
            f"{name}(initial_seed) expects a state whose fields can stay within {limits}; got {initial_seed!r}, of which none in "
            f"{_DRAWS * _DRAWS_AT_ONCE} does. Choose another seed, or None."
        )

    def training(random: torch.Generator) -> Tensor:
        return torch.cat([profile(grid, random), fluxes(random)])

    def fields(rows: Tensor) -> Tensor:
        return strang_fields(grid, rows[:, :nx], rows[:, nx:], RATE, DIFFUSIVITY, SUBSTEPS)

    def params(rows: Tensor) -> Params:
        return {"u0": rows[:, :nx]}

    def labels(rows: Tensor) -> Params:
        return {"flux_left": rows[:, nx], "flux_right": rows[:, nx + 1]}

    inference = conditions if limits is None else within
    simulation = Simulation(inference, training, fields, params, labels)
    return simulation.problem(name, summary, "reaction-diffusion", grid, laws)
