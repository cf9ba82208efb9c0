"""The homogeneous Neumann condition: no gradient at an end of the x axis."""

from __future__ import annotations

from torch import Tensor

from snapfm.laws.base import Equality, Params
from snapfm.laws.dirichlet import Side, check_side


def neumann(side: Side = "right") -> Equality:
    """Make the field at one end equal its neighbour's at every time (math.md, eq. neumann)."""
    check_side("neumann(side)", side)
    end, inside = (0, 1) if side == "left" else (-1, -2)

    def residual(u: Tensor, params: Params) -> Tensor:
        return u[end] - u[inside]

    return Equality("neumann", residual)
