"""Launch: what a device has to be able to do, and which ones can. Must not import project.

A `Machine` starts entries of the PTX on memory of torch, in the order of torch's current stream. Nothing waits but
`read` and `Copying.arrived`. `driver.Cuda` is the one for NVIDIA devices. Tests put an emulated one in its place, in MACHINES.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt
import torch
from torch import Tensor

from snapfm.device.driver import cuda

WARP = 32  # threads of a team that shares the loops of one sample
ALONE = 1  # thread of a team where a sample is many small systems
_HEIGHT = 64  # teams of one thread in a block
_BLOCKS = 65_535  # the most that any device takes
_ROOM = 1 << 30  # bytes of scratch memory of a launch: more samples than fit wait for their turn


class Copying(Protocol):
    """A batch on its way to the CPU, and what the CPU makes of it on its way back, sample by sample."""

    @property
    def given(self) -> Tensor:
        """The batch, on the CPU; valid where it has arrived."""
        ...

    @property
    def found(self) -> Tensor:
        """Memory of its shape for what is to be copied back."""
        ...

    def arrived(self, piece: slice) -> None:
        """Wait until some samples are there."""
        ...

    def left(self, piece: slice) -> None:
        """Begin to copy what was found for some samples back."""
        ...

    def result(self) -> Tensor:
        """Return what was found, on the device; its current stream waits for the copies, the CPU does not."""
        ...


class Machine(Protocol):
    """A device: where memory is, how an entry is started, and the ways of values to and from the CPU."""

    def address(self, memory: Tensor) -> int:
        """Return where a tensor's numbers are."""
        ...

    def launch(self, entry: str, blocks: int, width: int, height: int, arguments: Sequence[int | float]) -> None:
        """Start an entry in blocks of width × height threads, after all that was started on the current stream."""
        ...

    def stream(self) -> int:
        """Return the number of the current stream: what one stream computes, another must not read unasked."""
        ...

    def read(self, values: Tensor) -> npt.NDArray[Any]:
        """Wait for the device, and copy a small tensor to the CPU."""
        ...

    def copying(self, values: Tensor) -> Copying:
        """Begin to copy a batch to the CPU, a few samples at a time, for work that begins with the first of them."""
        ...


MACHINES: dict[str, Callable[[torch.device], Machine | None]] = {"cuda": cuda}  # by the type of a device


def machine_of(device: torch.device) -> Machine | None:
    """Return the machine of a device; None for a device that cannot run the PTX."""
    make = MACHINES.get(device.type)
    return None if make is None else make(device)


@dataclass(frozen=True)
class Teams:
    """Threads of a launch: blocks of `height` teams of `width` threads. A sample's bits depend on `width` alone."""

    blocks: int
    width: int
    height: int

    @classmethod
    def of(cls, samples: int, width: int, numbers: int) -> Teams:
        """Choose for so many samples; each team has scratch memory of so many numbers."""
        most = max(1, min(samples, _ROOM // (8 * max(numbers, 1))))
        height = min(_HEIGHT, most) if width == ALONE else 1
        return cls(min(-(-most // height), _BLOCKS), width, height)

    @property
    def count(self) -> int:
        """Number of teams."""
        return self.blocks * self.height
