"""The Dirichlet condition: the field is given at an end of the x axis."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from snapfm.errors import LawError
from snapfm.laws.base import Equality, Params

Side = Literal["left", "right"]


def dirichlet(param: str = "left", side: Side = "left") -> Equality:
    """Make the field at one end equal params[param] at every time (math.md, eq. dirichlet).

    The param is one number per sample, or one number per time.
    """
    check_side("dirichlet(side)", side)
    end = 0 if side == "left" else -1

    def residual(u: Tensor, params: Params) -> Tensor:
        return u[end] - params[param]

    return Equality("dirichlet", residual)


def check_side(argument: str, side: Side) -> None:
    """Accept an end of the x axis; `argument` is how the caller wrote it."""
    if side not in get_args(Side):
        raise LawError(
            f"{argument} expects 'left' or 'right'; got {side!r}. 'left' is the first point of the x axis, 'right' the last."
        )
