"""Laws on totals over space: mass, energy and enstrophy, conserved or balanced over each time step.

Each row of a balance joins two neighboring slices. The cumulative form, one slice against all earlier ones, states the same
with a Jacobian that is dense in time.
"""

from __future__ import annotations

import math

from torch import Tensor

from snapfm.grid import Grid
from snapfm.laws.base import Equality, Inequality, Params
from snapfm.laws.pde import FluxName, numerical_flux


def mass(
    grid: Grid, param: str | None = "u0", *, repeated: bool = False, weighted: bool = False, start: int = 1
) -> Equality:
    """Keep the sum over space equal to that of params[param] at every later time (math.md, eq. mass).

    Fields are (nx, …, nt), the param is (b, nx, …); one row per time. By default each point counts once, so the
    repeated end point of a periodic axis is left out, and no spacing enters; `repeated` counts it too, `weighted`
    multiplies by the spacing of the space axes. `start=0` adds the row of the first slice, which an initial condition
    already states. `param=None` compares with the field's own first slice.
    """
    space = grid.axes[:-1]
    points = tuple(slice(None, -1 if axis.periodic and not repeated else None) for axis in space)
    over = tuple(range(len(space)))
    weight = math.prod(axis.spacing for axis in space) if weighted else 1.0

    def residual(u: Tensor, params: Params) -> Tensor:
        first = u[..., 0] if param is None else params[param]
        return weight * (u[(*points, slice(start, None))].sum(over) - first[points].sum())

    return Equality("mass", residual)


def trapezoidal_balance(grid: Grid) -> Equality:
    """Balance the mass of all points with u²/2 at the two ends, trapezoidal in time (math.md, eq. balance).

    Fields are (nx, nt); nt − 1 rows.
    """
    dx, dt = grid.spacing("x"), grid.spacing("t")

    def residual(u: Tensor, params: Params) -> Tensor:
        total = dx * u.sum(0)
        outflow = 0.5 * u[-1] ** 2 - 0.5 * u[0] ** 2
        return total[1:] - total[:-1] + 0.5 * dt * (outflow[1:] + outflow[:-1])

    return Equality("mass", residual)


def flux_balance(grid: Grid, flux: FluxName = "godunov", start: int = 0) -> Equality:
    """Balance the mass of the inner points with the numerical fluxes at their outer faces (math.md, eq. flux-balance).

    Fields are (nx, nt); one row per time step. This is the sum over space of the local flux law, so finite-volume
    data with one sub-step per slice obey it to rounding. `start` leaves out the first steps, for use with a local
    flux law that already balances them.
    """
    dx, dt = grid.spacing("x"), grid.spacing("t")
    face = numerical_flux(flux)

    def residual(u: Tensor, params: Params) -> Tensor:
        u = u[:, start:]
        total = dx * u[1:-1].sum(0)
        outflow = face(u[-2], u[-1]) - face(u[0], u[1])
        return total[1:] - total[:-1] + dt * outflow[:-1]

    return Equality("mass", residual)


def mass_evolution(grid: Grid, rate: float, diffusivity: float, *, inner: bool = False) -> Equality:
    """Balance mass with logistic growth and diffusive flux, trapezoidal in time (math.md, eq. mass-evolution).

    Fields are (nx, nt); nt − 1 rows. All points count. The flux at an end is taken through its nearest face, which is
    first-order accurate in dx. `inner` counts only the points between the two faces, which finite volumes balance
    exactly in space.
    """
    dx, dt = grid.spacing("x"), grid.spacing("t")
    points = slice(1, -1) if inner else slice(None)

    def residual(u: Tensor, params: Params) -> Tensor:
        total = dx * u[points].sum(0)
        growth = rate * dx * (u[points] * (1.0 - u[points])).sum(0)
        inflow = -diffusivity / dx * ((u[1] - u[0]) - (u[-1] - u[-2]))
        gain = growth + inflow
        return total[1:] - total[:-1] - 0.5 * dt * (gain[1:] + gain[:-1])

    return Equality("mass", residual)


def energy_decay(grid: Grid) -> Inequality:
    """Require that the energy dx·Σu² never grows from one slice to the next (math.md, eq. energy-decay).

    Fields are (nx, nt); nt − 1 rows.
    """
    dx = grid.spacing("x")

    def residual(u: Tensor, params: Params) -> Tensor:
        energy = dx * (u**2).sum(0)
        return energy[1:] - energy[:-1]

    return Inequality("energy", residual)


def energy_balance(grid: Grid, diffusivity: float) -> Equality:
    """Require that the energy dx·Σu² falls by 2κ dt ∫u_x², explicit in time (math.md, eq. energy-balance).

    Fields are (nx, nt); nt − 1 rows. Together with an initial condition, mass and the forward-Euler rows of the first
    steps it is slightly infeasible: they leave two end points free, and the smallest energy these allow is above the
    required one.
    """
    dx, dt = grid.spacing("x"), grid.spacing("t")

    def residual(u: Tensor, params: Params) -> Tensor:
        energy = dx * (u**2).sum(0)
        dissipation = ((u[1:] - u[:-1]) ** 2).sum(0) / dx
        return energy[1:] - energy[:-1] + 2.0 * diffusivity * dt * dissipation[:-1]

    return Equality("energy", residual)


def enstrophy(grid: Grid, param: str = "u0") -> Equality:
    """Keep ∫w² equal to that of params[param] at every later time (math.md, eq. enstrophy).

    Fields are (nx, ny, nt), the param is (b, nx, ny); nt − 1 rows. True of ideal flow only: viscosity destroys
    enstrophy and forcing creates it.
    """
    space = grid.axes[:-1]
    over = tuple(range(len(space)))
    weight = math.prod(axis.spacing for axis in space)

    def residual(u: Tensor, params: Params) -> Tensor:
        return weight * ((u[..., 1:] ** 2).sum(over) - (params[param] ** 2).sum())

    return Equality("enstrophy", residual)
