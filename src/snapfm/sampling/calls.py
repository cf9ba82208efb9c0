"""What is wrong with a model that cannot be called as velocity(u, tau), and which adapter helps."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from snapfm.errors import ShapeError
from snapfm.project.base import dtype_text
from snapfm.torch_internals import mixes_dtypes


def misfit(cause: Exception, u: Tensor, tau: float | Tensor) -> str | None:
    """Return the message for an exception of a model's first call, if it comes from how it was called; None otherwise."""
    first = str(cause).strip().partition("\n")[0].rstrip(".")
    raised = f"it raised {type(cause).__name__}: {first}"
    if mixes_dtypes(cause):
        return (
            f"velocity(u, tau) expects to run on {dtype_text(u)} fields; {raised}. Pass the network itself, whose dtype is then "
            "used, or sample(…, dtype=torch.float64), or convert: lambda u, tau: net(u.half(), tau).float()."
        )
    if isinstance(tau, float) and not isinstance(cause, RuntimeError) and "float" in first:
        return (
            f"velocity(u, tau) expects to take the flow time as one number; {raised}. If the model wants one time per sample, "
            "as a tensor, adapt it: snapfm.adapters.field_first(model), or time_first(model) if time comes first."
        )
    return None


def check_speed(speed: Any, u: Tensor) -> None:
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
