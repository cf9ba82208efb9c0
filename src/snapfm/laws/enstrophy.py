"""Conserved enstrophy: the integral of the squared vorticity never changes."""

from __future__ import annotations

import math

from torch import Tensor

from snapfm.grid import Grid
from snapfm.laws.base import Equality, Params


def enstrophy(grid: Grid, param: str = "u0") -> Equality:
    """Keep ∫w² equal to that of params[param] at every later time (math.md, eq. enstrophy).

    True of ideal flow only: viscosity destroys enstrophy and forcing makes it.
    """
    space = grid.axes[:-1]
    over = tuple(range(len(space)))
    weight = math.prod(axis.spacing for axis in space)

    def residual(u: Tensor, params: Params) -> Tensor:
        return weight * ((u[..., 1:] ** 2).sum(over) - (params[param] ** 2).sum())

    return Equality("enstrophy", residual)
