"""Structures: one piece of memory, with addresses that belong to where it begins."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from snapfm.device.structures import Structures


class Pair(NamedTuple):
    index: np.ndarray
    share: float


class Code(NamedTuple):
    table: np.ndarray
    other: np.ndarray


def _integers(memory: np.ndarray, offset: int, count: int) -> list[int]:
    return memory[offset : offset + 8 * count].view(np.int64).tolist()


def test_arrays_numbers_and_tuples_become_integers():
    structures, grid = Structures(), np.arange(6, dtype=np.float64).reshape(2, 3)
    place = structures.add(7, Pair(np.array([4, 5]), 0.25), grid, True)
    memory = structures.packed(1000)
    number, index_at, length, share, grid_at, height, width, flag = _integers(memory, place.offset, 8)
    assert (number, length, height, width, flag) == (7, 2, 2, 3, 1)
    assert struct.pack("<q", share) == struct.pack("<d", 0.25)
    assert _integers(memory, index_at - 1000, 2) == [4, 5]
    assert memory[grid_at - 1000 : grid_at - 1000 + 48].view(np.float64).tolist() == grid.ravel().tolist()


def test_an_array_is_copied_once_and_rows_of_a_transposed_one_are_in_order():
    structures, array = Structures(), np.arange(4)
    first, second = structures.add(array), structures.add(array)
    turned = np.arange(6).reshape(2, 3).T
    third = structures.add(turned)
    memory = structures.packed(0)
    assert _integers(memory, first.offset, 2) == _integers(memory, second.offset, 2)
    at, height, width = _integers(memory, third.offset, 3)
    assert (height, width) == (3, 2)
    assert _integers(memory, at, 6) == turned.ravel().tolist()


def test_descriptors_point_to_descriptors():
    structures = Structures()
    inner = [structures.add(k) for k in (3, 4)]
    place = structures.add(structures.listed(inner))
    memory = structures.packed(64)
    at, count = _integers(memory, place.offset, 2)
    addresses = _integers(memory, at - 64, count)
    assert [_integers(memory, one - 64, 1) for one in addresses] == [[3], [4]]
    assert all(one % 8 == 0 for one in addresses)


def test_integers_have_64_bits_but_for_tables():
    structures, short = Structures(), np.array([1, 2, 3, 4], np.int32)
    place = structures.add(Code(short, short[:2]))
    memory = structures.packed(0)
    table_at, _, other_at, _ = _integers(memory, place.offset, 4)
    assert memory[table_at : table_at + 16].view(np.int32).tolist() == [1, 2, 3, 4]
    assert _integers(memory, other_at, 2) == [1, 2]
