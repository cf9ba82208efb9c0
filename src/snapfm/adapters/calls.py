"""How a model is called: where its time goes and in which form, the layout of its fields, and its extra inputs.

A model that takes (u, tau) with tau a plain number needs no adapter. These adapt the others, and say which path the model was
trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from snapfm.adapters.base import Adapter, Model, fields_back, times_of
from snapfm.adapters.paths import check_path
from snapfm.errors import SettingError, ShapeError
from snapfm.laws.checks import Check, is_whole, or_none
from snapfm.sampling.path import Path, along
from snapfm.text import plural

Clock = Callable[[float], float]  # from flow time to the model's own time; whole numbers are passed on as torch.int64
Times = Literal["each", "one"]

_TIMES = Check(
    lambda times: times in get_args(Times), "'each' (time of shape (b,)) or 'one' (of shape ())",
    "Most networks are trained with 'each'.", SettingError,
)  # fmt: skip
_AXIS = Check(
    or_none(is_whole), "the axis of ONE field that holds its components, or None for one channel", "axis=-1 is the last one.",
    SettingError,
)  # fmt: skip


class ModelCall(Adapter):
    """A model with its own calling convention and clock.

    `times`: one time per sample, (b,), or one for all, (). `clock` maps flow time to the model's own.
    """

    def __init__(
        self, model: Model, path: Path | None = None, clock: Clock | None = None, times: Times = "each"
    ) -> None:
        name = self.name
        if isinstance(model, Adapter):
            raise SettingError(
                f"{name}(model) expects a model that is called in its own way; got the adapter {model.name}, which is called as "
                f"velocity(u, tau). Put {name} inside and others around it."
            )
        super().__init__(model, None if path is None else check_path(path, f"{name}(path)"))
        if clock is not None and not callable(clock):
            raise SettingError(
                f"{name}(clock) expects a function of flow time; got {type(clock).__name__}. For a model whose time runs from 1 "
                "at noise to 0 at data write clock=lambda tau: 1 - tau."
            )
        _TIMES.apply(f"{name}(times)", times)
        self.clock = clock
        self.times = times

    def forward(self, u: Tensor, tau: float | Tensor, **inputs: Any) -> Tensor:
        """Evaluate the model at fields u (b, *shape) and flow time tau, a number or (b,)."""
        return fields_back(self._call(u, self._time(u, tau), **inputs), u, f"{self.name}(model)")

    def _call(self, u: Tensor, time: Tensor, **inputs: Any) -> Any:
        raise NotImplementedError

    def _time(self, u: Tensor, tau: float | Tensor) -> Tensor:
        times = times_of(tau, u)
        if self.clock is not None:
            # The number itself, not its rounding to the dtype of the fields, decides which whole time is nearest.
            given = tau if isinstance(tau, Tensor) else torch.tensor(float(tau), dtype=torch.float64)
            own = [self.clock(value) for value in given.reshape(-1).tolist()]
            whole = all(isinstance(value, int) for value in own)
            times = torch.tensor(own, dtype=torch.int64 if whole else u.dtype, device=u.device)
            times = times.reshape(()) if len(own) == 1 else times
        return times.expand(len(u)) if self.times == "each" else times


class FieldFirst(ModelCall):
    """Adapt a model called as model(u, tau) that needs time as a tensor, another path or another clock.

    The model gets fields (b, *shape) and times (b,), or () with times="one", and returns (b, *shape). `clock` maps flow time
    to the model's own; `path` says how noise and data are mixed.
    """

    name = "field_first"

    def _call(self, u: Tensor, time: Tensor, **inputs: Any) -> Any:
        return self.model(u, time, **inputs)


class TimeFirst(ModelCall):
    """Adapt a model called as model(tau, u), with times (b,) and fields (b, *shape); settings as in field_first."""

    name = "time_first"

    def _call(self, u: Tensor, time: Tensor, **inputs: Any) -> Any:
        return self.model(time, u, **inputs)


class Joined(ModelCall):
    """Adapt a model of one input: the flattened field with its time as the last column, (b, n + 1) to (b, n)."""

    name = "joined"

    def _call(self, u: Tensor, time: Tensor, **inputs: Any) -> Any:
        column = along(time, u.flatten(1)).expand(len(u), 1)
        answer = self.model(torch.cat([u.flatten(1), column.to(u)], dim=1), **inputs)
        same = isinstance(answer, Tensor) and answer.shape == u.flatten(1).shape
        return answer.view_as(u) if same else answer


class _Layout(Adapter):
    """A velocity of fields that are laid out in another way than those of the run."""

    def forward(self, u: Tensor, tau: float | Tensor, **inputs: Any) -> Tensor:
        """Bring fields (b, *shape) into the model's layout, evaluate, and bring the velocity back."""
        sent = self._to_model(u)
        return self._from_model(fields_back(self.model(sent, tau, **inputs), sent, f"{self.name}(model)"), u)

    def noise_from(self, white: Tensor) -> Tensor:
        """Turn white noise into that of the flow, in the model's layout."""
        return self._from_model(super().noise_from(self._to_model(white)), white)

    def _to_model(self, u: Tensor) -> Tensor:
        raise NotImplementedError

    def _from_model(self, u: Tensor, like: Tensor) -> Tensor:
        raise NotImplementedError


