"""The closure of a periodic axis: the repeated end point holds the same value as the first."""

from __future__ import annotations

from torch import Tensor

from snapfm.laws.base import Equality, Params


def periodic(start: int = 1) -> Equality:
    """Make the last point of the x axis equal the first from slice `start` on (math.md, eq. periodic).

    The first slice is left out by default: an initial condition already closes it.
    """

    def residual(u: Tensor, params: Params) -> Tensor:
        return u[-1, start:] - u[0, start:]

    return Equality("periodic", residual)
