"""Totals: a few rows that add up the same small functions at every point of a large field.

Mass, water and energy of a climate state, the sum and the entropy of a density: rows are Σ f(u of a point), and operations
couple only the unknowns of one point. So points, not samples, can fill the lanes of a tile: one program serves all points of one
structure, and the constants in which they differ (area weights) are read like params. Boundary points are a class of their own.

Found from the tape, whatever operators made it. Consumes a tape and returns frozen values. Knows nothing of solvers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.derivatives import Rows
from snapfm.compile.kinks import KINKED
from snapfm.compile.lower.subtape import Chain, Subtape, hashed
from snapfm.compile.lower.tape import ONE, Block, Tape, Unlowerable, without
from snapfm.compile.program import Program, build_program, program_of
from snapfm.kernels.operators import Op

if TYPE_CHECKING:
    from snapfm.reduce.reduce import System

_ROWS = 16  # more have a Schur matrix that costs more than the points
_UNKNOWNS = 16  # of a point: its Hessian is dense
_CLASSES = 16  # structures of points
_LEAST = 16_384  # unknowns: with fewer, samples fill the lanes as well as points do
_SWEEPS = 12  # over the blocks while points are found: those of a stencil would take as many as a line has points
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplication by it scatters numbers
_LARGEST = 1 << 20  # place of the constant, in hashes: beyond the cells of any point


@dataclass(frozen=True)
class PointClass:
    """Points of one structure: `rows` reads the unknowns and extended params of each; `live`: some are params of the laws."""

    rows: Rows
    live: bool


@dataclass(frozen=True)
class Totals:
    """Rows of the stack that are totals. Extended params are those of the tape, then `constants`."""

    rows: Index  # (m,)
    unknowns: Index  # that are free
    equality: Mask  # (m,)
    known: Rows  # their share of params alone
    classes: tuple[PointClass, ...]
    constants: Values
    systems: Callable[[], tuple[System, ...]]  # the same rows as one System, which takes far more memory

    def extended(self, params: Values) -> Values:
        """Return cells of params (b, …) followed by the constants of the points."""
        return np.concatenate([params, np.broadcast_to(self.constants, (len(params), len(self.constants)))], axis=1)


def find_totals(
    tape: Tape, rows: csr_array, own: Index, free: Mask, equality: Mask, systems: Callable[[], tuple[System, ...]]
) -> Totals | None:  # fmt: skip
    """Write the `own` rows over a tape's cells as totals of the `free` unknowns they read, or of more; None if they are none."""
    if not 0 < len(own) <= _ROWS or int(free.sum()) < _LEAST:
        return None
    if any(block.op in KINKED or block.op.zero_gradient for block in tape.blocks):
        return None
    mine = csr_array(rows[own])
    point = _points(tape, mine)
    if point is None or np.count_nonzero(point[tape.unknown_cells] >= 0) < _LEAST:
        return None
    cells = _Cells(tape, mine, point)
    number = cells.classes()
    if number.max() >= _CLASSES:
        return None
    classes, constants, extended = list[PointClass](), [np.zeros(0)], tape.params
    try:
        for k in range(int(number.max()) + 1):
            one = _Template(cells, number == k, extended)
            outside = np.stack([np.zeros(len(one.inputs), np.int64), *one.columns], axis=1)[:, 1:].copy()
            program = one.program()
            classes.append(PointClass(Rows(program, one.inputs, outside), bool((outside < tape.params).any())))
            constants += one.constants
            extended += sum(len(constant) for constant in one.constants)
    except (_Uneven, Unlowerable):
        return None
    gone = np.zeros(tape.cells, bool)
    gone[tape.first_unknown :] = True
    known = Rows.of(build_program(tape, without(mine, gone), np.zeros(0, np.int64)))
    unknowns = np.flatnonzero(free & (point[tape.unknown_cells] >= 0))
    return Totals(own, unknowns, equality[own], known, tuple(classes), np.concatenate(constants), systems)


