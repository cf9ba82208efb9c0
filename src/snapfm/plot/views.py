"""Views: how fields of any number of axes become curves and planes, the same in all pictures.

A field of one axis is a curve. Of two axes it is a plane, the first axis upwards: (x, t) has time to the right. Of more, planes
of the first two axes (y upwards) are cut out at some places of the last one, and in the middle of those between. Knows no colors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from snapfm.errors import ShapeError
from snapfm.laws.checks import is_whole
from snapfm.project import Projection
from snapfm.sampling import Samples

Fields: TypeAlias = Projection | Samples | torch.Tensor | NDArray[Any]

SLICES = 4  # planes that are cut out of a field


@dataclass(frozen=True)
class Views:
    """How fields with these axes, that of components left out, are shown; `slices` planes of three axes or more."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    slices: int = SLICES  # one is that at the end of the last axis

    @property
    def curves(self) -> bool:
        """Whether fields are curves rather than planes."""
        return len(self.shape) == 1

    @property
    def names(self) -> tuple[str, str]:
        """The names of the axes of a plane, across and up."""
        return (self.dims[1], self.dims[0]) if len(self.shape) == 2 else (self.dims[0], self.dims[1])

    @property
    def titles(self) -> list[str]:
        """What each plane of a field shows; an empty text if there is but one."""
        if len(self.shape) <= 2 or self.slices == 1:
            return [""]
        middle = [f"{name} = {extent // 2}" for name, extent in zip(self.dims[2:-1], self.shape[2:-1])]
        return [", ".join([*middle, f"{self.dims[-1]} = {place}"]) for place in self._places]

    def planes(self, field: NDArray[Any]) -> list[NDArray[Any]]:
        """Cut the planes out of one field, first axis upwards."""
        if len(self.shape) <= 2:
            return [field]
        for extent in self.shape[2:-1]:
            field = field[:, :, extent // 2]
        return [field[:, :, place].T for place in self._places]

    @property
    def _places(self) -> list[int]:
        last = self.shape[-1]
        if self.slices == 1:
            return [last - 1]
        return sorted({round(place) for place in np.linspace(0, last - 1, min(self.slices, last)).tolist()})


def batch_of(value: Fields, call: str) -> NDArray[Any]:
    """Return fields (b, *shape) as an array: those of a result, a tensor of any device, or an array."""
    found = value.u if isinstance(value, (Projection, Samples)) else value
    array = found.detach().cpu().numpy() if isinstance(found, torch.Tensor) else np.asarray(found)
    if array.ndim < 2 or not array.size or array.dtype.kind not in "iuf":
        raise ShapeError(
            f"{call} expects a batch of fields (b, *shape) of real numbers; got shape {array.shape}, {array.dtype}. Add the "
            "batch axis to one field: u[None]; show the parts of complex ones."
        )
    return array


def with_channels(array: NDArray[Any], channels: int | None, call: str) -> NDArray[Any]:
    """Move the axis of ONE field that holds components behind the batch axis, (b, c, *shape); without one, c is 1."""
    axes = array.ndim - 1
    if channels is None:
        return array[:, None]
    if not is_whole(channels) or not -axes <= channels < axes or axes < 2:
        raise ShapeError(
            f"{call}(channels) expects the axis of ONE field that holds its components, from 0 to {axes - 1}; got {channels!r}. "
            "Leave it out for fields with one component."
        )
    return np.moveaxis(array, channels % axes + 1, 1)


def views_of(shape: Sequence[int], dims: Sequence[str] | None, call: str) -> Views:
    """Return how fields of this shape are shown; `dims` names their axes, without that of components."""
    names = tuple(f"axis {place}" for place in range(len(shape))) if dims is None else tuple(dims)
    if len(names) != len(shape):
        raise ShapeError(
            f"{call}(dims) expects a name for each of {len(shape)} axes of a field; got {list(names)}. Leave out the batch axis "
            "and that of components."
        )
    return Views(names, tuple(shape))
