"""Descriptors: structure on a device, as one array of integers that a launch gets the address of.

Integers stand for themselves, a float for its bits, an array for its address and its lengths, a tuple for its members, a
descriptor for its address: in the order in which device.entries reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np


class Descriptor:
    """The arrays of some structures and the integers that describe them."""

    def __init__(self, *structures: Any) -> None:
        self._held: list[np.ndarray] = []
        self._inner: list[Descriptor] = []
        self._numbers = np.array([number for one in structures for number in self._described(one)], np.int64)

    @property
    def arrays(self) -> list[np.ndarray]:
        """All memory of the descriptor."""
        return [self._numbers, *self._held, *(array for one in self._inner for array in one.arrays)]

    @property
    def address(self) -> int:
        """Where the integers are."""
        return int(self._numbers.ctypes.data)

    def _described(self, one: Any) -> Iterator[int]:
        if isinstance(one, tuple):
            for member in one:
                yield from self._described(member)
        elif isinstance(one, list):  # of descriptors: the address of their addresses
            self._inner += one
            yield from self._described(np.array([inner.address for inner in one], np.int64))
        elif isinstance(one, np.ndarray):
            copy = np.ascontiguousarray(one)
            self._held.append(copy)
            yield copy.ctypes.data
            yield from one.shape
        elif isinstance(one, float):
            yield struct.unpack("q", struct.pack("d", one))[0]
        else:
            yield int(one)
