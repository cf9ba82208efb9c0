"""Structures: arrays that never change, in one piece of a device's memory, and the descriptors that entries read them by.

A descriptor is a list of integers, in the order in which device.entries reads them: an array stands for its address and its
lengths, a tuple for its members, a number for itself (a float for its 64 bits), a Place for its address. Integers have 64
bits, but for those of a member named `table` (kernels.program, kernels.layout), which have 32. Imports nothing of snapfm.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_ALIGNED = 16  # bytes: no array begins elsewhere


@dataclass(frozen=True)
class Place:
    """Where something is in the memory of Structures, in bytes from its beginning."""

    offset: int


class Structures:
    """Collected before the memory is taken: their size is known when all are there."""

    def __init__(self) -> None:
        self.size = 0
        self._arrays: list[tuple[int, npt.NDArray[Any]]] = []
        self._known: dict[int, Place] = {}  # by the identity of arrays, which are held above
        self._addresses: list[tuple[int, int]] = []  # where an address is written, and of which offset

    def add(self, *structures: Any) -> Place:
        """Add structures; return the place of their descriptor."""
        return self._integers([number for one in structures for number in self._described(one)])

    def listed(self, places: Sequence[Place]) -> tuple[Place, int]:
        """Add a list of addresses; return what stands for it in a descriptor."""
        return self._integers(list(places)), len(places)

    def packed(self, base: int) -> npt.NDArray[np.uint8]:
        """Return the whole memory, for the address that it begins at."""
        memory = np.zeros(self.size, np.uint8)
        for offset, array in self._arrays:
            memory[offset : offset + array.nbytes] = np.frombuffer(array.tobytes(), np.uint8)
        for where, offset in self._addresses:
            memory[where : where + 8] = np.frombuffer(np.int64(base + offset).tobytes(), np.uint8)
        return memory

    def _described(self, one: Any, short: bool = False) -> Iterator[int | Place]:
        if isinstance(one, tuple):
            for name, member in zip(getattr(one, "_fields", [""] * len(one)), one):
                yield from self._described(member, name == "table")
        elif isinstance(one, np.ndarray):
            whole = one if one.dtype.kind != "i" or short else one.astype(np.int64, copy=False)
            yield self._array(whole)
            yield from one.shape
        elif isinstance(one, (float, np.floating)):
            yield int(struct.unpack("<q", struct.pack("<d", float(one)))[0])
        else:
            yield one if isinstance(one, Place) else int(one)

    def _integers(self, numbers: Sequence[int | Place]) -> Place:
        place = self._array(np.array([0 if isinstance(one, Place) else one for one in numbers], np.int64))
        self._addresses += [
            (place.offset + 8 * k, one.offset) for k, one in enumerate(numbers) if isinstance(one, Place)
        ]
        return place

    def _array(self, array: npt.NDArray[Any]) -> Place:
        known = self._known.get(id(array))
        if known is not None:
            return known
        place = self._known[id(array)] = Place(self.size)
        self._arrays.append((place.offset, array))
        self.size += -(-max(array.nbytes, 1) // _ALIGNED) * _ALIGNED
        return place