def _points(tape: Tape, rows: csr_array) -> Index | None:
    """Number the point of every cell that the rows need, −1 for others and params; None if operations tie too many together."""
    needed = np.zeros(tape.cells, bool)
    needed[rows.indices] = True
    for block in reversed(tape.blocks):
        for operand in block.operands:
            needed[operand.indices[np.repeat(needed[block.cells], np.diff(operand.indptr))]] = True
    first, none = tape.first_unknown, tape.cells  # the latter is larger than all
    point = np.where(needed, np.arange(tape.cells, dtype=np.int32), np.int32(none))
    point[:first] = none
    for _ in range(_SWEEPS):
        before = point.copy()
        for block in tape.blocks:
            least = point[block.cells]
            for operand in block.operands:
                filled = np.flatnonzero(np.diff(operand.indptr))
                if len(filled):
                    found = np.minimum.reduceat(point[operand.indices], operand.indptr[:-1][filled])
                    least[filled] = np.where(least[filled] < none, np.minimum(least[filled], found), none)
            for operand in block.operands:
                np.minimum.at(point, operand.indices, np.repeat(least, np.diff(operand.indptr)))
            point[:first] = none
            point[block.cells] = least
        if np.array_equal(point, before):
            break
    else:
        return None
    leader = np.zeros(none + 1, bool)
    leader[point] = True
    number = np.cumsum(leader, dtype=np.int32) - np.int32(1)
    number[none] = -1
    point = number[point]
    unknown = point[tape.unknown_cells]
    return None if np.bincount(unknown[unknown >= 0]).max() > _UNKNOWNS else point


class _Uneven(Exception):
    """Points of one class differ; never leaves this module."""


_Symbol = tuple[str, int]  # a cell of a template: "one", "param", "unknown" or "made", and its number
_Line = list[tuple[_Symbol, float]]  # an operand or a row: weighted cells


class _Entries(NamedTuple):
    """The entries of an operand of a block, or of the rows, each with its point and the line it belongs to."""

    point: npt.NDArray[Any]
    line: npt.NDArray[Any]  # the place of an operation among the cells of its point, or the number of a row
    cell: Index
    weight: Values


class _Cells:
    """The cells of all points, and what points have in common."""

    def __init__(self, tape: Tape, rows: csr_array, point: Index) -> None:
        self.tape, self.matrix, self.point = tape, rows, point
        self.cells = np.flatnonzero(point >= 0)  # of points, one point after the other
        self.cells = self.cells[np.argsort(point[self.cells], kind="stable")]
        counts = np.bincount(point[self.cells])
        self.starts = np.cumsum(counts) - counts
        self.rank = np.zeros(len(point), np.int32)  # of every cell in its point
        self.rank[self.cells] = np.arange(len(self.cells)) - np.repeat(self.starts, counts)
        unknown = self.cells[self.cells < tape.first_operation]
        self.widths = np.bincount(point[unknown], minlength=len(counts))

    def operand(self, block: Block, operand: csr_array) -> _Entries:
        """Return the entries of an operand."""
        counts = np.diff(operand.indptr)
        point, line = np.repeat(self.point[block.cells], counts), np.repeat(self.rank[block.cells], counts)
        return _Entries(point, line, operand.indices, operand.data)

    def rows(self) -> _Entries:
        """Return the entries of the rows."""
        line = np.repeat(np.arange(self.matrix.shape[0], dtype=np.int32), np.diff(self.matrix.indptr))
        return _Entries(self.point[self.matrix.indices], line, self.matrix.indices, self.matrix.data)

    def classes(self) -> Index:
        """Number the class of every point, by a hash of what it consists of."""
        key = self.widths.astype(np.uint64)
        parts = (self.operand(block, operand) for block in self.tape.blocks for operand in block.operands)
        for number, entries in enumerate(chain([self.rows()], parts)):
            own = np.flatnonzero(entries.point >= 0)
            cell = entries.cell[own]
            # The constant and params stand apart from the cells of the point.
            place = np.where(cell < self.tape.first_unknown, _LARGEST + (cell > ONE), self.rank[cell]).astype(np.uint64)
            place = (place << np.uint64(32)) + entries.line[own].astype(np.uint64)
            place = (place + np.uint64((number + 1) * int(_MIX) % 2**64)) * _MIX
            np.add.at(key, entries.point[own], (place ^ (place >> np.uint64(29))) * _MIX)
        found: Index = np.unique(key, return_inverse=True)[1]
        return found


