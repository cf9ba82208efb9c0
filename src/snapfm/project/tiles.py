"""Programs on batches: what Newton's driver does in tiles of lanes outside its iterations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from snapfm.kernels.lanes import gather, scatter_add
from snapfm.kernels.operations import LANES
from snapfm.kernels.program import run_gradient, run_values
from snapfm.structure.program import Program

Values = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]


def tiles_for(lanes: int) -> int:
    """Count the tiles that so many lanes fill."""
    return (lanes + LANES - 1) // LANES


def evaluate(program: Program, inputs: Index, outside: Index, u: Values, externals: Values) -> tuple[Values, Values]:
    """Evaluate a program on a batch: (cells, rows) in tiles; `outside` numbers columns of `externals`."""
    tiles = tiles_for(len(u) * len(inputs))
    cells = np.empty((tiles, program.cells * LANES))
    rows = np.empty((tiles, program.pattern.rows * LANES))
    fill_inputs(inputs, outside, u, externals, 0, cells)
    run_values(program.code, cells, rows)
    return cells, rows


def fill_inputs(inputs: Index, outside: Index, u: Values, externals: Values, first: int, tiles: Values) -> None:
    """Write the constant, the unknowns and the params into a program's cells, which begin at `first`. Written: tiles."""
    tiles[:, first * LANES : (first + 1) * LANES] = 1.0  # cell 0 is the constant
    gather(u, inputs, first + 1, tiles)
    gather(externals, outside, first + 1 + inputs.shape[1], tiles)


def pull(
    program: Program, inputs: Index, outside: Index, u: Values, externals: Values, weight: Values, rest: Values
) -> None:
    """Add the gradient of Σ weight·row to `rest`; `weight` is in tiles."""
    cells, _ = evaluate(program, inputs, outside, u, externals)
    adjoint = np.empty_like(cells)
    partial = np.empty((len(cells), 5 * LANES * program.operations))
    run_gradient(program.code, cells, weight, partial, adjoint)
    scatter_add(adjoint, 1, inputs, rest)


def weights(multipliers: Values, rows: Index) -> Values:
    """Put multipliers (b, m) of `rows` (parts, …) into tiles."""
    out = np.empty((tiles_for(len(multipliers) * len(rows)), rows.shape[1] * LANES))
    gather(multipliers, rows, 0, out)
    return out


def arrays(matrix: csr_array) -> tuple[Index, Index, Values]:
    """Give a matrix as kernels read it."""
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data


def transposed(matrix: csr_array) -> tuple[Index, Index, Values]:
    """Give its transpose likewise."""
    return arrays(csr_array(matrix.T))
