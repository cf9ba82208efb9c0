"""The homogeneous Neumann condition: no gradient at an end of the x axis."""

from __future__ import annotations

from torch import Tensor

from snapfm.laws.base import Equality, Params
from snapfm.laws.dirichlet import Side


def neumann(side: Side = "right") -> Equality:
    """Make the field at one end equal its neighbour's at every time (math.md, eq. neumann)."""
    end, inside = (0, 1) if side == "left" else (-1, -2)

    def residual(u: Tensor, params: Params) -> Tensor:
        return u[end] - u[inside]

    return Equality("neumann", residual)