class _Template:
    """The program of one class while it is written."""

    def __init__(self, cells: _Cells, points: Mask, first: int) -> None:
        self._cells, self._points, self._first = cells, points, first
        which = np.flatnonzero(points)
        self._count = len(which)
        self.width = int(cells.widths[which[0]])
        places = cells.starts[which][:, None] + np.arange(self.width)
        self.inputs = cells.cells[places] - cells.tape.first_unknown
        self.columns: list[Index] = []  # params of every point, in extended params
        self.constants: list[Values] = []
        self._ops: list[tuple[Op, list[_Line]]] = []
        self._names: dict[bytes, _Symbol] = {}  # of columns
        self._products: dict[tuple[_Symbol, _Symbol], _Symbol] = {}
        self._made: dict[int, _Symbol] = {}  # by the place of an operation in its point
        for block in cells.tape.blocks:
            self._block(block)
        lines = self._lines(cells.rows())
        self.rows = [lines.get(number, []) for number in range(cells.matrix.shape[0])]

    def _block(self, block: Block) -> None:
        """Write the operations of a block that these points have."""
        cells = self._cells
        own = self._in_order(cells.point[block.cells], cells.rank[block.cells])
        if own is None:
            return
        operands = [self._lines(cells.operand(block, operand)) for operand in block.operands]
        for place in _same(own[1]):
            self._ops.append((block.op, [operand.get(int(place), []) for operand in operands]))
            self._made[int(place)] = "made", len(self._ops) - 1

    def _in_order(self, point: Index, *arrays: Any) -> list[Any] | None:
        """Choose what belongs to these points, one line (points, …) each; None if nothing does."""
        own = np.flatnonzero(self._points[point] & (point >= 0))
        if not len(own):
            return None
        if len(own) % self._count:
            raise _Uneven
        mine = point[own]
        if (np.diff(mine) < 0).any():
            own = own[np.argsort(mine, kind="stable")]
        chosen = [one[own].reshape(self._count, -1) for one in (point, *arrays)]
        if (chosen[0] != chosen[0][:, :1]).any():
            raise _Uneven
        return chosen

    def _lines(self, entries: _Entries) -> dict[int, _Line]:
        """Write operands or rows, by the line of their entries."""
        own, found = self._in_order(*entries), dict[int, _Line]()
        if own is None:
            return found
        _, line, cell, weight = own
        for number, k in zip(_same(line).tolist(), range(line.shape[1])):
            found.setdefault(number, []).append(self._term(cell[:, k], weight[:, k]))
        return found

    def _term(self, cell: Index, weight: Values) -> tuple[_Symbol, float]:
        """Write a weighted cell; a weight that differs between points is a param, multiplied by the cell."""
        if cell[0] >= self._cells.tape.first_unknown:
            place = int(_same(self._cells.rank[cell][:, None])[0])
            symbol = ("unknown", place) if place < self.width else self._made[place]
        elif cell[0] == ONE:
            symbol = "one", 0
        else:
            symbol = self._column(cell.astype(np.int64) - 1)
        if (weight == weight[0]).all():
            return symbol, float(weight[0])
        factor = self._constant(np.ascontiguousarray(weight))
        if symbol[0] == "one":
            return factor, 1.0
        if (factor, symbol) not in self._products:
            self._ops.append((Op.MUL, [[(factor, 1.0)], [(symbol, 1.0)]]))
            self._products[factor, symbol] = "made", len(self._ops) - 1
        return self._products[factor, symbol], 1.0

    def _column(self, index: Index) -> _Symbol:
        """Name the params that points read in one place."""
        name = hashed([index])
        if name not in self._names:
            self._names[name] = "param", len(self.columns)
            self.columns.append(index)
        return self._names[name]

    def _constant(self, weight: Values) -> _Symbol:
        """Name the constants in which points differ."""
        name = hashed([weight])
        if name not in self._names:
            first = self._first + self._count * len(self.constants)
            self.constants.append(weight)
            self._names[name] = self._column(np.arange(first, first + self._count))
        return self._names[name]

    def program(self) -> Program:
        """Make the program, by all unknowns of a point."""
        count, first = len(self.columns), 1 + len(self.columns) + self.width
        begin = {"one": ONE, "param": 1, "unknown": 1 + count, "made": first}
        width = first + len(self._ops)

        def chained(lines: list[_Line]) -> Chain:
            row = np.repeat(np.arange(len(lines)), [len(line) for line in lines])
            cell = [begin[kind] + number for line in lines for (kind, number), _ in line]
            weight = [factor for line in lines for _, factor in line]
            matrix = csr_array((np.array(weight, float), (row, np.array(cell, np.int64))), shape=(len(lines), width))
            return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data

        slots = [[operands[k] if k < len(operands) else [] for _, operands in self._ops] for k in range(3)]
        part = Subtape(
            np.arange(count), np.arange(self.width), np.arange(len(self._ops)), tuple(op for op, _ in self._ops),
            np.arange(len(self._ops) + 1), tuple(chained(lines) for lines in slots), chained(self.rows),
        )  # fmt: skip
        return program_of(part, np.arange(self.width))


def _same(lines: npt.NDArray[Any]) -> Index:
    """Return the one line that all lines (points, …) equal."""
    if (lines != lines[0]).any():
        raise _Uneven
    one: Index = lines[0]
    return one
