"""What is wrong with a model that cannot be called as velocity(u, tau), and which adapter helps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snapfm.errors import SettingError, ShapeError, SnapfmError
from snapfm.solve.projection import dtype_text
from snapfm.torch_internals import mixes_dtypes

_SHAPES = (
    "shape",
    "size",
    "dimension",
    "channels",
    "index",
)  # in what torch says of tensors that do not fit each other


def call_mismatch(cause: Exception, u: Tensor, tau: float | Tensor) -> SnapfmError | None:
    """Return the error for an exception of a model's first call, if it comes from how it was called; None otherwise."""
    first = str(cause).strip().partition("\n")[0].rstrip(".")
    raised = f"it raised {type(cause).__name__}: {first}"
    if mixes_dtypes(cause):
        return SettingError(
            f"velocity(u, tau) expects to run on {dtype_text(u)} fields; {raised}. Pass the network itself, whose dtype is then "
            "used, or sample(…, dtype=torch.float64), or convert: lambda u, tau: net(u.half(), tau).float()."
        )
    if isinstance(tau, float) and not isinstance(cause, RuntimeError) and "float" in first:
        return SettingError(
            f"velocity(u, tau) expects to take the flow time as one number; {raised}. If the model wants one time per sample, "
            "as a tensor, adapt it: snapfm.adapters.field_first(model), or time_first(model) if time comes first."
        )
    fits = isinstance(cause, torch.OutOfMemoryError) or not any(word in first for word in _SHAPES)
    if isinstance(cause, (RuntimeError, IndexError)) and not fits:
        return ShapeError(
            f"velocity(u, tau) expects to run on fields {tuple(u.shape)}; {raised}. If the model takes another layout, adapt it: "
            "snapfm.adapters.flat for flat fields, channels for an axis of components."
        )
    return None


def check_velocity_output(speed: Any, u: Tensor) -> None:
    """Accept one tensor of the shape of the fields; any other would broadcast against them."""
    if isinstance(speed, Tensor) and speed.shape == u.shape:
        return
    expected = f"velocity(u, tau) expects fields {tuple(u.shape)} back"
    if isinstance(speed, Tensor):
        raise ShapeError(
            f"{expected}; got {tuple(speed.shape)}. Return one tensor of the shape of its input. Adapters help: "
            "snapfm.adapters.time_first for a model that takes the time first, flat and channels for another layout of fields."
        )
    if isinstance(getattr(speed, "sample", None), Tensor):
        raise ShapeError(
            f"{expected}; got {type(speed).__name__} with a tensor .sample. Adapt the model: snapfm.adapters.diffusers(model, "
            "scheduler)."
        )
    raise ShapeError(f"{expected}; got {type(speed).__name__}. Return one tensor of the shape of its input.")
