"""Listings evaluated cell by cell: slow and obvious."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from snapfm.structure.lowering import Listing

Values = npt.NDArray[np.float64]

OPERATIONS = {
    "MUL": lambda a, b: a * b,
    "DIV": lambda a, b: a / b,
    "SQUARE": lambda a, b: a * a,
    "SIN": lambda a, b: np.sin(a),
    "EXP": lambda a, b: np.exp(a),
}


def evaluated(listing: Listing, rows: csr_array, unknowns: Values) -> Values:
    """Give the rows at a point, for listings without params."""
    assert not listing.externals
    cells = np.zeros(listing.cells)
    cells[: listing.unknowns] = unknowns
    cells[listing.one] = 1.0
    for block in listing.blocks:
        a, b = (None if part is None else part @ cells[: part.shape[1]] for part in (block.a, block.b))
        cells[block.first : block.first + block.size] = OPERATIONS[block.op.name](a, b)
    found: Values = rows @ cells
    return found
