"""Burgers' equation u_t + ½(u²)_x = 0 on [0, 1]: smoothed steps that break, with their law sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from snapfm.grid import Axis, Grid
from snapfm.laws import Equality, Law
from snapfm.laws.balance import flux_balance, trapezoidal_balance
from snapfm.laws.dirichlet import dirichlet
from snapfm.laws.flux import FluxName, local_flux
from snapfm.laws.initial import initial
from snapfm.laws.mass import mass as conserved_mass
from snapfm.laws.neumann import neumann
from snapfm.laws.steps import checked_steps
from snapfm.problems.base import Problem
from snapfm.problems.draws import uniform, uniform_or
from snapfm.problems.godunov import FirstSlice, godunov_fields
from snapfm.problems.variants import choose
from snapfm.seeds import draw

POSITION = (0.2, 0.8)  # p ~ U(0.2, 0.8), where the initial step stands
LEFT_VALUE = (0.0, 1.0)  # u_L ~ U(0, 1), the value at x = 0 from the first step on
INFERENCE_POSITION = 0.5  # the initial step asked of every sample at inference
STEP_WIDTH = 0.02  # of the sigmoid 1/(1 + exp((x − p)/0.02)): two cells of the standard grid

Mass: TypeAlias = Literal["constant", "balance", "flux"]


def burgers_grid(nx: int = 101, nt: int = 101) -> Grid:
    """Space and time [0, 1], both end points included; 101 points make dx = dt = 0.01."""
    return Grid((Axis("x", 0.0, 1.0, nx), Axis("t", 0.0, 1.0, nt)))


def step(grid: Grid, position: Tensor) -> Tensor:
    """Evaluate the smoothed step 1/(1 + exp((x − p)/0.02)) at one position: (nx,)."""
    return torch.sigmoid((position - grid.axis("x").points()) / STEP_WIDTH)


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

    def asked(stream: torch.Generator) -> tuple[Tensor, Tensor]:
        left = uniform(stream, LEFT_VALUE)
        return uniform(stream, POSITION), left

    def params(start: Tensor, left: Tensor) -> dict[str, Tensor]:
        return {"left": left}

    summary = "left value, right zero gradient and mass balance"
    return _problem("burgers-bc-mass", summary, grid, laws, asked, params, first="boundary")


def burgers_ic(nx: int = 101, nt: int = 101, position: float | None = INFERENCE_POSITION) -> Problem:
    """Initial condition alone; `position=None` draws where the step stands per sample instead of fixing it."""
    return _initial_problem("burgers-ic", "initial condition", burgers_grid(nx, nt), (initial(),), position)


def burgers_ic_mass(
    nx: int = 101, nt: int = 101, position: float | None = INFERENCE_POSITION, *, mass: Mass = "constant"
) -> Problem:
    """Initial condition and mass; "constant" is the paper's and the release's, whose first row repeats the initial one.

    Simulated fields obey "flux" to rounding and "balance" to the order of the scheme; inflow contradicts "constant".
    """
    grid = burgers_grid(nx, nt)
    laws = (initial(), _mass_law("burgers_ic_mass(mass)", grid, mass, 0))
    return _initial_problem("burgers-ic-mass", "initial condition and mass", grid, laws, position)


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
    return _initial_problem("burgers-ic-mass-flux", summary, grid, laws, position)


def _mass_law(argument: str, grid: Grid, mass: Mass, flux_steps: int) -> Equality:
    masses: dict[str, Callable[[], Equality]] = {
        "constant": lambda: conserved_mass(grid, weighted=True, start=0),
        "balance": lambda: trapezoidal_balance(grid),
        "flux": lambda: flux_balance(grid, "split", start=flux_steps),
    }
    return choose(argument, mass, masses)()


def _initial_problem(name: str, summary: str, grid: Grid, laws: tuple[Law, ...], position: float | None) -> Problem:
    def asked(stream: torch.Generator) -> tuple[Tensor, Tensor]:
        place = uniform_or(stream, POSITION, position)
        return place, uniform(stream, LEFT_VALUE)

    def params(start: Tensor, left: Tensor) -> dict[str, Tensor]:
        return {"u0": start}

    return _problem(name, summary, grid, laws, asked, params, first="initial")


def _training(stream: torch.Generator) -> tuple[Tensor, Tensor]:
    return uniform(stream, POSITION), uniform(stream, LEFT_VALUE)


def _problem(
    name: str,
    summary: str,
    grid: Grid,
    laws: tuple[Law, ...],
    asked: Callable[[torch.Generator], tuple[Tensor, Tensor]],
    params: Callable[[Tensor, Tensor], dict[str, Tensor]],
    first: FirstSlice,
) -> Problem:
    """Join grid, laws and draws; `asked` draws (position, left value) under the conditions that `params` state."""

    def drawn(
        seed: int, start: int, count: int, one: Callable[[torch.Generator], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        # The sigmoid is taken sample by sample: torch rounds it by the place in the batch.
        def row(stream: torch.Generator) -> Tensor:
            position, left = one(stream)
            return torch.cat([step(grid, position), left[None], position[None]])

        rows = draw(seed, start, count, row)
        return rows[:, :-2], rows[:, -2], rows[:, -1]

    def draw_params(seed: int, start: int, count: int) -> dict[str, Tensor]:
        initial, left, _ = drawn(seed, start, count, asked)
        return params(initial, left)

    def draw_training(seed: int, start: int, count: int) -> tuple[Tensor, dict[str, Tensor]]:
        initial, left, position = drawn(seed, start, count, _training)
        fields = godunov_fields(grid, initial, left, first)[0]
        return fields, {**params(initial, left), "position": position, "left": left}

    def draw_truth(seed: int, start: int, count: int) -> tuple[Tensor, dict[str, Tensor]]:
        initial, left, _ = drawn(seed, start, count, asked)
        return godunov_fields(grid, initial, left, first)[0], params(initial, left)

    return Problem(
        name=name,
        summary=summary,
        equation="burgers",
        grid=grid,
        laws=laws,
        draw_params=draw_params,
        draw_training=draw_training,
        draw_truth=draw_truth,
    )
