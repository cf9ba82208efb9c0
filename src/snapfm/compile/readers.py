"""Who reads the cells of a program: what its operations are differentiated backwards by.

Used by compile.program and reduce.levels, which it must not import.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from snapfm.arrays import Index, Values

Chain = tuple[Index, Index, Values]  # sums of weighted cells, one after the other: pointers, cells, weights


class Readers(NamedTuple):
    """Sections of kernels.program.Code: for each cell, who reads it."""

    pointers: Index  # readers of each cell: operations, the last first
    operation: Index
    slope: Index  # of the reader by the operand that the cell is part of, among five derivatives per operation
    weight: Values


def find_readers(first: int, a: Chain, b: Chain) -> Readers:
    """Find them for the operands a and b of all operations; operation e is cell first + e. Operand c has no slope."""
    operations = len(a[0]) - 1
    counts = [np.diff(one[0]) for one in (a, b)]
    cell = np.concatenate([a[1], b[1]])
    side = np.repeat([0, 1], [len(a[1]), len(b[1])])
    operation = np.concatenate([np.repeat(np.arange(operations), count) for count in counts])
    order = np.lexsort((side, -operation, cell))
    return Readers(
        np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=first + operations))]),
        operation[order],
        (5 * operation + side)[order],
        np.concatenate([a[2], b[2]])[order],
    )
