"""The judge: how far fields are from their laws, in float64, from the laws alone.

It never asks a projector, so no method marks its own work. Imports laws only.
"""

from __future__ import annotations

import torch
from torch import Tensor

from snapfm.laws import Bounds, Inequality, Law, Params


def residuals(law: Law, u: Tensor, params: Params) -> Tensor:
    """Evaluate how far each row of a law is from holding, for fields (b, *shape): (b, rows), float64, never negative.

    Params have a leading axis of b, or of 1 where all samples share them.
    """
    return torch.stack([_one(law, field, one_of(params, i)) for i, field in enumerate(u.double())])


def one_of(params: Params, i: int) -> Params:
    """Give sample i its own params, in float64."""
    return {name: value.double()[i if len(value) > 1 else 0] for name, value in params.items()}


def _one(law: Law, field: Tensor, params: Params) -> Tensor:
    if isinstance(law, Bounds):
        excess = torch.zeros_like(field)
        if law.lower is not None:
            excess = torch.maximum(excess, law.lower - field)
        if law.upper is not None:
            excess = torch.maximum(excess, field - law.upper)
        return excess.flatten()
    signed = law.residual(field, params).flatten()
    return signed.clamp(min=0.0) if isinstance(law, Inequality) else signed.abs()
