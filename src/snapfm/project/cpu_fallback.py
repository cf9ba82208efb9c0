"""Tensors on a device: the CPU projects them, and copies overlap its work. Used by project.projector, which it must not import.

A batch is cut into pieces. All of them are on their way to pinned memory before the first is projected, and a piece's results
are on their way back while the next is projected. All copies are enqueued on the caller's current stream; the CPU waits
only before it reads a piece. Where torch cannot pin memory, copies are plain ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from snapfm.errors import DeviceWarning
from snapfm.kernels.operations import LANES
from snapfm.kernels.threads import Clock, cut, workers
from snapfm.laws import Params
from snapfm.solve.base import Warm
from snapfm.solve.memory import levels_to_caller
from snapfm.solve.projection import Moved, Projection, tensors, with_tensors

Result = TypeVar("Result", Projection, Moved)
Call = Callable[[Tensor, Params, Warm | None], Result]  # of a batch on the CPU

_SMALLEST = 64  # samples of a piece at least: the calls of smaller ones take longer than the copies that they hide
_CPU = torch.device("cpu")
_warned: set[torch.device] = set()


class _Copies:
    """Copies between a device and the CPU: asynchronous ones through pinned memory, or plain ones where that fails."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._pins = device, device.type == "cuda" and torch.cuda.is_available()

    def fetch(self, value: Tensor) -> Tensor:
        """Begin to copy a tensor to the CPU: see `arrival`."""
        memory = self._pinned(value) if value.device == self._device else None
        return value.to(_CPU) if memory is None else memory.copy_(value, non_blocking=True)

    def arrival(self) -> Callable[[], None]:
        """Return a function that waits for all copies begun so far, and for nothing after them."""
        return torch.cuda.current_stream(self._device).record_event().synchronize if self._pins else _nothing

    def send(self, value: Tensor) -> Tensor:
        """Begin to copy a tensor to the device; torch keeps the pinned memory until it has arrived."""
        memory = self._pinned(value)
        return value.to(self._device) if memory is None else memory.copy_(value).to(self._device, non_blocking=True)

    def _pinned(self, like: Tensor) -> Tensor | None:
        """Return pinned memory for a tensor, None where there is none."""
        if self._pins:
            try:
                return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)
            except RuntimeError:  # pinned memory is limited, and a driver may refuse it
                self._pins = False
        return None


def _nothing() -> None:
    """Wait for nothing."""


def by_cpu(project: Call[Result], u_hat: Tensor, given: Params, warm: Warm | None, clock: Clock) -> Result:
    """Project a batch (b, *shape) of any device with `project`, piece by piece; results and gradients go back there.

    The clock does not count the time spent waiting for the device: it is that of the network.
    """
    if u_hat.is_cpu:
        return project(u_hat, given, warm)
    _warn(u_hat)
    copies = _Copies(u_hat.device)
    with clock.paused():
        params = {name: copies.fetch(value) for name, value in given.items()}
        coming = [(some, copies.fetch(u_hat[some]), copies.arrival()) for some in pieces_of(len(u_hat))]
    made: list[Result] = []
    for some, start, arrived in coming:
        with clock.paused():
            arrived()
        own = {name: value if len(value) == 1 else value[some] for name, value in params.items()}
        result = project(start, own, None if warm is None else warm.part(some))
        made.append(with_tensors(result, {path: copies.send(value) for path, value in tensors(result).items()}))
    return made[0] if len(made) == 1 else made[0].concat(made)


def pieces_of(count: int) -> list[slice]:
    """Cut a batch into pieces that keep all threads busy; an empty one is one piece."""
    most = max(_SMALLEST, 2 * LANES * workers())
    return cut(count, LANES, -(-count // most)) or [slice(0, 0)]


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
