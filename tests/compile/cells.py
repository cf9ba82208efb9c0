"""Tapes evaluated cell by cell: slow and obvious."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from snapfm.compile.lower import Tape
from snapfm.compile.lower.tape import ONE

Values = npt.NDArray[np.float64]

OPERATIONS = {
    "MUL": lambda a, b: a * b,
    "DIV": lambda a, b: a / b,
    "SQUARE": lambda a, b: a * a,
    "SIN": lambda a, b: np.sin(a),
    "EXP": lambda a, b: np.exp(a),
}


def evaluated(tape: Tape, rows: csr_array, unknowns: Values) -> Values:
    """Give the rows at a point, for tapes without params."""
    assert not tape.params
    cells = np.zeros(tape.cells)
    cells[tape.unknown_cells] = unknowns
    cells[ONE] = 1.0
    for block in tape.blocks:
        a, b = (None if part is None else part @ cells[: part.shape[1]] for part in (block.a, block.b))
        cells[block.first : block.first + block.size] = OPERATIONS[block.op.name](a, b)
    found: Values = rows @ cells
    return found
