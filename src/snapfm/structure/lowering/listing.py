"""Listing: what laws are lowered to. Blocks of nonlinear operations on linear forms over cells, and the rows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.fx import GraphModule

from snapfm.kernels.operations import Op
from snapfm.structure.forms import Form


class Unlowerable(Exception):
    """An operator has no scalar form here; never leaves the package. `law` is the place of its law among all."""

    law: int = 0


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


@dataclass
class Listing:
    """Cells 0 .. unknowns − 1 are the field, then the constant 1, then what blocks and params define, as met."""

    unknowns: int
    cells: int = 0
    blocks: list[Block] = field(default_factory=list)
    externals: list[tuple[int, GraphModule, int]] = field(default_factory=list)  # first cell, graph of params, count
    rows: list[Form] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cells = self.unknowns + 1

    def mark(self) -> tuple[int, int, int]:
        """Say how far it goes now."""
        return self.cells, len(self.blocks), len(self.externals)

    def forget(self, mark: tuple[int, int, int]) -> None:
        """Drop everything after a mark: what a law left behind that could not be lowered."""
        self.cells = mark[0]
        del self.blocks[mark[1] :], self.externals[mark[2] :]

    @property
    def one(self) -> int:
        """The cell that holds the constant 1."""
        return self.unknowns

    def unit(self, first: int, size: int, shape: tuple[int, ...]) -> Form:
        """Give `size` consecutive cells as a form."""
        place = np.arange(size)
        matrix = csr_array((np.ones(size), (place, first + place)), shape=(size, self.cells))
        return Form(matrix, shape)

    def constant(self, value: Tensor) -> Form:
        """Write known numbers as multiples of the constant cell."""
        numbers = value.to(torch.float64).reshape(-1).numpy()
        present = np.flatnonzero(numbers)
        matrix = csr_array(
            (numbers[present], (present, np.full(len(present), self.one))), shape=(len(numbers), self.cells)
        )
        return Form(matrix, tuple(value.shape))

    def apply(self, op: Op, a: Form, b: Form | None = None, c: Form | None = None) -> Form:
        """Add a block and give its result."""
        first = self.cells
        parts = [None if form is None else form.widened(first).matrix for form in (a, b, c)]
        self.blocks.append(Block(op, first, parts[0], parts[1], parts[2]))
        self.cells += a.size
        return self.unit(first, a.size, a.shape)
