"""Conserved mass: the total over the left-Riemann points never changes."""

from __future__ import annotations

from torch import Tensor

from snapfm.grid import Grid
from snapfm.laws.base import Equality, Params


def mass(grid: Grid, param: str = "u0") -> Equality:
    """Keep the sum over space equal to that of params[param] at every later time (math.md, eq. mass).

    On a periodic axis the repeated end point is left out, so the sum is the left Riemann sum without its factor dx.
    """
    stop = -1 if grid.axis("x").periodic else None

    def residual(u: Tensor, params: Params) -> Tensor:
        return u[:stop, 1:].sum(0) - params[param][:stop].sum()

    return Equality("mass", residual)
