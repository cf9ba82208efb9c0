"""The tape: what laws are lowered to. Blocks of nonlinear operations on linear forms over cells.

A cell is one number: the constant 1, a value that depends on params only, an unknown, or the result of one nonlinear
operation. Every element of a tensor is a linear combination of cells, kept as a row of a sparse matrix. So linear operators cost
nothing at run time: they are multiplied out here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array, vstack
from torch import Tensor
from torch.fx import GraphModule

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.sparsity.pattern import NONE
from snapfm.kernels.operators import Op

if TYPE_CHECKING:
    from snapfm.compile.lower.lifts import Lift


@dataclass(frozen=True)
class Form:
    """The elements of one tensor, flattened, as rows over the cells; `shape` is the tensor's."""

    matrix: csr_array
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.matrix.shape[0])

    def gather(self, source: Index, shape: tuple[int, ...]) -> Form:
        """Copy elements; NONE becomes a zero."""
        rows = np.flatnonzero(source != NONE)
        pick = csr_array((np.ones(len(rows)), (rows, source[rows])), shape=(len(source), self.size))
        return Form(csr_array(pick @ self.matrix), shape)

    def group(self, label: Index, source: Index, weight: Values, size: int, shape: tuple[int, ...]) -> Form:
        """Sum weighted elements: element e is Σ weight[i] · element source[i] over all i with label[i] == e."""
        mix = csr_array((weight, (label, source)), shape=(size, self.size))
        return Form(csr_array(mix @ self.matrix), shape)

    def scaled(self, factor: Values) -> Form:
        """Multiply element by element."""
        return Form(csr_array(diags_array(factor) @ self.matrix), self.shape)

    def widened(self, cells: int) -> Form:
        """See the form over a larger number of cells."""
        return self if self.matrix.shape[1] == cells else Form(widened(self.matrix, cells), self.shape)


def added(one: Form, other: Form, cells: int) -> Form:
    """Add two forms of one shape."""
    return Form(csr_array(one.widened(cells).matrix + other.widened(cells).matrix), one.shape)


def chosen_rows(matrix: csr_array, rows: Index) -> csr_array:
    """Take rows, which are distinct; the matrix itself, not a copy, if they are all of them in order, as large ones often are."""
    if len(rows) == matrix.shape[0] and bool((np.diff(rows) == 1).all()):
        return matrix
    return csr_array(matrix[rows])


def moved_columns(matrix: csr_array, place: Index, width: int) -> csr_array:
    """Put column k of a matrix at place[k], among `width` columns."""
    return csr_array((matrix.data, place[matrix.indices], matrix.indptr), shape=(matrix.shape[0], width))


def without(matrix: csr_array, gone: Mask) -> csr_array:
    """Drop the entries of some columns, and zeros."""
    keep = ~gone[matrix.indices] & (matrix.data != 0.0)
    indptr = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr]
    return csr_array((matrix.data[keep], matrix.indices[keep], indptr), shape=matrix.shape)


def stacked(forms: list[Form], cells: int) -> Form:
    """Put the elements of several forms one after the other."""
    matrix = csr_array(vstack([form.widened(cells).matrix for form in forms], format="csr"))
    return Form(matrix, (matrix.shape[0],))


class Unlowerable(Exception):
    """An operator has no scalar form here; never leaves the package."""


@dataclass(frozen=True)
class Block:
    """One nonlinear operation on `size` elements: cells first .. first + size − 1 = op(a, b, c)."""

    op: Op
    first: int
    a: csr_array
    b: csr_array | None = None
    c: csr_array | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.a.shape[0])

    @property
    def cells(self) -> slice:
        """The cells of the results."""
        return slice(self.first, self.first + self.size)

    @property
    def operands(self) -> list[csr_array]:
        """The operands that the operation has."""
        return [operand for operand in (self.a, self.b, self.c) if operand is not None]

    def mapped(self, change: Callable[[csr_array], csr_array], first: int) -> Block:
        """Change every operand; the results are cells from `first` on."""
        b, c = (None if operand is None else change(operand) for operand in (self.b, self.c))
        return Block(self.op, first, change(self.a), b, c)


ONE = 0  # the cell that holds the constant 1


