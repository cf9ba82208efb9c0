"""Programs of the levels of a cascade, all built in one pass: an explicit law has as many levels as time steps.

Each level gets the program that `build_program` returns for its rows without derivatives, entry by entry. Building them one by
one would look through the whole tape for every level.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array, vstack

from snapfm.arrays import Index, Values
from snapfm.compile.lower.tape import Block, Tape
from snapfm.compile.program import Program, find_readers
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.kernels import program as core
from snapfm.kernels.numba.sections import packed

_Rows = tuple[Index, Index, Values]  # compressed rows: pointers, cells, weights


def level_programs(tape: Tape, rows: csr_array, levels: Sequence[Index]) -> tuple[Program, ...]:
    """Return a program for the rows of each level, values only."""
    if not levels:
        return ()
    sizes = [len(level) for level in levels]
    needs = _Needs(tape, csr_array(rows[np.concatenate(levels)]), np.repeat(np.arange(len(levels)), sizes))
    return tuple(needs.program(number) for number in range(len(levels)))


class _Needs:
    """What all levels need, sorted by level. A key, level · cells + cell, stands for the cell of a level."""

    def __init__(self, tape: Tape, rows: csr_array, level: Index) -> None:
        self.tape, self.levels = tape, int(level[-1]) + 1 if len(level) else 0
        firsts = np.array([block.first for block in tape.blocks], np.int64)
        ends = firsts + np.array([block.size for block in tape.blocks], np.int64)
        inputs: list[Index] = []
        computed: list[Index] = [np.zeros(0, np.int64) for _ in tape.blocks]
        pending: list[list[Index]] = [[] for _ in tape.blocks]
        _hand_out(_keys(rows, level, tape.cells), tape.cells, firsts, ends, pending, inputs)
        for number in reversed(range(len(tape.blocks))):
            if not pending[number]:
                continue
            mine = computed[number] = _distinct(np.concatenate(pending[number]))
            for operand in tape.blocks[number].operands:
                part = csr_array(operand[mine % tape.cells - firsts[number]])
                _hand_out(_keys(part, mine // tape.cells, tape.cells), tape.cells, firsts, ends, pending, inputs)
        self._place(_distinct(np.concatenate([np.zeros(0, np.int64), *inputs])), computed)
        self.ops = np.concatenate(
            [np.zeros(0, np.int64), *(np.full(len(keys), int(b.op)) for keys, b in zip(computed, tape.blocks))]
        )[self.order]
        self.operands = [self._operand(name, computed) for name in ("a", "b", "c")]
        self.rows = self._local(rows, level)
        self.row_at = np.searchsorted(level, np.arange(self.levels + 1))

    def _place(self, inputs: Index, computed: list[Index]) -> None:
        """Number the cells of every level: the constant, unknowns, externals, then operations in the order of the tape."""
        cells, one = self.tape.cells, self.tape.one
        done = np.concatenate([np.zeros(0, np.int64), *computed])
        self.order = np.argsort(done // cells, kind="stable")  # operations level by level
        cell = inputs % cells
        self.unknowns, self.externals = inputs[cell < one], inputs[cell > one]
        ones = np.arange(self.levels) * cells + one
        keys = np.concatenate([ones, self.unknowns, self.externals, done[self.order]])
        by_level = np.argsort(keys // cells, kind="stable")
        keys = keys[by_level]
        begin = np.searchsorted(keys // cells, np.arange(self.levels))
        local = np.arange(len(keys)) - begin[keys // cells]
        sorted_ = np.argsort(keys, kind="stable")
        self._sorted_keys, self._local_of = keys[sorted_], local[sorted_]
        bounds = np.arange(self.levels + 1)
        self.unknown_at = np.searchsorted(self.unknowns // cells, bounds)
        self.external_at = np.searchsorted(self.externals // cells, bounds)
        self.operation_at = np.searchsorted(done[self.order] // cells, bounds)

    def _local(self, matrix: csr_array, level: Index) -> _Rows:
        """Write rows over the cells of their own level."""
        key = _keys(matrix, level, self.tape.cells)
        local = self._local_of[np.searchsorted(self._sorted_keys, key)]
        width = int(local.max(initial=0)) + 1
        moved = csr_array((matrix.data, local, matrix.indptr), shape=(matrix.shape[0], width))
        moved.sort_indices()
        return moved.indptr.astype(np.int64, copy=False), moved.indices.astype(np.int64, copy=False), moved.data

    def _operand(self, name: str, computed: list[Index]) -> _Rows:
        """Write one operand of all operations over the cells of their own level, level by level."""
        cells = self.tape.cells
        parts = [csr_array((0, cells))]
        for keys, block in zip(computed, self.tape.blocks):
            parts.append(_picked(block, name, keys % cells - block.first, cells))
        whole = csr_array(csr_array(vstack(parts, format="csr"))[self.order])
        done = np.concatenate([np.zeros(0, np.int64), *computed])[self.order]
        return self._local(whole, done // cells)

    def program(self, number: int) -> Program:
        """Cut out the program of one level."""
        cells = self.tape.cells
        unknowns = _cut(self.unknowns, self.unknown_at, number) % cells
        externals = _cut(self.externals, self.external_at, number) % cells
        ops = _cut(self.ops, self.operation_at, number)
        first, count = 1 + len(unknowns) + len(externals), len(ops)
        a, b, c = (_lines(part, self.operation_at, number) for part in self.operands)
        rows = _lines(self.rows, self.row_at, number)
        height = len(rows[0]) - 1
        row = np.repeat(np.arange(height), np.diff(rows[0]))
        by_cell = np.argsort(rows[1], kind="stable")
        back = np.concatenate([[0], np.cumsum(np.bincount(rows[1], minlength=first + count))])
        readers = find_readers(first, a, b)
        nothing, start, none = np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0)
        table = dict.fromkeys(core.TABLE.split(), nothing) | {
            "ops": ops, "a_ptr": a[0], "a_cell": a[1], "b_ptr": b[0], "b_cell": b[1],
            "c_ptr": c[0], "c_cell": c[1], "row_ptr": rows[0], "row_cell": rows[1],
            "slot_ptr": np.zeros(count + 1, np.int64), "slope_a_ptr": start, "slope_b_ptr": start,
            "entry_ptr": start, "back_ptr": back, "back_row": row[by_cell], "bend_ptr": start,
            "reader_ptr": readers.pointers, "reader_op": readers.operation, "reader_slope": readers.slope,
        }  # fmt: skip
        weight = dict.fromkeys(core.WEIGHT.split(), none) | {
            "a_weight": a[2], "b_weight": b[2], "c_weight": c[2], "row_weight": rows[2], "back_weight": rows[2][by_cell],
            "reader_weight": readers.weight,
        }  # fmt: skip
        code = core.Code(first, *packed(core.TABLE, table, np.int32), *packed(core.WEIGHT, weight, np.float64))
        empty, hessian = Pattern(height, 0, np.zeros(height + 1, np.int64), nothing), Pattern(0, 0, start, nothing)
        return Program(code, count, 0, unknowns, externals, nothing, empty, none, nothing, hessian)


def _keys(matrix: csr_array, level: Index, cells: int) -> Index:
    """Key of every entry of a matrix whose rows belong to levels."""
    keys: Index = np.repeat(level, np.diff(matrix.indptr)) * cells + matrix.indices
    return keys


def _distinct(keys: Index) -> Index:
    """Sort, once each; a sort is faster here than the table of np.unique."""
    keys = np.sort(keys)
    found: Index = keys[np.diff(keys, prepend=-1) != 0]
    return found


def _hand_out(
    keys: Index, cells: int, firsts: Index, ends: Index, pending: list[list[Index]], inputs: list[Index]
) -> None:
    """Give each key to the block that computes its cell, or to the inputs. Written: pending, inputs."""
    keys = _distinct(keys)
    cell = keys % cells
    block = np.searchsorted(firsts, cell, side="right") - 1
    if len(firsts):
        block[cell >= ends[np.maximum(block, 0)]] = -1
    order = np.argsort(block, kind="stable")
    block, keys = block[order], keys[order]
    starts = np.flatnonzero(np.diff(block, prepend=-2))
    for begin, end in zip(starts, [*starts[1:], len(block)]):
        (inputs if block[begin] < 0 else pending[block[begin]]).append(keys[begin:end])


def _picked(block: Block, name: str, element: Index, cells: int) -> csr_array:
    """Take elements of an operand, as rows over all cells; an operand that an operation does not have is empty."""
    operand: csr_array | None = getattr(block, name)
    if operand is None:
        return csr_array((len(element), cells))
    part = csr_array(operand[element])
    part.resize((len(element), cells))
    return part


def _cut(array: Index, at: Index, number: int) -> Index:
    return array[at[number] : at[number + 1]]


def _lines(rows: _Rows, at: Index, number: int) -> _Rows:
    """Cut out consecutive rows."""
    pointers, cells, weights = rows
    mine = pointers[at[number] : at[number + 1] + 1]
    return mine - mine[0], cells[mine[0] : mine[-1]], weights[mine[0] : mine[-1]]
