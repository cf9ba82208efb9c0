"""WHAT must hold: the kinds of law, and ready-made ones for common physics."""

from snapfm.laws.base import Bounds, Equality, Inequality, Law, Params
from snapfm.laws.conditions import dirichlet, initial, neumann, periodic
from snapfm.laws.oracle import Oracle
from snapfm.laws.pde import crank_nicolson, forward_euler, heat_kernel, local_flux, oleinik
from snapfm.laws.totals import (
    energy_balance,
    energy_decay,
    enstrophy,
    flux_balance,
    mass,
    mass_evolution,
    trapezoidal_balance,
)

__all__ = [
    "Bounds", "Equality", "Inequality", "Law", "Oracle", "Params", "crank_nicolson", "dirichlet", "energy_balance",
    "energy_decay", "enstrophy", "flux_balance", "forward_euler", "heat_kernel", "initial", "local_flux", "mass",
    "mass_evolution", "neumann", "oleinik", "periodic", "trapezoidal_balance",
]  # fmt: skip
