"""Local conservation for Burgers' equation: every cell changes by what flows through its two faces.

Holds the numerical fluxes F(left, right) of f(u) = u²/2, written without branches on values so that they trace, and
the law that uses them. The simulator of Burgers' equation uses the same functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from snapfm.errors import LawError
from snapfm.grid import Grid
from snapfm.laws.base import Equality, Params
from snapfm.laws.steps import checked_steps

NumericalFlux: TypeAlias = Callable[[Tensor, Tensor], Tensor]
FluxName: TypeAlias = Literal["smoothed", "split", "godunov"]

SMOOTHING = 1e-6  # ε of the smoothed parts: far below the fields' order one, far above float64 rounding


def godunov(left: Tensor, right: Tensor) -> Tensor:
    """Give the exact Godunov flux of u²/2 (math.md, eq. godunov).

    The smallest u²/2 between left and right where the wave opens, the largest where it breaks; for a convex flux both
    are the larger of the flow out of the left state rightwards and out of the right state leftwards. Zero at a sonic
    rarefaction, so expansion shocks dissolve.
    """
    return 0.5 * torch.maximum(left.clamp(min=0.0) ** 2, right.clamp(max=0.0) ** 2)


def engquist_osher(left: Tensor, right: Tensor) -> Tensor:
    """Give the Engquist–Osher flux of u²/2 with smoothed parts ½(x ± √(x² + ε²)) (math.md, eq. engquist-osher).

    Smooth everywhere and a sum of functions of one unknown each; differs from Godunov's only at transonic shocks.
    """
    rightward = 0.5 * (left + torch.sqrt(left**2 + SMOOTHING**2))
    leftward = 0.5 * (right - torch.sqrt(right**2 + SMOOTHING**2))
    return 0.5 * rightward**2 + 0.5 * leftward**2


def split(left: Tensor, right: Tensor) -> Tensor:
    """Give the Engquist–Osher flux of u²/2 without smoothing (math.md, eq. engquist-osher with ε = 0).

    Its slopes have no jumps, where Godunov's jump at transonic shocks; equal to Godunov's everywhere else, so fields of one
    sign obey both alike. The flux to project with: at a jump no multiplier certifies the nearest field.
    """
    return 0.5 * left.clamp(min=0.0) ** 2 + 0.5 * right.clamp(max=0.0) ** 2


FLUXES: dict[FluxName, NumericalFlux] = {"smoothed": engquist_osher, "split": split, "godunov": godunov}


def numerical_flux(name: FluxName) -> NumericalFlux:
    """Look a numerical flux up by name."""
    if name not in FLUXES:
        raise LawError(f"flux expects one of {sorted(FLUXES)}; got {name!r}. Use 'godunov' for the exact one.")
    return FLUXES[name]


def local_flux(grid: Grid, steps: int | None = 5, flux: FluxName = "smoothed") -> Equality:
    """Update every inner point by the fluxes through its faces over the first `steps` time steps (math.md, eq. flux).

    Explicit in time with λ = dt/dx of the grid; None covers every step.
    """
    count = checked_steps(grid, steps, "local_flux(steps)")
    face = numerical_flux(flux)
    ratio = grid.spacing("t") / grid.spacing("x")

    def residual(u: Tensor, params: Params) -> Tensor:
        now, later = u[:, :count], u[1:-1, 1 : count + 1]
        through = face(now[:-1], now[1:])
        return later - now[1:-1] + ratio * (through[1:] - through[:-1])

    return Equality("flux", residual)
