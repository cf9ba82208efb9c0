"""The driver of NVIDIA devices, through ctypes: load PTX, start entries on torch's current stream. Never run on hardware yet.

libcuda comes with the driver of a device, so nothing is installed for this, and nothing of CUDA is loaded until a tensor on
such a device arrives. Memory is torch's: its caching allocator orders reuse by streams, as launches are ordered.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.device.artifact import shipped
from snapfm.errors import DeviceError

_LEAST = (8, 0)  # compute capability that the PTX is made for
_ENTRY = re.compile(r"^\.visible \.entry (\w+)\(", re.M)
_NAMES = {"win32": "nvcuda.dll"}
_CHUNKS, _FEWEST = (
    8,
    16,
)  # copies that a batch is divided into, and samples of one: each takes some microseconds to begin


@cache
def cuda(device: torch.device) -> Cuda | None:
    """Return the machine of a CUDA device; None if it is too old for the PTX, not NVIDIA's, or without its driver's library."""
    if torch.version.hip is not None or torch.cuda.get_device_capability(device) < _LEAST:
        return None
    try:
        return Cuda(device)
    except DeviceError:
        return None


class Driver:
    """The calls of libcuda that launches need, each with an error that says what happened."""

    def __init__(self) -> None:
        name = _NAMES.get(sys.platform, "libcuda.so.1")
        try:
            self._library = ctypes.CDLL(name)
        except OSError as cause:
            raise DeviceError(
                f"a projection on a GPU expects the driver's library {name}; it cannot be loaded. Install NVIDIA's driver, or "
                "move the fields to the CPU: u_hat.cpu()."
            ) from cause
        self._do("cuInit", 0)

    def context(self, ordinal: int) -> ctypes.c_void_p:
        """Return the context that torch uses on a device."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._do("cuDeviceGet", ctypes.byref(device), ordinal)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        return context

    def function(self, context: ctypes.c_void_p, ptx: str) -> ctypes.c_void_p:
        """Load PTX with one entry; the driver translates it for its device and keeps that in a cache of its own."""
        found = _ENTRY.search(ptx)
        assert found is not None
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        with self._current(context):
            self._do("cuModuleLoadData", ctypes.byref(module), ptx.encode() + b"\0")
            self._do("cuModuleGetFunction", ctypes.byref(function), module, found.group(1).encode())
        return function

    def launch(
        self, context: ctypes.c_void_p, function: ctypes.c_void_p, blocks: int, width: int, height: int, stream: int,
        arguments: Sequence[int | float],
    ) -> None:  # fmt: skip
        """Start a function on a stream; its arguments are copied before this returns."""
        cells = [ctypes.c_double(one) if isinstance(one, float) else ctypes.c_int64(one) for one in arguments]
        pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(one) for one in cells))
        with self._current(context):
            self._do(
                "cuLaunchKernel", function, blocks, 1, 1, width, height, 1, 0, ctypes.c_void_p(stream), pointers, None
            )

    def _current(self, context: ctypes.c_void_p) -> _Current:
        return _Current(self, context)

    def _do(self, call: str, *arguments: Any) -> None:
        code = int(getattr(self._library, call)(*arguments))
        if code:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            reason = text.value.decode() if text.value else "an error that the driver does not name"
            raise DeviceError(
                f"{call} expects to succeed; the driver returned {code}: {reason}. Run `snapfm doctor`; to go on "
                "without the GPU, move the fields to the CPU: u_hat.cpu()."
            )


class _Current:
    """Makes a context the thread's own for a while, and the one before again."""

    def __init__(self, driver: Driver, context: ctypes.c_void_p) -> None:
        self._driver, self._context = driver, context

    def __enter__(self) -> None:
        self._driver._do("cuCtxPushCurrent_v2", self._context)

    def __exit__(self, *_: object) -> None:
        self._driver._do("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


@cache
def _driver() -> Driver:
    return Driver()


class Cuda:
    """A Machine: one NVIDIA device. Shared by all threads; entries are loaded at first use."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._lock = device, threading.Lock()
        self._driver = _driver()
        self._context = self._driver.context(torch.cuda.current_device() if device.index is None else device.index)
        self._functions: dict[str, ctypes.c_void_p] = {}
        self._beside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # for copies

    def address(self, memory: Tensor) -> int:
        """Return where a tensor's numbers are."""
        return int(memory.data_ptr())

    def launch(self, entry: str, blocks: int, width: int, height: int, arguments: Sequence[int | float]) -> None:
        """Start an entry on torch's current stream."""
        function = self._functions.get(entry)
        if function is None:
            with self._lock:
                function = self._functions.get(entry) or self._driver.function(self._context, shipped().ptx[entry])
                self._functions[entry] = function
        self._driver.launch(self._context, function, blocks, width, height, self.stream(), arguments)

    def stream(self) -> int:
        """Return torch's current stream."""
        return int(torch.cuda.current_stream(self._device).cuda_stream)

    def read(self, values: Tensor) -> npt.NDArray[Any]:
        """Wait for the device, and copy a small tensor to the CPU."""
        found: npt.NDArray[Any] = np.asarray(values.cpu().numpy())
        return found

    def copying(self, values: Tensor) -> _Copying:
        """Begin to copy a batch to pinned memory, on a stream of its own."""
        return _Copying(values.contiguous(), torch.cuda.current_stream(self._device), self._beside)


class _Copying:
    """A Copying through pinned memory, on a stream beside the current one."""

    def __init__(self, values: Tensor, current: torch.cuda.Stream, beside: torch.cuda.Stream) -> None:
        self.given = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        self.found = torch.empty_like(self.given, pin_memory=True)
        self._current, self._beside, self._result = current, beside, torch.empty_like(values)
        self._chunk, self._events = max(_FEWEST, -(-len(values) // _CHUNKS)), list[torch.cuda.Event]()
        beside.wait_stream(current)
        with torch.cuda.stream(beside):
            for first in range(0, len(values), self._chunk):
                some = slice(first, first + self._chunk)
                self.given[some].copy_(values[some], non_blocking=True)
                self._events.append(beside.record_event())
        values.record_stream(beside)  # torch must not reuse its memory before the copies are over

    def arrived(self, piece: slice) -> None:
        """Wait until some samples are there."""
        if piece.stop > piece.start:
            self._events[(piece.stop - 1) // self._chunk].synchronize()

    def left(self, piece: slice) -> None:
        """Begin to copy what was found for some samples back."""
        with torch.cuda.stream(self._beside):
            self._result[piece].copy_(self.found[piece], non_blocking=True)

    def result(self) -> Tensor:
        """Return what was found; the current stream waits for the copies."""
        self._current.wait_stream(self._beside)
        return self._result
