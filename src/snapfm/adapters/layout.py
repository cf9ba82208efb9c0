"""Layout: models of flat fields, and models with a channel axis. The sampler and the laws see plain fields."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from snapfm.adapters.base import Adapter, Model, fields_back
from snapfm.errors import SettingError, ShapeError
from snapfm.project.checks import is_whole


class Flat(Adapter):
    """A velocity of flat fields: (b, n) for (b, *shape)."""

    name = "flat"

    def forward(self, u: Tensor, tau: float | Tensor, **inputs: Any) -> Tensor:
        """Flatten, ask, and restore the shape."""
        sent = u.flatten(1)
        return fields_back(self.model(sent, tau, **inputs), sent, "flat(model)").view_as(u)

    def noise_from(self, white: Tensor) -> Tensor:
        """Turn white noise into that of the flow, flat."""
        return super().noise_from(white.flatten(1)).view_as(white)

    @property
    def shape(self) -> None:
        """A flat model does not know the shape of fields."""
        return


class Channels(Adapter):
    """A velocity with channels after the batch axis: one more axis, or an axis of the field moved there."""

    name = "channels"

    def __init__(self, model: Model, axis: int | None = None) -> None:
        super().__init__(model)
        if axis is not None and not is_whole(axis):
            raise SettingError(
                f"channels(model, axis) expects the axis of ONE field that holds its components, or None for one channel; got "
                f"{axis!r}. axis=-1 is the last one."
            )
        self.axis = axis

    def forward(self, u: Tensor, tau: float | Tensor, **inputs: Any) -> Tensor:
        """Bring channels to where the model has them, ask, and bring them back."""
        sent = self._there(u)
        return self._back(fields_back(self.model(sent, tau, **inputs), sent, "channels(model)"))

    def noise_from(self, white: Tensor) -> Tensor:
        """Turn white noise into that of the flow, with channels where the model has them."""
        return self._back(super().noise_from(self._there(white)))

    def _there(self, u: Tensor) -> Tensor:
        return u.unsqueeze(1) if self.axis is None else u.movedim(self._from(u.ndim - 1), 1)

    def _back(self, u: Tensor) -> Tensor:
        return u.squeeze(1) if self.axis is None else u.movedim(1, self._from(u.ndim - 1))

    def _from(self, axes: int) -> int:
        """Say which axis of a batch of fields holds the components."""
        assert self.axis is not None
        if not -axes <= self.axis < axes:
            raise ShapeError(
                f"channels(model, axis) expects an axis of fields with {axes}; got {self.axis}. Count without the batch axis, "
                "from 0."
            )
        return self.axis % axes + 1

    def _outside(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.axis is None:
            return shape[1:]
        rest = list(shape[1:])
        rest.insert(self._from(len(shape)) - 1, shape[0])
        return tuple(rest)


def flat(model: Model) -> Flat:
    """Adapt a velocity of flat fields (b, n)."""
    return Flat(model)


def channels(model: Model, axis: int | None = None) -> Channels:
    """Adapt a velocity with a channel axis, (b, c, …).

    Without `axis` fields have no components and the model one channel. With it, this axis of the field (counted without the
    batch) holds the components: fields (nx, nt, c) with axis=-1. Fields that already are (c, nx, nt) need no adapter.
    """
    return Channels(model, axis)
