"""Which unknowns the rows of lowered laws read, and how: the Jacobian's pattern and the kind of each row.

Follows index sets through the blocks of a Tape. Looks at no values but constant coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Index
from snapfm.compile.lower.tape import Block, Tape
from snapfm.compile.sparsity.pattern import GrowingSets, Sets, union
from snapfm.kernels.operators import ZERO_GRADIENT, ZERO_HESSIAN, Op


class RowKind(IntEnum):
    """How a row depends on the field, from the cheapest to the most expensive."""

    AFFINE = 0  # slopes never change
    PARAMETRIC = 1  # affine in the field, slopes depend on params
    SEPARABLE = 2  # a sum of functions of one unknown each: diagonal Hessian (or kinks, which have none)
    GENERAL = 3  # unknowns multiply each other


@dataclass(frozen=True)
class Reads:
    """Which unknowns each row reads: `all` of them, and those that enter through an operation (`nonlinear`)."""

    all: Sets
    nonlinear: Sets


def reads(tape: Tape, rows: csr_array) -> Reads:
    """Follow the unknowns through all operations to the given rows (over the tape's cells)."""
    pool = cell_reads(tape)
    is_made = rows.indices >= tape.first_operation
    through = csr_array(
        (is_made, rows.indices, rows.indptr), shape=rows.shape, copy=True
    )  # not in place: rows are shared
    through.eliminate_zeros()
    return Reads(pool.over(rows), pool.over(through))


class CellReads:
    """The unknowns that every cell of a tape reads, followed as the tape grows; with `slopes` those it has a slope in."""

    def __init__(self, tape: Tape, slopes: bool) -> None:
        self.tape, self.slopes = tape, slopes
        self._blocks = 0
        self._pool = GrowingSets(tape.unknowns)
        self._pool.reach(tape.first_unknown)
        self._pool.append(Sets.identity(tape.unknowns))

    def follow(self) -> Sets:
        """Follow the blocks that are new and return the sets of all cells."""
        for block in self.tape.blocks[self._blocks :]:
            if not (self.slopes and block.op in ZERO_GRADIENT):
                self._pool.reach(block.first)
                known = self._pool.sets()
                self._pool.append(union([known.over(part) for part in block.operands[: 2 if self.slopes else 3]]))
        self._blocks = len(self.tape.blocks)
        self._pool.reach(self.tape.cells)
        return self._pool.sets()

    def forget(self) -> None:
        """Drop what the tape has forgotten."""
        self._blocks = min(self._blocks, len(self.tape.blocks))
        self._pool.cut(self.tape.cells)


def cell_reads(tape: Tape) -> Sets:
    """Return the unknowns that every cell reads."""
    return CellReads(tape, slopes=False).follow()


def row_kinds(tape: Tape, rows: csr_array, pool: Sets) -> Index:
    """Classify the rows; `pool` is the result of cell_reads(tape)."""
    kind = np.zeros(tape.cells, np.int64)
    for block in tape.blocks:
        kind[block.first : block.first + block.size] = _block_kinds(block, kind, pool)
    return largest(rows, kind)


def _block_kinds(block: Block, kind: Index, pool: Sets) -> Index:
    """Return the kind of each element of one block."""
    sets = [pool.over(operand) for operand in block.operands]
    inner = np.max([largest(operand, kind) for operand in block.operands], axis=0)
    counts = np.array([part.counts for part in sets])
    joint = union(sets).counts
    if block.op in (Op.MUL, Op.DIV):
        scaled = (counts[1] == 0) if block.op == Op.DIV else (counts > 0).sum(axis=0) == 1
        curved = np.where(joint > 1, RowKind.GENERAL, RowKind.SEPARABLE)
        found = np.where(scaled, np.maximum(inner, RowKind.PARAMETRIC), curved)
    elif block.op == Op.SELECT:
        found = np.maximum(inner, np.where(counts[2] > 0, RowKind.SEPARABLE, RowKind.PARAMETRIC))
    elif block.op in ZERO_GRADIENT or block.op in ZERO_HESSIAN:
        found = np.maximum(inner if block.op in ZERO_HESSIAN else 0, RowKind.SEPARABLE)
    else:
        found = np.where(joint > 1, RowKind.GENERAL, RowKind.SEPARABLE)
    return np.where(joint > 0, found, RowKind.AFFINE).astype(np.int64, copy=False)


def row_slopes(tape: Tape, rows: csr_array) -> Sets:
    """Return the unknowns that each row has a slope in: the pattern of the Jacobian."""
    return CellReads(tape, slopes=True).follow().over(rows)


def largest(matrix: csr_array, number: Index) -> Index:
    """Return the largest number among the cells of each row of a matrix; zero for none."""
    out = np.zeros(matrix.shape[0], np.int64)
    filled = np.flatnonzero(np.diff(matrix.indptr))
    if len(filled):
        out[filled] = np.maximum.reduceat(number[matrix.indices], matrix.indptr[filled])
    return out
