"""Mass that changes by what flows through the ends or is made inside: balances over one time step each.

Every row joins two neighbouring slices. The cumulative form, one slice with all before it, says the same with a
Jacobian that is dense in time.
"""

from __future__ import annotations

from torch import Tensor

from snapfm.grid import Grid
from snapfm.laws.base import Equality, Params
from snapfm.laws.flux import FluxName, numerical_flux


def trapezoidal_balance(grid: Grid) -> Equality:
    """Balance the mass of all points with u²/2 at the two ends, trapezoidal in time (math.md, eq. balance)."""
    dx, dt = grid.spacing("x"), grid.spacing("t")

    def residual(u: Tensor, params: Params) -> Tensor:
        total = dx * u.sum(0)
        outflow = 0.5 * u[-1] ** 2 - 0.5 * u[0] ** 2
        return total[1:] - total[:-1] + 0.5 * dt * (outflow[1:] + outflow[:-1])

    return Equality("mass", residual)


def flux_balance(grid: Grid, flux: FluxName = "godunov", start: int = 0) -> Equality:
    """Balance the mass of the inner points with the numerical fluxes at their outer faces (math.md, eq. flux-balance).

    The sum over space of the local flux law, so finite-volume data with one sub-step per slice obey it to rounding.
    `start` leaves out the first steps, for use beside a local flux law that already balances them.
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

    All points count, and the flux at an end is the one through its nearest face, which is right to first order in dx.
    `inner` counts only the points between the two faces, which finite volumes balance exactly in space.
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
