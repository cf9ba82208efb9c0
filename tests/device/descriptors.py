"""Descriptors: structure on a device, as one array of integers that a launch gets the address of.

Numbers stand for themselves, an array for its address and its lengths, a tuple for its members: in the order in which
device.entries reads them. Must not import project.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Descriptor:
    """The arrays of some structures, on a device, and the integers that describe them."""

    def __init__(self, device: torch.device, *structures: Any) -> None:
        self._held: list[Tensor] = []
        numbers = [number for one in structures for number in self._described(device, one)]
        self._numbers = torch.tensor(numbers, dtype=torch.int64, device=device)

    @property
    def arrays(self) -> list[np.ndarray]:
        """All memory of the descriptor."""
        return [one.numpy() for one in (self._numbers, *self._held)]

    @property
    def address(self) -> int:
        """Where the integers are."""
        return int(self._numbers.data_ptr())

    def _described(self, device: torch.device, one: Any) -> Iterator[int]:
        if isinstance(one, tuple):
            for member in one:
                yield from self._described(device, member)
        elif isinstance(one, np.ndarray):
            copy = torch.from_numpy(np.ascontiguousarray(one)).to(device)
            self._held.append(copy)
            yield copy.data_ptr()
            yield from one.shape
        else:
            yield int(one)
