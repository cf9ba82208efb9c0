"""Tensors on a device: copied to the CPU, which projects them, and back. Used by project.projector, which it must not import."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from snapfm.errors import DeviceWarning
from snapfm.kernels.threads import Clock
from snapfm.laws import Params
from snapfm.solve.base import Warm
from snapfm.solve.memory import levels_to_caller
from snapfm.solve.projection import Moved, Projection

Result = TypeVar("Result", Projection, Moved)
Call = Callable[[Tensor, Params, Warm | None], Result]  # of a batch on the CPU

_warned: set[torch.device] = set()


def by_cpu(project: Call[Result], u_hat: Tensor, params: Params, warm: Warm | None, clock: Clock) -> Result:
    """Project a batch (b, *shape) of any device with `project`; results and gradients go back there.

    The clock does not count the time spent waiting for the device: it is that of the network.
    """
    if u_hat.is_cpu:
        return project(u_hat, params, warm)
    _warn(u_hat)
    with clock.paused():
        here, params = u_hat.to("cpu"), {name: value.to("cpu") for name, value in params.items()}
    return project(here, params, warm).to(u_hat.device)


def _warn(u_hat: Tensor) -> None:
    """Say once in a process, for each device, what is going to happen."""
    if u_hat.device in _warned:
        return
    _warned.add(u_hat.device)
    warnings.warn(
        f"project(u_hat=…) expects fields on the CPU, which projects them; got {u_hat.device}. Answers are the same, but every "
        f"call waits for the device and copies the fields to the CPU and back, {u_hat.nbytes / 1e6:.3g} MB each way in this "
        "one. Nothing has to be done where the network takes most of the time; where it does not, run it on the CPU as well. "
        "docs/gpu.md says what it costs; to hide this, ignore snapfm.errors.DeviceWarning.",
        DeviceWarning,
        stacklevel=levels_to_caller(),
    )
