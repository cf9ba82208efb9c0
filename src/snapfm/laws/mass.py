"""Conserved mass: the total over space never changes."""

from __future__ import annotations

import math

from torch import Tensor

from snapfm.grid import Grid
from snapfm.laws.base import Equality, Params


def mass(
    grid: Grid, param: str | None = "u0", *, repeated: bool = False, weighted: bool = False, start: int = 1
) -> Equality:
    """Keep the sum over space equal to that of params[param] at every later time (math.md, eq. mass).

    By default each point counts once, so the repeated end point of a periodic axis is left out, and no spacing enters;
    `repeated` counts it too, `weighted` multiplies by the spacing of the space axes. `start=0` adds the row of the
    first slice, which an initial condition already states. `param=None` compares with the field's own first slice.
    """
    space = grid.axes[:-1]
    points = tuple(slice(None, -1 if axis.periodic and not repeated else None) for axis in space)
    over = tuple(range(len(space)))
    weight = math.prod(axis.spacing for axis in space) if weighted else 1.0

    def residual(u: Tensor, params: Params) -> Tensor:
        first = u[..., 0] if param is None else params[param]
        return weight * (u[(*points, slice(start, None))].sum(over) - first[points].sum())

    return Equality("mass", residual)
