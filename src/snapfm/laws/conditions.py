"""Laws that fix points of the field: initial, Dirichlet, Neumann and periodic conditions. Time is the last axis."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor

from snapfm.errors import LawError
from snapfm.laws.base import Equality, Params
from snapfm.laws.checks import Check

Side = Literal["left", "right"]

_SIDE = Check(
    lambda side: side in get_args(Side), "'left' or 'right'",
    "'left' is the first point of the x axis, 'right' the last.", LawError,
)  # fmt: skip


def initial(param: str = "u0") -> Equality:
    """Make the field at the first time equal params[param] (math.md, eq. initial).

    Fields are (nx, …, nt); the param is (b, nx, …), one initial state per sample. One row for each of its points.
    """

    def residual(u: Tensor, params: Params) -> Tensor:
        return u[..., 0] - params[param]

    return Equality("initial", residual)


def dirichlet(param: str = "left", side: Side = "left") -> Equality:
    """Make the field at one end of the x axis equal params[param] at every time (math.md, eq. dirichlet).

    Fields are (nx, nt). The param is (b,), one number per sample, or (b, nt), one number per time. One row per time.
    """
    _SIDE.apply("dirichlet(side)", side)
    end = 0 if side == "left" else -1

    def residual(u: Tensor, params: Params) -> Tensor:
        return u[end] - params[param]

    return Equality("dirichlet", residual)


def neumann(side: Side = "right") -> Equality:
    """Make the field at one end of the x axis equal its neighbor at every time: no gradient (math.md, eq. neumann).

    Fields are (nx, nt). One row per time.
    """
    _SIDE.apply("neumann(side)", side)
    end, inside = (0, 1) if side == "left" else (-1, -2)

    def residual(u: Tensor, params: Params) -> Tensor:
        return u[end] - u[inside]

    return Equality("neumann", residual)


def periodic(start: int = 1) -> Equality:
    """Make the last point of the x axis equal the first from slice `start` on (math.md, eq. periodic).

    Fields are (nx, nt). The first slice is left out by default: the initial condition already closes it.
    """

    def residual(u: Tensor, params: Params) -> Tensor:
        return u[-1, start:] - u[0, start:]

    return Equality("periodic", residual)
