"""The initial condition: the first time slice is given."""

from __future__ import annotations

from torch import Tensor

from snapfm.laws.base import Equality, Params


def initial(param: str = "u0") -> Equality:
    """Make the field at the first time equal params[param]; time is the last axis (math.md, eq. initial)."""

    def residual(u: Tensor, params: Params) -> Tensor:
        return u[..., 0] - params[param]

    return Equality("initial", residual)
