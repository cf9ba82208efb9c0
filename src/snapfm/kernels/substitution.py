"""Solve with the factors of kernels.ldl in float64: substitution, and refinement against the kept matrix.

Consumes a Schedule, factors by tile and right-hand sides (n, sides, lanes); writes solutions of the same shape. One
factor may serve all lanes. No lane touches another. May import kernels.packs and kernels.triangular only.
"""

from __future__ import annotations

import numpy as np

from snapfm.kernels.compiling import compiled
from snapfm.kernels.packs import WIDTH, absolute, add, fnma, full, load, pick, put, store, take
from snapfm.kernels.triangular import substitute

WORK = 5  # vectors a tile needs to refine: answer, right-hand side, its residual, trial, residual of the trial


@compiled(nogil=True, error_model="numpy")
def solve(
    plan, factor, inverse, matrix, shared, refinements, rhs, sides, lanes, work, out
):  # read: up to lanes, rhs (n * sides * lanes); written: work (tiles, 1 or WORK, slots), out (as rhs, may be rhs)
    """Solve for every side and lane; `shared` uses the first tile's factor for all lanes."""
    tiles = (lanes + WIDTH - 1) // WIDTH
    for tile in range(tiles):
        f = 0 if shared else tile
        solve_tile(plan, factor[f], inverse[f], matrix[f], refinements, rhs, sides, lanes, tile, work[tile], out)


@compiled(nogil=True, error_model="numpy")
def solve_tile(
    plan, factor, inverse, matrix, refinements, rhs, sides, lanes, tile, work, out
):  # read: all but work and out; written: work (1 or WORK, slots), out
    """Solve one tile of rhs (n * sides * lanes); see solve."""
    start = tile * WIDTH
    count = min(WIDTH, lanes - start)
    x, slot = work[0], plan.slot
    for side in range(sides):
        for k in range(len(x) // WIDTH):  # phantoms stay zero
            store(x, k, full(0.0))
        for i in range(len(slot)):
            store(x, slot[i], take(rhs, (i * sides + side) * lanes + start, count))
        if refinements > 0:
            _copy(x, work[1])
        substitute(plan, factor, inverse, x)
        if refinements > 0:
            _refine(plan, factor, inverse, matrix, refinements, work)
        for i in range(len(slot)):
            put(out, (i * sides + side) * lanes + start, count, load(x, slot[i]))


@compiled(nogil=True, error_model="numpy")
def _refine(plan, factor, inverse, matrix, refinements, work):  # written: work
    """Add the solution for the residual, `refinements` times; a lane keeps what it had unless its residual shrinks."""
    x, b, residual, trial, left = work[0], work[1], work[2], work[3], work[4]
    size = _residual(plan, matrix, b, x, residual)
    for _ in range(refinements):
        _copy(residual, trial)
        substitute(plan, factor, inverse, trial)
        for k in range(len(x) // WIDTH):
            store(trial, k, add(load(trial, k), load(x, k)))
        new = _residual(plan, matrix, b, trial, left)
        for k in range(len(x) // WIDTH):
            store(x, k, pick(new, size, load(trial, k), load(x, k)))
            store(residual, k, pick(new, size, load(left, k), load(residual, k)))
        size = pick(new, size, new, size)


@compiled(nogil=True, error_model="numpy")
def _residual(plan, matrix, b, x, out):  # written: out
    """out = b - A x; gives its largest size, infinite where it is not a number."""
    _copy(b, out)
    for p in range(len(plan.entry_row)):
        row, column, entry = plan.entry_row[p], plan.entry_column[p], load(matrix, p)
        store(out, row, fnma(entry, load(x, column), load(out, row)))
        if row != column:
            store(out, column, fnma(entry, load(x, row), load(out, column)))
    largest = full(0.0)
    for k in range(len(x) // WIDTH):
        size = absolute(load(out, k))
        size = pick(size, full(np.inf), size, full(np.inf))
        largest = pick(size, largest, largest, size)
    return largest


@compiled(nogil=True, error_model="numpy")
def _copy(x, out):  # written: out
    """Pack by pack: numba takes seconds to compile out[:] = x."""
    for k in range(len(x) // WIDTH):
        store(out, k, load(x, k))
