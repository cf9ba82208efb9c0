"""Far: tensors that claim to be on `cuda:0`, compute on the CPU, and refuse to come back; and the machine that runs PTX on them.

What waits for a device, or copies from it, raises `Copied`: .cpu(), .item(), .numpy(), .tolist(), bool(), shapes that depend on
values, tensors of two devices in one operation. Copies to the device are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from tests.device.emulated.machine import Report, executable
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from snapfm.device import launch
from snapfm.device.artifact import shipped

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
_CPU = torch.device("cpu")
_WAITING = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Copied(AssertionError):
    """Something waits for the device, or copies from it."""


class Far(Tensor):
    """A tensor on a device that is not there."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Far:
        return Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device="meta",
        )  # fmt: skip

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @property
    def device(self) -> torch.device:
        return CUDA

    @property
    def is_cpu(self) -> bool:
        return False

    def __repr__(self) -> str:  # printing would copy
        return f"Far({tuple(self.shape)}, {self.dtype})"

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise Copied("numpy() copies to the CPU")

    def tolist(self) -> Any:
        raise Copied("tolist() copies to the CPU")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        wanted = kwargs.get("device")
        if wanted is not None and torch.device(wanted).type == "cpu":
            raise Copied(f"{func} copies to the CPU")
        if wanted is not None:
            kwargs["device"] = _CPU
        if func is not aten.index.Tensor and not _WAITING.isdisjoint(func.tags):
            raise Copied(f"{func} waits for the device")
        if func is aten.index.Tensor and any(one is not None and one.dtype == torch.bool for one in args[1]):
            raise Copied("a mask as index waits for the device")
        arriving = func in (aten.copy_.default, aten._to_copy.default) and isinstance(args[0], Far)
        near = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor) and not isinstance(one, Far)]
        if any(one.dim() for one in near) and not arriving:
            raise Copied(f"{func} mixes tensors of two devices")
        found = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
        return tree_map(lambda one: Far(one) if isinstance(one, Tensor) else one, found)


def _inner(one: Any) -> Any:
    return one.inner if isinstance(one, Far) else one


def _is_far(one: Any) -> bool:
    return (isinstance(one, torch.device) and one.type == "cuda") or (isinstance(one, str) and one.startswith("cuda"))


class _Asked(TorchFunctionMode):
    """Makes what is asked for on the device, before torch looks for one."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.where:  # torch would put a number on the device that it believes in
            args = [torch.tensor(one) if isinstance(one, (int, float)) else one for one in args]
        if func is Tensor.to and len(args) == 2 and isinstance(args[1], Far):  # as another tensor
            like = args[1]
            return args[0].to(like.dtype) if isinstance(args[0], Far) else Far(args[0].to(like.dtype).clone())
        if not any(_is_far(one) for one in tree_leaves((args, kwargs))):
            return func(*args, **kwargs)
        if any(isinstance(one, Far) for one in args):  # it is there already
            rest = [one for one in args if not _is_far(one)]
            more = {name: one for name, one in kwargs.items() if not _is_far(one)}
            return func(*rest, **more) if len(rest) > 1 or more else rest[0]
        args, kwargs = tree_map(lambda one: _CPU if _is_far(one) else one, (args, kwargs))
        found = func(*args, **kwargs)
        return Far(found.clone() if any(found is one for one in args) else found)


class _Made(TorchDispatchMode):
    """Does the same for operators that recorded laws call themselves."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _is_far(kwargs.get("device")) and not any(isinstance(one, Far) for one in tree_leaves(args)):
            return Far(func(*args, **{**kwargs, "device": _CPU}))
        return func(*args, **kwargs)


class Emulated:
    """A Machine: executes the PTX on the CPU. `reads` counts what came back, `launches` what was started, in order."""

    def __init__(self, *flags: str) -> None:
        self._flags, self._structures, self._given = flags, list[np.ndarray](), list[np.ndarray]()
        self.begin()

    def begin(self) -> None:
        """Forget what was counted."""
        self.reads, self.launches, self.events = 0, list[str](), list[tuple[str, int]]()
        self.reports: list[Report] = []

    def address(self, memory: Tensor) -> int:
        assert isinstance(memory, Far)
        held = self._structures if memory.dtype == torch.uint8 else self._given
        held.append(memory.inner.numpy())
        return memory.inner.data_ptr()

    def launch(self, entry: str, blocks: int, width: int, height: int, arguments: Sequence[int | float]) -> None:
        self.launches.append(entry)
        program = executable(shipped().ptx[entry], *self._flags)
        memory, constant = (self._given, self._structures) if self._flags else ((), ())
        self.reports.append(program.run(blocks, width, height, arguments, memory=memory, constant=constant))
        self._given.clear()

    def stream(self) -> int:
        return 0

    def read(self, values: Tensor) -> np.ndarray:
        assert isinstance(values, Far)
        self.reads += 1
        return values.inner.numpy().copy()

    def copying(self, values: Tensor) -> _Copies:
        assert isinstance(values, Far)
        return _Copies(values.inner.clone(), self.events)


class _Copies:
    """Copies whose order is written down."""

    def __init__(self, given: Tensor, events: list[tuple[str, int]]) -> None:
        self.given, self.found, self._events = given, torch.full_like(given, torch.nan), events

    def arrived(self, piece: slice) -> None:
        self._events.append(("arrived", piece.start))

    def left(self, piece: slice) -> None:
        self._events.append(("left", piece.start))

    def result(self) -> Tensor:
        return Far(self.found)


_USUAL = Emulated()  # projectors are prepared for it once


@contextmanager
def emulated(*flags: str) -> Iterator[Emulated]:
    """Have a device `cuda:0`, until the end of the block: always the same one, unless it has flags."""
    machine = Emulated(*flags) if flags else _USUAL
    machine.begin()
    with pytest.MonkeyPatch.context() as patch, _Made(), _Asked():
        patch.setitem(launch.MACHINES, "cuda", lambda device: machine)
        yield machine


def near(value: Any) -> Any:
    """Return what is inside of a tensor, or of all tensors of a mapping."""
    return tree_map(_inner, value)


def far(value: Any) -> Any:
    """Put a tensor, or all tensors of a mapping, on the device."""
    return tree_map(lambda one: Far(one.clone()) if isinstance(one, Tensor) else one, value)
