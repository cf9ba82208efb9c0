"""Subtapes: the parts of a tape that groups of rows need, all cut out in one pass.

An explicit law has as many substitution levels as time steps, and an implicit one as many steps of its march: each needs a small
part of one long tape. The pass takes time proportional to what the groups need. Structure only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from snapfm.arrays import Index, Values
from snapfm.compile.lower.tape import Block, Tape, chosen_rows
from snapfm.kernels.operators import Op

Chain = tuple[Index, Index, Values]  # sums of weighted cells, one after the other: pointers, cells, weights

_DENSE = 8  # a table over all keys is faster than sorting, up to so many times as many entries as there are keys


@dataclass(frozen=True)
class Subtape:
    """Rows and the operations they need, over cells of their own: the constant, `params`, `unknowns`, operations."""

    params: Index  # which ones of the whole tape's, counted from zero
    unknowns: Index
    operations: Index  # cells of the whole tape
    kinds: tuple[Op, ...]  # operator of each block
    starts: Index  # where blocks begin among the operations; the last entry is the number of operations
    operands: tuple[Chain, ...]  # a, b, c; empty where an operation has none
    rows: Chain

    @property
    def first(self) -> int:
        """The cell of the first operation."""
        return 1 + len(self.params) + len(self.unknowns)

    def local(self) -> Subtape:
        """Number params and unknowns from zero, as all subtapes with the same fingerprint may be."""
        return replace(self, params=np.arange(len(self.params)), unknowns=np.arange(len(self.unknowns)))

    @property
    def ops(self) -> Index:
        """Operator of each operation."""
        return np.repeat(np.array([int(op) for op in self.kinds], np.int64), np.diff(self.starts))

    def blocks(self) -> list[Block]:
        """Return the operations as blocks."""
        found = []
        for op, start, stop in zip(self.kinds, self.starts, self.starts[1:]):
            first = self.first + int(start)
            operands = [_matrix(_lines(chain, start, stop), first) for chain in self.operands[: op.arity]]
            found.append(Block(op, first, *operands))
        return found

    def matrix(self) -> csr_array:
        """Return the rows as a matrix over the cells."""
        return _matrix(self.rows, self.first + len(self.operations))

    def fingerprint(self, by: Index) -> bytes:
        """Hash all that a program with derivatives by `by` depends on: those with the same one share it."""
        arrays = [np.array([len(self.params), len(self.unknowns)]), by, self.ops, self.starts, *self.rows]
        return hashed([*arrays, *(part for chain in self.operands for part in chain)])


def hashed(arrays: Sequence[npt.NDArray[Any]]) -> bytes:
    """Hash shapes, types and values."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()


def cut(tape: Tape, rows: csr_array, sizes: Sequence[int]) -> list[Subtape]:
    """Cut out what groups of rows over a tape's cells need: the first sizes[0] rows, the next sizes[1], and so on."""
    return _Cut(tape, rows, np.repeat(np.arange(len(sizes)), sizes), len(sizes)).parts() if len(sizes) else []


