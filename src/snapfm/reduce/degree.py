"""Degree: which rows of a tape are polynomials of at most second degree in the unknowns that are still free.

Energies, momenta, weighted norms and sums of squared differences are. Structure only.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Index, Mask
from snapfm.compile.lower.tape import Tape
from snapfm.kernels.operators import Op

_MANY = 9  # stands for any degree above two, and for what is no polynomial


def quadratic_rows(tape: Tape, rows: csr_array, free: Mask) -> tuple[Mask, Mask]:
    """Mark the rows (over the tape's cells) that are at most quadratic in the `free` unknowns, and those with a constant Hessian.

    An operation on what another operation made of a free unknown has a Hessian that may depend on params.
    """
    degree, nested = np.zeros(tape.cells, np.int64), np.zeros(tape.cells, np.int64)
    degree[: tape.unknowns] = free
    for block in tape.blocks:
        found = [_largest(operand, degree) for operand in block.operands]
        if block.op == Op.SQUARE:
            own = 2 * found[0]
        elif block.op == Op.MUL:
            own = found[0] + found[1]
        else:
            own = np.where(np.max(found, axis=0) > 0, _MANY, 0)
        here = slice(block.first, block.first + block.size)
        degree[here] = np.minimum(own, _MANY)
        # 0: does not depend on the field; 1: an operation on unknowns themselves; 2: on results of operations
        reads = np.max([_largest(operand, nested) for operand in block.operands], axis=0)
        nested[here] = np.where(degree[here] == 0, 0, np.minimum(1 + reads, 2))
    quadratic: Mask = _largest(rows, degree) <= 2
    constant: Mask = quadratic & (_largest(rows, nested) <= 1)
    return quadratic, constant


def _largest(matrix: csr_array, degree: Index) -> Index:
    """Return per row of a matrix the largest degree among the cells it reads."""
    out = np.zeros(matrix.shape[0], np.int64)
    filled = np.flatnonzero(np.diff(matrix.indptr))
    if len(filled):
        out[filled] = np.maximum.reduceat(degree[matrix.indices], matrix.indptr[filled])
    return out