class Flat(_Layout):
    """Adapt a velocity of flat fields: (b, n) for (b, *shape)."""

    name = "flat"

    @property
    def shape(self) -> None:
        """None: a flat model does not know the shape of fields."""
        return

    def _to_model(self, u: Tensor) -> Tensor:
        return u.flatten(1)

    def _from_model(self, u: Tensor, like: Tensor) -> Tensor:
        return u.view_as(like)


class Channels(_Layout):
    """Adapt a velocity with a channel axis, (b, c, …).

    Without `axis`, fields have no components and the model has one channel. With it, this axis of the field (counted without
    the batch) holds the components: fields (nx, nt, c) with axis=-1. Fields (c, nx, nt) need no adapter.
    """

    name = "channels"

    def __init__(self, model: Model, axis: int | None = None) -> None:
        super().__init__(model)
        _AXIS.apply("channels(model, axis)", axis)
        self.axis = axis

    def _to_model(self, u: Tensor) -> Tensor:
        return u.unsqueeze(1) if self.axis is None else u.movedim(self._batch_axis(u.ndim - 1), 1)

    def _from_model(self, u: Tensor, like: Tensor) -> Tensor:
        return u.squeeze(1) if self.axis is None else u.movedim(1, self._batch_axis(u.ndim - 1))

    def _batch_axis(self, axes: int) -> int:
        """Return the axis of a batch of fields that holds the components."""
        assert self.axis is not None
        if not -axes <= self.axis < axes:
            raise ShapeError(
                f"channels(model, axis) expects an axis of fields with {axes}; got {self.axis}. Count without the batch axis, "
                "from 0."
            )
        return self.axis % axes + 1

    def _outside(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        rest = list(shape[1:])
        if self.axis is not None:
            rest.insert(self._batch_axis(len(shape)) - 1, shape[0])
        return tuple(rest)


class Conditioned(Adapter):
    """Adapt a velocity that takes extra inputs, such as parameters, labels or fields: model(u, tau, name=rows).

    Every input has a leading axis. Row i belongs to sample i of the run: `sample(first=…, count=…)` selects rows by the
    numbers of its samples, so runs in chunks return what one run returns. One row is shared by all samples.
    """

    name = "conditioned"

    def __init__(self, model: Model, **inputs: Tensor) -> None:
        super().__init__(model)
        for name, value in inputs.items():
            if not isinstance(value, Tensor) or value.ndim == 0 or len(value) == 0:
                came = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise ShapeError(
                    f"conditioned(model, {name}=…) expects a tensor with one row per sample; got {came}. Rows shared by all "
                    "samples have a leading axis of 1: torch.as_tensor(value)[None]."
                )
            self.register_buffer(f"input_{name}", value, persistent=False)
        self.names = tuple(inputs)

    def forward(self, u: Tensor, tau: float | Tensor, **inputs: Any) -> Tensor:
        """Evaluate the model with each sample's inputs; floating-point ones in the dtype of the fields."""
        own = {name: self._rows(name, u) for name in self.names}
        answer: Tensor = self.model(u, tau, **(own | inputs))
        return answer

    def of_samples(self, first: int, count: int) -> Conditioned:
        """Keep the rows of samples first .. first + count − 1."""
        chosen = self._around(super().of_samples(first, count).model)
        chosen._buffers = dict(self._buffers)
        for name in self.names:
            value = self.get_buffer(f"input_{name}")
            if len(value) > 1:
                if len(value) < first + count:
                    raise ShapeError(
                        f"conditioned(model, {name}=…) expects a row for each of samples 0 .. {first + count - 1}; got "
                        f"{len(value)}. Row i belongs to sample i of the run: give all of them, or one for all."
                    )
                chosen._buffers[f"input_{name}"] = value[first : first + count]
        return chosen

    def _rows(self, name: str, u: Tensor) -> Tensor:
        value = self.get_buffer(f"input_{name}")
        if len(value) not in (1, len(u)):
            raise ShapeError(
                f"conditioned(model, {name}=…) expects a row for each of {plural(len(u), 'field')}, or one for all; got "
                f"{len(value)}. Choose rows with velocity.of_samples(first, count), as snapfm.sample does."
            )
        rows = value.expand(len(u), *value.shape[1:])
        return rows.to(u) if rows.is_floating_point() else rows.to(u.device)


# The names that users call.
field_first, time_first, joined = FieldFirst, TimeFirst, Joined
flat, channels, conditioned = Flat, Channels, Conditioned