@dataclass
class Tape:
    """Cells in one order, which all that is cut out of a tape keeps: the constant 1, cells of params, unknowns, operations.

    Only while laws are lowered, cells of params are numbered as they are met, among operations; then `ordered` moves them.
    """

    unknowns: int
    params: int = 0  # cells before the unknowns, beside the constant
    blocks: list[Block] = field(default_factory=list)
    graphs: list[tuple[int, GraphModule, int]] = field(default_factory=list)  # of params: first cell, graph, count
    lifting: bool = False  # while laws are lowered: whether coefficients of unknowns may become cells
    tried: bool = False  # whether products with known matrices were taken for transforms
    lifts: list[Lift] = field(default_factory=list)
    cells: int = field(init=False)

    def __post_init__(self) -> None:
        self.cells = self.blocks[-1].first + self.blocks[-1].size if self.blocks else self.first_operation

    @property
    def first_unknown(self) -> int:
        """The cell of the first unknown."""
        return 1 + self.params

    @property
    def first_operation(self) -> int:
        """The cell behind the last unknown."""
        return 1 + self.params + self.unknowns

    @property
    def unknown_cells(self) -> slice:
        """The cells of the unknowns."""
        return slice(self.first_unknown, self.first_operation)

    def is_unknown(self, cells: Index) -> Mask:
        """Mark the cells that are unknowns."""
        return (cells >= self.first_unknown) & (cells < self.first_operation)

    def mark(self) -> tuple[int, int, int, int]:
        """Return how far the tape goes now."""
        return self.cells, len(self.blocks), len(self.graphs), len(self.lifts)

    def forget(self, mark: tuple[int, int, int, int]) -> None:
        """Drop everything after a mark: the part of a law before the operator that could not be lowered."""
        self.cells = mark[0]
        del self.blocks[mark[1] :], self.graphs[mark[2] :], self.lifts[mark[3] :]

    def over(self, change: Callable[[csr_array], csr_array]) -> Tape:
        """Change every operand, in the same cells."""
        blocks = [block.mapped(change, block.first) for block in self.blocks]
        return Tape(self.unknowns, self.params, blocks, self.graphs)

    def unit(self, first: int, size: int, shape: tuple[int, ...]) -> Form:
        """Return `size` consecutive cells as a form."""
        place = np.arange(size)
        matrix = csr_array((np.ones(size), (place, first + place)), shape=(size, self.cells))
        return Form(matrix, shape)

    def constant(self, value: Tensor) -> Form:
        """Write known numbers as multiples of the constant cell."""
        numbers = value.to(torch.float64).reshape(-1).numpy()
        present = np.flatnonzero(numbers)
        matrix = csr_array((numbers[present], (present, np.full(len(present), ONE))), shape=(len(numbers), self.cells))
        return Form(matrix, tuple(value.shape))

    def apply(self, op: Op, a: Form, b: Form | None = None, c: Form | None = None) -> Form:
        """Add a block, unless it has no elements, and return its result."""
        first = self.cells
        if a.size:
            self.blocks.append(Block(op, first, *(form and form.widened(first).matrix for form in (a, b, c))))
        self.cells += a.size
        return self.unit(first, a.size, a.shape)


_ROUNDING = 1e-12  # forms that differ by less than this share are proportional


def reads(form: csr_array, marked: Mask) -> Mask:
    """Which rows of a form hold a marked cell."""
    label = np.repeat(np.arange(form.shape[0]), np.diff(form.indptr))
    return np.bincount(label, marked[form.indices], minlength=form.shape[0]) > 0


def ratio(one: csr_array, other: csr_array) -> tuple[Values, Mask]:
    """Return row by row the factor k with one = k · other, and whether there is one."""
    cells = max(one.shape[1], other.shape[1])
    one, other = widened(one, cells), widened(other, cells)
    square = np.asarray(other.multiply(other).sum(axis=1)).ravel()
    scale = np.asarray(one.multiply(other).sum(axis=1)).ravel() / np.where(square > 0.0, square, 1.0)
    off = csr_array(one - csr_array(diags_array(scale) @ other))
    left = np.asarray(off.multiply(off).sum(axis=1)).ravel()
    return scale, (left <= _ROUNDING**2 * scale**2 * square) & (scale != 0.0)


def widened(form: csr_array, cells: int) -> csr_array:
    """See rows over a larger number of cells."""
    return csr_array((form.data, form.indices, form.indptr), shape=(form.shape[0], cells))


def units(cell: Index, cells: int) -> csr_array:
    """Return rows that are one cell each."""
    return csr_array((np.ones(len(cell)), cell, np.arange(len(cell) + 1)), shape=(len(cell), cells))


# Blocks that a law over whole tensors stays below. One written number by number (a loop over scalars) has one per operation, and
# everything that looks through a tape takes its time per block: operations of one kind that do not need each other become one.
_MANY = 64


def of_params(tape: Tape) -> Index:
    """Return the cells of params of a tape that laws were lowered to."""
    return np.concatenate([np.zeros(0, np.int64), *(first + np.arange(size) for first, _, size in tape.graphs)])


def ordered(tape: Tape, given: Index) -> tuple[Tape, Index]:
    """Put cells in order: the constant, those `given` as params, other cells that no operation makes, as unknowns; operations.

    Returns the new tape and where it has every cell of the old one.
    """
    few = len(tape.blocks) <= _MANY
    groups = [[block] for block in tape.blocks] if few else _groups(tape)
    made = [np.arange(block.first, block.first + block.size) for group in groups for block in group]
    rest = np.ones(tape.cells, bool)
    rest[np.concatenate([[ONE], given, *made])] = False
    unknowns = np.flatnonzero(rest)
    order = np.concatenate([[ONE], given, unknowns, *made])
    place = np.empty(tape.cells, np.int64)
    place[order] = np.arange(tape.cells)
    counts = tape.params == len(given) and tape.unknowns == len(unknowns)
    if few and counts and np.array_equal(order, np.arange(tape.cells)):
        return tape, place
    blocks = [_joined(group, place) for group in groups]
    graphs = [(int(place[first]), graph, size) for first, graph, size in tape.graphs]
    return Tape(len(unknowns), len(given), blocks, graphs), place


def _groups(tape: Tape) -> list[list[Block]]:
    """Sort blocks by their depth, the longest chain of blocks that they need, then by operator."""
    depth = np.zeros(tape.cells, np.int64)
    found: dict[tuple[int, int], list[Block]] = {}
    for block in tape.blocks:
        own = 1 + max(int(depth[operand.indices].max(initial=0)) for operand in block.operands)
        depth[block.first : block.first + block.size] = own
        found.setdefault((own, int(block.op)), []).append(block)
    return [found[key] for key in sorted(found)]


def _joined(group: list[Block], place: Index) -> Block:
    """Put the elements of blocks of one operator, which all have the same operands, one after the other."""
    first = int(place[group[0].first])

    def stacked(operands: list[csr_array]) -> csr_array:
        moved = [moved_columns(operand, place, first) for operand in operands]
        return moved[0] if len(moved) == 1 else csr_array(vstack(moved, format="csr"))

    columns = [stacked(list(parts)) for parts in zip(*(block.operands for block in group), strict=True)]
    return Block(group[0].op, first, *columns)
