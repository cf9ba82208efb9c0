"""Tensors that claim to be on `cuda:0` while their numbers are on the CPU, for what the CPU does with tensors of a device.

Numbers leave them through `.to("cpu")`, `.cpu()` and `copy_` only. Where memory is pinned, a copy that does not block is made
when its event is waited for, and until then the memory holds NaN: what reads it too early shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

CUDA = torch.device("cuda", 0)


class Far(Tensor):
    """A tensor on a device that is not there."""

    @property
    def device(self) -> torch.device:
        return CUDA

    @property
    def is_cpu(self) -> bool:
        return False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        asked = [one for one in tree_leaves((args, kwargs)) if isinstance(one, (torch.device, str))]
        if func is Tensor.to and "cpu" in map(str, asked):
            rest = [near(one) if isinstance(one, Far) else one for one in args if not isinstance(one, torch.device)]
            return Tensor.to(*rest, **{**kwargs, "device": "cpu"}).clone()
        if func is Tensor.cpu:
            return near(args[0]).clone()
        if func in (Tensor.numpy, Tensor.tolist, Tensor.item, Tensor.__bool__, Tensor.__float__):
            raise AssertionError(f"{func.__name__} reads numbers of a device")
        others = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor) and not isinstance(one, Far)]
        if any(one.dim() for one in others):
            raise AssertionError(f"{func.__name__} mixes tensors of two devices")
        if func is Tensor.to:  # it is there already
            args = [one for one in args if one != CUDA]
            kwargs = {name: one for name, one in kwargs.items() if one != CUDA}
            return args[0] if len(args) == 1 and not kwargs else super().__torch_function__(func, types, args, kwargs)
        return super().__torch_function__(func, types, args, kwargs)


class Device(TorchFunctionMode):
    """Torch with a device `cuda:0`. `log` has what was done, in order; `pending` what was begun and not waited for."""

    def __init__(self, pins: bool) -> None:
        super().__init__()
        self.pins, self.log, self.pending = pins, list[str](), list[Callable[[], object]]()
        self.waits: Callable[[], object] = lambda: None
        self._pinned = list[int]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.empty and kwargs.get("pin_memory"):
            if not self.pins:
                raise RuntimeError("pinned memory is used up")
            found = torch.full(*args, torch.nan if kwargs["dtype"].is_floating_point else 0, dtype=kwargs["dtype"])
            self._pinned.append(found.data_ptr())
            return found
        if func is Tensor.copy_ and isinstance(args[1], Far) and not isinstance(args[0], Far):
            self.log.append("fetch")
            memory, values = args[0], near(args[1])
            assert kwargs == {"non_blocking": True}
            assert memory.data_ptr() in self._pinned or not memory.numel()
            if torch.is_grad_enabled() and values.requires_grad:
                return memory.copy_(values)
            values = values.detach().clone()
            self.pending.append(lambda: memory.copy_(values))
            return memory
        leaves = tree_leaves((args, kwargs))
        if any(isinstance(one, Far) for one in leaves) or not any(
            isinstance(one, torch.device) and one == CUDA for one in leaves
        ):
            return func(*args, **kwargs)
        if func is Tensor.to:
            self.log.append("send")
            if kwargs.get("non_blocking"):
                assert args[0].data_ptr() in self._pinned or not args[0].numel()
        args, kwargs = tree_map(
            lambda one: torch.device("cpu") if isinstance(one, torch.device) else one, (args, kwargs)
        )
        return far(func(*args, **kwargs))

    def record_event(self) -> _Event:
        """What torch.cuda.Stream has."""
        return _Event(self, len(self.pending))


class _Event:
    def __init__(self, device: Device, begun: int) -> None:
        self._device, self._begun = device, begun

    def synchronize(self) -> None:
        self._device.log.append("wait")
        self._device.waits()
        for copy in self._device.pending[: self._begun]:
            copy()


@contextmanager
def device(pins: bool = True) -> Iterator[Device]:
    """Have a device `cuda:0` until the end of the block, with pinned memory or without."""
    mode = Device(pins)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "current_stream", lambda device: mode)
        with mode:
            yield mode


def far(value: Any) -> Any:
    """Put a tensor, or all tensors of a mapping, on the device."""
    return tree_map(lambda one: one.clone().as_subclass(Far) if isinstance(one, Tensor) else one, value)


def near(value: Any) -> Any:
    """Return a tensor, or all tensors of a mapping, as those of the CPU."""
    return tree_map(lambda one: _plain(one) if isinstance(one, Far) else one, value)


def _plain(value: Far) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        return value.as_subclass(Tensor)
