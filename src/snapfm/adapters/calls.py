"""Call conventions: where a model wants its time, and in which form.

A model that takes (u, tau) with tau a plain number needs no adapter. These make the others fit, and say which path the
model was trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from snapfm.adapters.base import Adapter, Model, along, check_path, fields_back, times_of
from snapfm.errors import SettingError
from snapfm.sampling.path import Path

Clock = Callable[[float], float]  # flow time to the model's own time; whole numbers arrive as torch.int64
Times = Literal["each", "one"]


class Call(Adapter):
    """A model called in its own way, with its own clock: `each` sample gets its time (b,), or `one` is for all, ()."""

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
        if times not in ("each", "one"):
            raise SettingError(
                f"{name}(times) expects 'each' (time of shape (b,)) or 'one' (of shape ()); got {times!r}. Most networks are "
                "trained with 'each'."
            )
        self.clock = clock
        self.times = times

    def forward(self, u: Tensor, tau: float | Tensor, **inputs: Any) -> Tensor:
        """Ask the model for its answer at fields u (b, *shape) and flow time tau, a number or (b,)."""
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


class FieldFirst(Call):
    """A model called as model(u, tau)."""

    name = "field_first"

    def _call(self, u: Tensor, time: Tensor, **inputs: Any) -> Any:
        return self.model(u, time, **inputs)


class TimeFirst(Call):
    """A model called as model(tau, u)."""

    name = "time_first"

    def _call(self, u: Tensor, time: Tensor, **inputs: Any) -> Any:
        return self.model(time, u, **inputs)


class Joined(Call):
    """A model of one input: the flattened field with its time as last column, (b, n + 1) to (b, n)."""

    name = "joined"

    def _call(self, u: Tensor, time: Tensor, **inputs: Any) -> Any:
        column = along(time, u.flatten(1)).expand(len(u), 1)
        answer = self.model(torch.cat([u.flatten(1), column.to(u)], dim=1), **inputs)
        same = isinstance(answer, Tensor) and answer.shape == u.flatten(1).shape
        return answer.view_as(u) if same else answer


def field_first(
    model: Model, path: Path | None = None, clock: Clock | None = None, times: Times = "each"
) -> FieldFirst:
    """Adapt a model called as model(u, tau) that wants time as a tensor, runs on another path or by another clock.

    `times`: one per sample, (b,), or one for all, (). `clock` maps flow time to the model's own.
    """
    return FieldFirst(model, path, clock, times)


def time_first(model: Model, path: Path | None = None, clock: Clock | None = None, times: Times = "each") -> TimeFirst:
    """Adapt a model called as model(tau, u); settings as in field_first."""
    return TimeFirst(model, path, clock, times)


def joined(model: Model, path: Path | None = None, clock: Clock | None = None) -> Joined:
    """Adapt a model of flat fields with their time as last column, (b, n + 1) to (b, n)."""
    return Joined(model, path, clock)