class _Cut:
    """What all groups need. A key, cell · groups + group, is a cell of a group: sorted, keys are in the order of cells."""

    def __init__(self, tape: Tape, rows: csr_array, group: Index, groups: int) -> None:
        self._tape, self._groups = tape, groups
        # Of each block, number 0 being what no operation makes: where its keys begin.
        self._starts = groups * np.array([0, *(block.first for block in tape.blocks), tape.cells], np.int64)
        pending: list[list[Index]] = [[] for _ in self._starts[1:]]
        pending[0].append(np.arange(groups))  # the constant
        self._hand_out(rows, group, pending)
        keys = [np.zeros(0, np.int64)] * len(pending)
        operands: list[list[tuple[Index, Index, Values]]] = [[], [], []]  # entries of a row, keys, weights
        for number in reversed(range(len(pending))):
            if not pending[number]:
                continue
            mine = keys[number] = self._distinct(pending[number], *self._starts[number : number + 2])
            if number == 0:
                break
            block = tape.blocks[number - 1]
            element, label = mine // groups - block.first, mine % groups
            for k, operand in enumerate((block.a, block.b, block.c)):
                if operand is None:
                    operands[k].append((np.zeros(len(mine), np.int64), np.zeros(0, np.int64), np.zeros(0)))
                    continue
                part = chosen_rows(operand, element)
                self._hand_out(part, label, pending)
                operands[k].append((np.diff(part.indptr), self._keys(part, label), part.data))
        self._keys_needed = np.concatenate(keys)
        self._number()
        first = len(keys[0])
        by_group = self._order[self._order >= first] - first
        self._operands = tuple(self._chain(parts[::-1], by_group) for parts in operands)
        self._rows = self._chain([(np.diff(rows.indptr), self._keys(rows, group), rows.data)])
        self._row_at = np.searchsorted(group, np.arange(groups + 1))

    def _keys(self, matrix: csr_array, group: Index) -> Index:
        """Key of every entry of a matrix whose rows belong to groups."""
        cells: Index = matrix.indices.astype(np.int64, copy=False)
        if self._groups > 1:
            cells = cells * self._groups + np.repeat(group, np.diff(matrix.indptr))
        return cells

    def _hand_out(self, matrix: csr_array, group: Index, pending: list[list[Index]]) -> None:
        """Give each key that rows need to the block that makes its cell. Written: pending."""
        keys = self._distinct([self._keys(matrix, group)], 0, int(self._starts[-1]))
        ends = np.searchsorted(keys, self._starts)
        for number in np.flatnonzero(np.diff(ends)):
            pending[number].append(keys[ends[number] : ends[number + 1]])

    @staticmethod
    def _distinct(parts: list[Index], low: int, high: int) -> Index:
        """Sort keys between two limits, once each."""
        keys = np.concatenate(parts)
        if high - low <= _DENSE * len(keys):
            seen = np.zeros(high - low, bool)
            seen[keys - low] = True
            return low + np.flatnonzero(seen)
        keys = np.sort(keys)  # faster here than the table of np.unique
        distinct: Index = keys[np.diff(keys, prepend=-1) != 0]
        return distinct

    def _number(self) -> None:
        """Number the cells of every group; `_order` lists all keys group by group."""
        keys, groups = self._keys_needed, self._groups
        label = keys % groups
        self._order = np.argsort(label, kind="stable") if groups > 1 else np.arange(len(keys))
        self._at = np.concatenate([[0], np.cumsum(np.bincount(label, minlength=groups))])
        self._local = np.empty(len(keys), np.int64)
        self._local[self._order] = np.arange(len(keys)) - np.repeat(self._at[:-1], np.diff(self._at))

    def _places(self, keys: Index) -> Index:
        """Return the cells, of their groups, that keys stand for."""
        if self._starts[-1] <= _DENSE * len(keys):
            table = np.empty(self._starts[-1], np.int64)
            table[self._keys_needed] = self._local
            found: Index = table[keys]
        else:
            found = self._local[np.searchsorted(self._keys_needed, keys)]
        return found

    def _chain(self, parts: list[tuple[Index, Index, Values]], order: Index | None = None) -> Chain:
        """Join rows, write them over the cells of their groups, and bring them into an order."""
        counts = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
        cells = self._places(np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts)]))
        data = np.concatenate([np.zeros(0), *(part[2] for part in parts)])
        pointers = np.concatenate([[0], np.cumsum(counts)])
        matrix = csr_array((data, cells, pointers), shape=(len(counts), int(cells.max(initial=0)) + 1))
        if order is not None and self._groups > 1:
            matrix = csr_array(matrix[order])
        matrix.sort_indices()
        return matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int64, copy=False), matrix.data

    def parts(self) -> list[Subtape]:
        """Return the subtape of every group."""
        tape, cells = self._tape, (self._keys_needed // self._groups)[self._order]
        block = np.searchsorted(self._starts // self._groups, cells, side="right") - 2
        found, done = [], 0
        for group in range(self._groups):
            mine = slice(self._at[group], self._at[group + 1])
            own, (unknown, made) = cells[mine], np.searchsorted(cells[mine], [tape.first_unknown, tape.first_operation])
            number = block[mine][made:]
            starts = np.concatenate([[0], np.flatnonzero(np.diff(number)) + 1, [len(number)]])[len(number) == 0 :]
            lines = done, done + len(number)
            kinds = tuple(tape.blocks[one].op for one in number[starts[:-1]])
            found.append(
                Subtape(
                    own[1:unknown] - 1, own[unknown:made] - tape.first_unknown, own[made:], kinds, starts,
                    tuple(_lines(chain, *lines) for chain in self._operands),
                    _lines(self._rows, *self._row_at[group : group + 2]),
                )
            )  # fmt: skip
            done += len(number)
        return found


def _lines(chain: Chain, start: int, stop: int) -> Chain:
    """Take consecutive sums."""
    pointers, cells, weights = chain
    mine = pointers[start : stop + 1]
    return mine - mine[0], cells[mine[0] : mine[-1]], weights[mine[0] : mine[-1]]


def _matrix(chain: Chain, width: int) -> csr_array:
    pointers, cells, weights = chain
    return csr_array((weights, cells, pointers), shape=(len(pointers) - 1, width))
