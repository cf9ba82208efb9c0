"""The heat equation u_t = α u_xx on [0, 2π], periodic, with its exact solutions and law sets."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from snapfm.grid import Axis, Grid
from snapfm.laws import Law
from snapfm.laws.conditions import initial, periodic
from snapfm.laws.pde import checked_steps, crank_nicolson, forward_euler, heat_kernel
from snapfm.laws.totals import energy_balance, energy_decay, mass
from snapfm_bench.problems.base import (
    Discretization,
    Params,
    Problem,
    Simulation,
    choose,
    law_grid,
    uniform,
    uniform_or,
)

DIFFUSIVITY = (1.0, 5.0)  # α ~ U(1, 5)
PHASE = (0.0, math.pi)  # φ ~ U(0, π)
INFERENCE_PHASE = math.pi / 4  # at inference every sample starts from sin(x + π/4)
RELEASE_DIFFUSIVITY = 0.01  # κ of the release's PDE rows; the data have α in [1, 5], which those rows contradict


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
    return _problem(
        "heat-ic-mass", "initial condition and conserved mass, all affine", grid, (initial(), mass(grid)), phase
    )


def heat_ic_mass_pde_energy(
    nx: int = 100,
    nt: int = 100,
    phase: float | None = INFERENCE_PHASE,
    *,
    diffusivity: float = RELEASE_DIFFUSIVITY,
    pde_steps: int | None = 5,
    energy: Literal["decay", "equality"] = "decay",
    discretization: Discretization = "grid",
) -> Problem:
    """Add forward-Euler rows of the first steps and the energy to initial condition and mass, as the release does.

    `energy="decay"` is the release's inequality, "equality" the paper's balance. Mass counts the repeated point, as in
    the release. True solutions contradict the PDE rows (κ is not their α) and obey this mass only to first order in dx:
    see heat_ic_mass_implicit.
    """
    grid = heat_grid(nx, nt)
    builder = "heat_ic_mass_pde_energy"
    spacing = law_grid(f"{builder}(discretization)", grid, discretization)
    steps = checked_steps(grid, pde_steps, f"{builder}(pde_steps)")
    energies: dict[str, Law] = {"decay": energy_decay(spacing), "equality": energy_balance(spacing, diffusivity)}
    laws = (
        initial(),
        mass(spacing, repeated=True, weighted=True),
        forward_euler(spacing, diffusivity, steps),
        choose(f"{builder}(energy)", energy, energies),
    )
    summary = "initial condition, mass, forward-Euler rows and energy, as released"
    return _problem("heat-ic-mass-pde-energy", summary, grid, laws, phase)


def heat_ic_mass_implicit(
    nx: int = 100,
    nt: int = 100,
    phase: float | None = INFERENCE_PHASE,
    *,
    pde_steps: int | None = 5,
    scheme: Literal["crank-nicolson", "kernel"] = "crank-nicolson",
) -> Problem:
    """Add equal end points of the axis and PDE rows with each sample's own α to initial condition and mass.

    `scheme="crank-nicolson"` is local and of second order; "kernel" is exact and reads whole slices.
    """
    grid = heat_grid(nx, nt)
    steps = checked_steps(grid, pde_steps, "heat_ic_mass_implicit(pde_steps)")
    schemes = {"crank-nicolson": crank_nicolson(grid, steps), "kernel": heat_kernel(grid, steps)}
    laws = (initial(), mass(grid), periodic(), choose("heat_ic_mass_implicit(scheme)", scheme, schemes))
    summary = "initial condition, mass, closure and implicit PDE rows with per-sample diffusivity"
    return _problem("heat-ic-mass-implicit", summary, grid, laws, phase, with_diffusivity=True)


def _problem(
    name: str, summary: str, grid: Grid, laws: tuple[Law, ...], phase: float | None, with_diffusivity: bool = False
) -> Problem:
    """Join grid and laws with the draws; a row of numbers is (α, φ)."""
    x = grid.axis("x").points()

    def inference(random: torch.Generator) -> Tensor:
        angle = uniform_or(random, PHASE, phase)  # drawn before α
        return torch.stack([uniform(random, DIFFUSIVITY), angle])

    def training(random: torch.Generator) -> Tensor:
        return torch.stack([uniform(random, DIFFUSIVITY), uniform(random, PHASE)])

    # Sines and exponentials are taken sample by sample: torch may round them by the place in the batch.
    def fields(rows: Tensor) -> Tensor:
        return torch.cat([exact(grid, row[:1], row[1:]) for row in rows])

    def params(rows: Tensor) -> Params:
        found = {"u0": torch.stack([torch.sin(x + angle) for angle in rows[:, 1]])}
        return {**found, "alpha": rows[:, 0]} if with_diffusivity else found

    def labels(rows: Tensor) -> Params:
        return {"alpha": rows[:, 0], "phase": rows[:, 1]}

    return Simulation(inference, training, fields, params, labels).problem(name, summary, "heat", grid, laws)
