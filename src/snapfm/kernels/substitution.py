"""Solve with the factors of kernels.ldl: forward and backward substitution, and refinement against the kept matrix.

Reads a Schedule, the factors by tile and right-hand sides. Writes solutions of the same shape. Lanes do not interact.
May import kernels.packs and kernels.panels.
"""

from __future__ import annotations

import numpy as np

from snapfm.kernels.compiling import compiled
from snapfm.kernels.packs import WIDTH, absolute, add, fma, fnma, full, load, mul, pick, put, store, take
from snapfm.kernels.panels import BLOCK, PANEL

WORK = 5  # vectors a tile needs to refine: answer, right-hand side, its residual, trial, residual of the trial


@compiled(nogil=True, error_model="numpy")
def solve(
    plan, factor, inverse, matrix, refinements, rhs, lanes, work, out
):  # read: up to lanes, rhs (n * lanes); written: work (tiles, 1 or WORK, slots), out (as rhs, may be rhs)
    """Solve for every lane."""
    for tile in range((lanes + WIDTH - 1) // WIDTH):
        solve_tile(plan, factor[tile], inverse[tile], matrix[tile], refinements, rhs, 1, lanes, tile, work[tile], out)


@compiled(nogil=True, error_model="numpy")
def solve_tile(
    plan, factor, inverse, matrix, refinements, rhs, sides, lanes, tile, work, out
):  # read: all but work and out; written: work (1 or WORK, slots), out
    """Solve one tile of rhs (n * sides * lanes), `refinements` times refined."""
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
        _substitute(plan, factor, inverse, x)
        if refinements > 0:
            _refine(plan, factor, inverse, matrix, refinements, work)
        for i in range(len(slot)):
            put(out, (i * sides + side) * lanes + start, count, load(x, slot[i]))


@compiled(nogil=True, error_model="numpy")
def _substitute(plan, factor, inverse, x):  # written: x
    """x becomes L⁻ᵀ D⁻¹ L⁻¹ x. The rows below a panel hold X = L D, so D⁻¹ is applied before them going forward."""
    base, head, row_ptr, rows = plan.base, plan.head, plan.row_ptr, plan.rows
    panels = len(head)
    for panel in range(panels):
        b, s = base[panel], PANEL * panel
        x0, x1, x2, x3 = load(x, s), load(x, s + 1), load(x, s + 2), load(x, s + 3)
        if head[panel] == BLOCK:
            x1 = fnma(x0, load(factor, b + 4), x1)
            x2 = fnma(x1, load(factor, b + 9), fnma(x0, load(factor, b + 8), x2))
            x3 = fnma(x1, load(factor, b + 13), fnma(x0, load(factor, b + 12), x3))
            x3 = fnma(x2, load(factor, b + 14), x3)
        x0, x1 = mul(x0, load(inverse, s)), mul(x1, load(inverse, s + 1))
        x2, x3 = mul(x2, load(inverse, s + 2)), mul(x3, load(inverse, s + 3))
        store(x, s, x0)
        store(x, s + 1, x1)
        store(x, s + 2, x2)
        store(x, s + 3, x3)
        p = b + head[panel]
        for r in range(row_ptr[panel], row_ptr[panel + 1]):
            row = rows[r]
            y = fnma(x1, load(factor, p + 1), fnma(x0, load(factor, p), load(x, row)))
            store(x, row, fnma(x3, load(factor, p + 3), fnma(x2, load(factor, p + 2), y)))
            p += PANEL
    for panel in range(panels - 1, -1, -1):
        b, s = base[panel], PANEL * panel
        s0 = s1 = s2 = s3 = full(0.0)
        p = b + head[panel]
        for r in range(row_ptr[panel], row_ptr[panel + 1]):
            y = load(x, rows[r])
            s0, s1 = fma(load(factor, p), y, s0), fma(load(factor, p + 1), y, s1)
            s2, s3 = fma(load(factor, p + 2), y, s2), fma(load(factor, p + 3), y, s3)
            p += PANEL
        x0, x1 = fnma(s0, load(inverse, s), load(x, s)), fnma(s1, load(inverse, s + 1), load(x, s + 1))
        x2, x3 = fnma(s2, load(inverse, s + 2), load(x, s + 2)), fnma(s3, load(inverse, s + 3), load(x, s + 3))
        if head[panel] == BLOCK:
            x2 = fnma(x3, load(factor, b + 14), x2)
            x1 = fnma(x2, load(factor, b + 9), fnma(x3, load(factor, b + 13), x1))
            x0 = fnma(x2, load(factor, b + 8), fnma(x3, load(factor, b + 12), x0))
            x0 = fnma(x1, load(factor, b + 4), x0)
        store(x, s, x0)
        store(x, s + 1, x1)
        store(x, s + 2, x2)
        store(x, s + 3, x3)


@compiled(nogil=True, error_model="numpy")
def _refine(plan, factor, inverse, matrix, refinements, work):  # written: work
    """Add the solution for the residual, `refinements` times; a lane keeps its solution unless its residual shrinks."""
    x, b, residual, trial, left = work[0], work[1], work[2], work[3], work[4]
    size = _residual(plan, matrix, b, x, residual)
    for _ in range(refinements):
        _copy(residual, trial)
        _substitute(plan, factor, inverse, trial)
        for k in range(len(x) // WIDTH):
            store(trial, k, add(load(trial, k), load(x, k)))
        new = _residual(plan, matrix, b, trial, left)
        for k in range(len(x) // WIDTH):
            store(x, k, pick(new, size, load(trial, k), load(x, k)))
            store(residual, k, pick(new, size, load(left, k), load(residual, k)))
        size = pick(new, size, new, size)


@compiled(nogil=True, error_model="numpy")
def _residual(plan, matrix, b, x, out):  # written: out
    """out = b - A x; gives the largest |out| per lane, infinite where it is NaN."""
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
