"""Subtapes: the part of a tape that some rows need, found without a pass over the whole tape.

Hundreds of time steps each need a small part of one long tape. Looking through all of it for every step would make preparing
quadratic. Subtapes with the same fingerprint have the same program. Structure only.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array, vstack

from snapfm.arrays import Index
from snapfm.compile.lower.tape import Block, Tape, chosen_rows, moved_columns


@dataclass(frozen=True)
class Subtape:
    """A tape of its own for some rows. Its unknowns and externals are those of the whole tape listed here, in their order."""

    tape: Tape
    rows: csr_array
    unknowns: Index
    externals: Index  # cells of the whole tape

    def fingerprint(self, by: Index) -> bytes:
        """Hash all that a program with derivatives by `by` (unknowns of this tape) depends on."""
        digest = hashlib.sha256()
        arrays: list[Index] = [np.array([len(self.unknowns), len(self.externals)]), by]
        for block in self.tape.blocks:
            arrays.append(np.array([int(block.op), block.first, block.b is None, block.c is None]))
            for operand in block.operands:
                arrays += [operand.indptr, operand.indices, operand.data]
        for array in (*arrays, self.rows.indptr, self.rows.indices, self.rows.data):
            digest.update(str((array.shape, array.dtype)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.digest()


class Cutter:
    """Cuts subtapes out of one tape."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        sizes = [block.size for block in tape.blocks]
        cells = [np.arange(block.first, block.first + block.size) for block in tape.blocks]
        cell = np.concatenate([np.zeros(0, np.int64), *cells])
        self._operation = np.full(tape.cells, -1, np.int64)  # the number of the operation that makes a cell
        self._operation[cell] = np.arange(len(cell))
        self._block = np.repeat(np.arange(len(sizes)), sizes)
        self._operands = [self._joined([getattr(block, name) for block in tape.blocks], sizes) for name in "abc"]
        self._seen, self._mention = np.zeros(tape.cells, bool), np.empty(tape.cells, np.int64)

    def cut(self, rows: csr_array) -> Subtape:
        """Cut out what rows over the tape's cells need."""
        needed = [np.array([self._tape.one])]
        fresh = self._distinct(rows.indices)
        self._seen[self._tape.one] = True
        while len(fresh):
            fresh = fresh[~self._seen[fresh]]
            self._seen[fresh] = True
            needed.append(fresh)
            made = self._operation[fresh]
            made = made[made >= 0]
            fresh = self._distinct(np.concatenate([chosen_rows(operand, made).indices for operand in self._operands]))
        order = np.sort(np.concatenate(needed)).astype(np.int64)
        self._seen[order] = False
        return self._local(rows, order)

    def _distinct(self, cells: Index) -> Index:
        """Keep each cell once, without sorting: its last mention."""
        mention = np.arange(len(cells))
        self._mention[cells] = mention
        found: Index = cells[self._mention[cells] == mention]
        return found

    def _local(self, rows: csr_array, order: Index) -> Subtape:
        """Number the needed cells anew; `order` is ascending, so unknowns come first, then the constant."""
        n, made = self._tape.unknowns, self._operation[order]
        is_made = made >= 0
        own = Tape(int(np.searchsorted(order, n)))
        own.cells = len(order)
        made, first = made[is_made], np.flatnonzero(is_made)
        a, b, c = (self._renumbered(chosen_rows(operand, made), order) for operand in self._operands)
        edges = np.flatnonzero(np.diff(self._block[made])) + 1
        for start, stop in pairwise([0, *edges.tolist(), len(made)] if len(made) else []):
            source = self._tape.blocks[self._block[made[start]]]
            own.blocks.append(
                Block(
                    source.op, int(first[start]), csr_array(a[start:stop]),
                    None if source.b is None else csr_array(b[start:stop]),
                    None if source.c is None else csr_array(c[start:stop]),
                )
            )  # fmt: skip
        outside = order[(order > n) & ~is_made]
        return Subtape(own, self._renumbered(rows, order), order[: own.unknowns], outside)

    @staticmethod
    def _renumbered(matrix: csr_array, order: Index) -> csr_array:
        place = np.searchsorted(order, matrix.indices)
        return csr_array((matrix.data, place, matrix.indptr), shape=(matrix.shape[0], len(order)))

    def _joined(self, operands: list[csr_array | None], sizes: list[int]) -> csr_array:
        """Stack one operand of all blocks, empty rows where a block has none."""
        width = self._tape.cells
        parts = [
            csr_array((size, width)) if one is None else moved_columns(one, np.arange(one.shape[1]), width)
            for one, size in zip(operands, sizes)
        ]
        return csr_array(vstack([csr_array((0, width)), *parts], format="csr"))
