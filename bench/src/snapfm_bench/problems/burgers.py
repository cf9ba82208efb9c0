"""Burgers' equation u_t + ½(u²)_x = 0 on [0, 1]: smoothed steps that break, their simulation and law sets.

The simulator is Godunov's finite volumes, a whole batch at once. Every grid point is a cell. The first cell holds the left
value, the last copies its neighbor; the cells between them change by what flows through their faces, so their mass is
balanced to rounding. The face flux is the one of the laws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from snapfm.grid import Axis, Grid
from snapfm.laws import (
    Equality,
    Law,
    dirichlet,
    flux_balance,
    initial,
    local_flux,
    neumann,
    oleinik,
    trapezoidal_balance,
)
from snapfm.laws import mass as conserved_mass
from snapfm.laws.pde import FluxName, checked_steps, godunov
from snapfm_bench.problems.base import Params, Problem, Simulation, choose, uniform, uniform_or

POSITION = (0.2, 0.8)  # p ~ U(0.2, 0.8), the position of the initial step
LEFT_VALUE = (0.0, 1.0)  # u_L ~ U(0, 1), the value at x = 0 from the first step on
INFERENCE_POSITION = 0.5  # of the initial step of every sample at inference
STEP_WIDTH = 0.02  # of the sigmoid 1/(1 + exp((x − p)/0.02)): two cells of the standard grid

_COURANT = 1.0  # Godunov's scheme is monotone as long as no wave crosses more than one cell per sub-step
_TILE = 256  # samples at once: larger arrays leave the cache, and torch splits them among threads at a loss
_ROUNDING = 1e-9  # dt/dx of equal spacings may round to just above one, which must not cost a second sub-step

Mass: TypeAlias = Literal["constant", "balance", "flux"]
FirstSlice: TypeAlias = Literal["initial", "boundary"]


def burgers_grid(nx: int = 101, nt: int = 101) -> Grid:
    """Space and time [0, 1], both end points included; 101 points make dx = dt = 0.01."""
    return Grid((Axis("x", 0.0, 1.0, nx), Axis("t", 0.0, 1.0, nt)))


def step(grid: Grid, position: Tensor) -> Tensor:
    """Evaluate the smoothed step 1/(1 + exp((x − p)/0.02)) at one position: (nx,)."""
    return torch.sigmoid((position - grid.axis("x").points()) / STEP_WIDTH)


def godunov_fields(grid: Grid, start: Tensor, left: Tensor, first: FirstSlice = "initial") -> tuple[Tensor, Tensor]:
    """Evolve start (b, nx) with left values (b,) to fields (b, nx, nt) and outflow (b, nt − 1) (math.md, eq. burgers).

    The outflow is the time integral of the face fluxes, right minus left, around the inner cells: their mass falls by
    it. Where initial and boundary values disagree at the ends of the first slice, `first` says which it shows.
    Sub-steps are counted per sample from its own largest speed, which never grows.
    """
    speed = torch.maximum(start.abs().amax(1), left.abs())
    courant = speed * grid.spacing("t") / grid.spacing("x") / _COURANT
    substeps = torch.ceil(courant - _ROUNDING).clamp(min=1).long()
    fields = start.new_empty(*start.shape, grid.axis("t").size)
    outflow = start.new_empty(len(start), grid.axis("t").size - 1)
    for count in sorted(set(substeps.tolist())):
        members = torch.nonzero(substeps == count)[:, 0]
        for tile in range(0, len(members), _TILE):
            group = members[tile : tile + _TILE]
            fields[group], outflow[group] = _evolve(grid, start[group], left[group], first, count)
    return fields, outflow


def _evolve(grid: Grid, start: Tensor, left: Tensor, first: FirstSlice, substeps: int) -> tuple[Tensor, Tensor]:
    dx, dt = grid.spacing("x"), grid.spacing("t") / substeps
    u = start.clone()
    if first == "boundary":
        _bound(u, left)
    slices, outflows = [u.clone()], []
    for _ in range(grid.axis("t").size - 1):
        outflow = u.new_zeros(len(u))
        for _ in range(substeps):
            through = godunov(u[:, :-1], u[:, 1:])
            u[:, 1:-1] -= dt / dx * (through[:, 1:] - through[:, :-1])
            outflow += dt * (through[:, -1] - through[:, 0])
            _bound(u, left)
        slices.append(u.clone())
        outflows.append(outflow)
    return torch.stack(slices, dim=2), torch.stack(outflows, dim=1)


def _bound(u: Tensor, left: Tensor) -> None:
    """Impose the left value and the right zero gradient. Written: u."""
    u[:, 0] = left
    u[:, -1] = u[:, -2]


def burgers_bc_mass(nx: int = 101, nt: int = 101, *, mass: Mass = "balance") -> Problem:
    """Left value per sample, right zero gradient, and mass.

    `mass`: "balance" is the release's trapezoidal balance with the ends; "constant" the paper's, which inflow
    contradicts; "flux" balances the inner points with their face fluxes, which simulated fields obey to rounding.
    """
    grid = burgers_grid(nx, nt)
    masses: dict[str, Callable[[], Equality]] = {
        "balance": lambda: trapezoidal_balance(grid),
        "constant": lambda: conserved_mass(grid, None, weighted=True),
        "flux": lambda: flux_balance(grid, "split"),
    }
    laws = (dirichlet(), neumann(), choose("burgers_bc_mass(mass)", mass, masses)())

    summary = "left value, right zero gradient and mass balance"
    return _problem("burgers-bc-mass", summary, grid, laws, "boundary")


def burgers_ic(nx: int = 101, nt: int = 101, position: float | None = INFERENCE_POSITION) -> Problem:
    """Initial condition alone; `position=None` draws the position of the step per sample instead of fixing it."""
    return _problem("burgers-ic", "initial condition", burgers_grid(nx, nt), (initial(),), "initial", position)


def burgers_ic_mass(
    nx: int = 101, nt: int = 101, position: float | None = INFERENCE_POSITION, *, mass: Mass = "constant"
) -> Problem:
    """Initial condition and mass; "constant" is the paper's and the release's, whose first row repeats the initial one.

    Simulated fields obey "flux" to rounding and "balance" to the order of the scheme; inflow contradicts "constant".
    """
    grid = burgers_grid(nx, nt)
    laws = (initial(), _mass_law("burgers_ic_mass(mass)", grid, mass, 0))
    return _problem("burgers-ic-mass", "initial condition and mass", grid, laws, "initial", position)


def burgers_ic_mass_flux(
    nx: int = 101,
    nt: int = 101,
    position: float | None = INFERENCE_POSITION,
    *,
    flux_steps: int | None = 5,
    flux: FluxName = "smoothed",
    mass: Mass = "constant",
) -> Problem:
    """Add local conservation over the first `flux_steps` steps (None: all), smoothed, split or exactly Godunov's.

    With `mass="flux"` the mass rows start where the flux rows end: the flux rows of a step sum to its mass row.
    """
    grid = burgers_grid(nx, nt)
    steps = checked_steps(grid, flux_steps, "burgers_ic_mass_flux(flux_steps)")
    laws = (initial(), _mass_law("burgers_ic_mass_flux(mass)", grid, mass, steps), local_flux(grid, steps, flux))
    summary = f"initial condition, mass and local flux over {steps} steps"
    return _problem("burgers-ic-mass-flux", summary, grid, laws, "initial", position)


def burgers_ic_mass_entropy(
    nx: int = 101,
    nt: int = 101,
    position: float | None = INFERENCE_POSITION,
    *,
    convexity: float = 1.0,
    mass: Mass = "flux",
) -> Problem:
    """Initial condition, mass and Oleinik's entropy condition: rarefactions open, and only shocks stay steep.

    `convexity=1` is the theorem's for u²/2, which simulated fields obey to first order in dx; they obey `convexity=0.5` exactly.
    """
    grid = burgers_grid(nx, nt)
    laws = (initial(), _mass_law("burgers_ic_mass_entropy(mass)", grid, mass, 0), oleinik(grid, convexity))
    summary = "initial condition, mass and entropy: slopes of at most 1/t"
    return _problem("burgers-ic-mass-entropy", summary, grid, laws, "initial", position)


def _mass_law(argument: str, grid: Grid, mass: Mass, flux_steps: int) -> Equality:
    masses: dict[str, Callable[[], Equality]] = {
        "constant": lambda: conserved_mass(grid, weighted=True, start=0),
        "balance": lambda: trapezoidal_balance(grid),
        "flux": lambda: flux_balance(grid, "split", start=flux_steps),
    }
    return choose(argument, mass, masses)()


def _problem(
    name: str, summary: str, grid: Grid, laws: tuple[Law, ...], first: FirstSlice, fixed: float | None = None
) -> Problem:
    """Join grid and laws with the draws; a row of numbers is (*initial step, left value, position).

    `first` says which condition the laws read, and so which one the first slice shows. `fixed` is the
    position of every initial step at inference, or None to draw it.
    """

    # The sigmoid is taken sample by sample: torch rounds it by the place in the batch.
    def row(position: Tensor, left: Tensor) -> Tensor:
        return torch.cat([step(grid, position), left[None], position[None]])

    def inference(random: torch.Generator) -> Tensor:
        # The condition is drawn first, so that what it leaves open does not change it.
        if first == "boundary":
            left = uniform(random, LEFT_VALUE)
            return row(uniform(random, POSITION), left)
        return row(uniform_or(random, POSITION, fixed), uniform(random, LEFT_VALUE))

    def training(random: torch.Generator) -> Tensor:
        return row(uniform(random, POSITION), uniform(random, LEFT_VALUE))

    def fields(rows: Tensor) -> Tensor:
        return godunov_fields(grid, rows[:, :-2], rows[:, -2], first)[0]

    def params(rows: Tensor) -> Params:
        return {"left": rows[:, -2]} if first == "boundary" else {"u0": rows[:, :-2]}

    def labels(rows: Tensor) -> Params:
        return {"position": rows[:, -1], "left": rows[:, -2]}

    return Simulation(inference, training, fields, params, labels).problem(name, summary, "burgers", grid, laws)
