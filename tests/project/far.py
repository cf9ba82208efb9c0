"""Tensors that claim to be on `cuda:0` while their numbers are on the CPU, for what the CPU does with tensors of a device.

Numbers leave them through `.to("cpu")` and `.cpu()` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
            rest = [
                near(one) if isinstance(one, Far) else one for one in args if not isinstance(one, (torch.device, str))
            ]
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
    """Torch with a device `cuda:0`; `waits` is called where the CPU waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Callable[[], object] = lambda: None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        if any(isinstance(one, Far) for one in leaves):
            if func is Tensor.to and "cpu" in map(str, leaves):
                self.waits()
            return func(*args, **kwargs)
        if not any(isinstance(one, torch.device) and one == CUDA for one in leaves):
            return func(*args, **kwargs)
        args, kwargs = tree_map(
            lambda one: torch.device("cpu") if isinstance(one, torch.device) else one, (args, kwargs)
        )
        return far(func(*args, **kwargs))


@contextmanager
def device() -> Iterator[Device]:
    """Have a device `cuda:0` until the end of the block."""
    with Device() as mode:
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
