"""The linearized problem of a part, on tiles that hold its answers: compiled, and with pivoting where that is not accurate.

Used by solve.system, which it must not import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csc_array, csr_array, diags_array
from scipy.sparse.linalg import splu

from snapfm.arrays import Values
from snapfm.kernels import layout as core
from snapfm.kernels.linearized import linearized_tiles
from snapfm.kernels.operations import LANES
from snapfm.solve.kkt import augmented
from snapfm.solve.tiles import Tiles

if TYPE_CHECKING:
    from snapfm.solve.system import Loops

_ACCURATE = 1e-9  # what may be left, relative to the gradient and the answer, before a sample is solved with pivoting
_SOFT = 1e-13  # on the diagonal of rows that were scaled to one: keeps dependent rows factorable


def solve_linearized(loops: Loops, tiles: Tiles) -> None:
    """Replace the answers and multipliers in tiles by (w, ν); see kernels.linearized. NaN where no accurate solution exists."""
    given = np.array(tiles.space)
    live, errors = np.zeros((len(given), LANES), bool), np.zeros((len(given), LANES))
    live.ravel()[: tiles.lanes] = True
    loops.run(linearized_tiles, (loops.deadline.stop, live), tiles, (errors,))
    if loops.deadline.over:  # Control-C: nobody reads what there is
        return
    for lane in np.flatnonzero(~(errors.ravel()[: tiles.lanes] <= _ACCURATE)):
        own = Tiles(given, tiles.at, tiles.lanes).take(np.array([lane]))
        _pivoted(loops, own)
        tiles.put(np.array([lane]), own, np.array([0]))


def _pivoted(loops: Loops, tiles: Tiles) -> None:
    """Solve the one lane of a tile by SuperLU. Written: tiles."""
    system, g, shift = loops.part.system, tiles.by_lane(core.TARGET)[0], tiles.by_lane(core.SHIFT)[0]
    loops.run(linearized_tiles, (loops.deadline.stop, np.arange(LANES)[None] == 0), tiles, (np.zeros((1, LANES)),))
    jacobian = tiles.by_lane(core.JACOBIAN)[0]
    matrix = augmented(system, jacobian, loops.scratch(core.HESSIAN)[0])
    free = np.ones(len(g), bool)
    if loops.part.kkt.frame.bounded:
        free = np.isnan(loops.scratch(core.TO_BOUND)[0])
    rows, columns = np.flatnonzero(loops.scratch(core.ACTIVE)[0] > 0.0), np.flatnonzero(free)
    own = csr_array(csr_array(system.program.pattern.csr(jacobian)[rows])[:, columns])
    sizes = np.sqrt(own.multiply(own).sum(axis=1) + system.gram.diagonal()[rows])
    scale = np.where(sizes > 0.0, 1.0 / np.where(sizes > 0.0, sizes, 1.0), 1.0)
    both = diags_array(np.concatenate([np.ones(len(columns)), scale]))
    soft = diags_array(np.repeat([0.0, _SOFT], [len(columns), len(rows)]))
    kept = np.concatenate([columns, len(g) + rows])
    right = np.concatenate([g[columns], -scale * shift[rows]])
    w, nu = np.zeros(len(g)), np.zeros(len(shift))
    found = _solve(csc_array(both @ matrix[kept][:, kept] @ both - soft), right)
    w[columns], nu[rows] = found[: len(columns)], scale * found[len(columns) :]
    tiles.section(core.X)[:] = np.repeat(w, LANES)
    tiles.section(core.MULTIPLIER)[:] = np.repeat(nu, LANES)


def _solve(matrix: csc_array, right: Values) -> Values:
    if not (np.isfinite(matrix.data).all() and np.isfinite(right).all()):
        return np.full(len(right), np.nan)
    try:
        found: Values = splu(matrix).solve(right)
    except RuntimeError:  # SuperLU met a pivot that is exactly zero
        return np.full(len(right), np.nan)
    return found
