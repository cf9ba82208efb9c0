"""Limits: all Bounds of a list of laws, flattened over the field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from snapfm.arrays import Values
from snapfm.errors import ShapeError
from snapfm.laws import Bounds, Law


@dataclass(frozen=True)
class Limits:
    """Lower and upper limit of every unknown, infinite where there is none, and which Bounds gave them."""

    lower: Values
    upper: Values
    names: tuple[str, ...] = ()

    @cached_property
    def bounded(self) -> npt.NDArray[np.bool_]:
        """Which unknowns have any limit."""
        return np.isfinite(self.lower) | np.isfinite(self.upper)


def limits_of(laws: Sequence[Law], shape: tuple[int, ...]) -> Limits:
    """Join the Bounds among the laws: the tightest limits hold."""
    lower, upper = np.full(shape, -np.inf), np.full(shape, np.inf)
    names = []
    for law in laws:
        if isinstance(law, Bounds):
            names.append(law.name)
            if law.lower is not None:
                lower = np.maximum(lower, _spread(law.name, law.lower, shape))
            if law.upper is not None:
                upper = np.minimum(upper, _spread(law.name, law.upper, shape))
    if not (lower <= upper).all():
        raise ShapeError(
            f"laws expects bounds that leave room; {names} together have a lower limit above an upper one. Correct one of them."
        )
    return Limits(lower.ravel(), upper.ravel(), tuple(names))


def _spread(name: str, limit: float | torch.Tensor, shape: tuple[int, ...]) -> Values:
    value = torch.as_tensor(limit, dtype=torch.float64).detach().cpu().numpy()
    try:
        spread: Values = np.broadcast_to(value, shape)
    except ValueError as cause:
        raise ShapeError(
            f"Bounds '{name}' expects limits that broadcast to a field of shape {shape}; got shape {value.shape}. Give a number, "
            "or a tensor of the field's shape."
        ) from cause
    return spread
