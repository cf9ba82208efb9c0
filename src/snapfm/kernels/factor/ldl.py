"""Numeric LDLᵀ without pivoting of many matrices on one pattern, and solves with the factors: stop 8 of the walk.

Reads a Schedule and values (nnz, lanes). Writes the factors of every tile and, per lane, the outcome and the inertia.
Lanes do not interact: all arithmetic is lane by lane in an order fixed by the pattern, an incomplete tile is filled with
copies of its last lane, and a bad pivot is counted, never raised. Imports kernels only.

Within a panel the diagonal block holds L (unit, scaled) and the rows below hold X = L D (unscaled). An update needs
X D⁻¹ Xᵀ, a solve can use either, and a pivot that is left out (D⁻¹ = 0) leaves finite numbers.
"""

from __future__ import annotations

import numpy as np

from snapfm.kernels.factor.panels import BLOCK, PANEL
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import WIDTH, absolute, add, div, fma, fnma, full, load, mul, pick, put, store, take

FACTORED, SINGULAR, NONFINITE = 0, 1, 2  # status of a lane; linear.base has the names
_NEGATIVE, _WEAK, _BROKEN, _SMALLEST = range(4)
TALLY = 4  # packs of a tile's tally: negative, weak and non-finite pivots, and the smallest |pivot|

_PHANTOM = 1e300  # pivot of a phantom column: finite, never the smallest, and its column is zero
_LARGEST = float(np.finfo(np.float64).max)


@compiled(nogil=True, error_model="numpy")
def factorize(
    plan, values, lanes, signed, tiny, factor, inverse, scale, tally, status, negative, weak, smallest
):  # read: values (nnz * lanes); written: (tiles, ...) from factor to tally, then (lanes,)
    """Factorize every lane. A pivot is weak if it is at most tiny * its scale; its row is left out of the solution."""
    never = np.zeros(1, np.int64)  # this factorization is not stopped
    for tile in range((lanes + WIDTH - 1) // WIDTH):
        factorize_tile(
            plan, values, lanes, tile, signed, tiny, factor[tile], inverse[tile], scale[tile], tally[tile], never
        )  # fmt: skip
    for lane in range(lanes):
        seen, at = tally[lane // WIDTH], lane % WIDTH
        negative[lane], weak[lane] = int(seen[_NEGATIVE * WIDTH + at]), int(seen[_WEAK * WIDTH + at])
        smallest[lane] = seen[_SMALLEST * WIDTH + at]
        if seen[_BROKEN * WIDTH + at] > 0.0:
            status[lane] = NONFINITE
        else:
            status[lane] = SINGULAR if weak[lane] > 0 else FACTORED


@compiled(nogil=True, error_model="numpy")
def factorize_tile(
    plan, values, lanes, tile, signed, tiny, factor, inverse, scale, tally, stop
):  # read: plan, values, stop; written: factor, inverse, scale, tally (TALLY packs)
    """Factorize one tile of values (nnz * lanes); see factorize. Ends early, without a factor, once stop[0] is not zero."""
    start = tile * WIDTH
    count = min(WIDTH, lanes - start)
    if signed:
        for k in range(len(scale) // WIDTH):
            store(scale, k, full(0.0))
    for k in range(PANEL):
        store(factor, k, full(0.0))
    for k in range(TALLY):
        store(tally, k, full(np.inf if k == _SMALLEST else 0.0))
    # The four steps are inlined by LLVM (forceinline). Inlined by numba, they counted references to the plan's arrays for
    # every panel, which took longer than the arithmetic.
    # Left-looking: a panel is written once, while it is in the nearest cache. Copying the values to the tile first, so
    # that they are read in sequence, gained a third at 64 lanes on long patterns and lost a tenth at 8 to 16.
    for panel in range(len(plan.width)):
        if stop[0] != 0:
            return
        _assemble(plan, panel, values, lanes, start, count, factor)
        _scale(plan, panel, signed, factor, inverse, scale)
        if plan.head[panel] == BLOCK:
            _receive(plan, panel, factor, inverse)
            _eliminate(plan, panel, tiny, factor, inverse, scale, tally)
        else:  # leaves: nothing to subtract, and none reaches another
            for k in range(PANEL):
                slot = PANEL * panel + k
                pivot = load(factor, plan.base[panel] + k)
                store(inverse, slot, _invert(pivot, slot, tiny, scale, tally))


@compiled(nogil=True, error_model="numpy", forceinline=True)
def _assemble(plan, panel, values, lanes, start, count, factor):
    """Scatter the entries into the zeroed panel. Written: factor."""
    zero = load(factor, 0)  # the row of zeros: a literal zero becomes a call of memset, slow for a few lines
    base, first, end = plan.base[panel], plan.entry_ptr[panel], plan.entry_ptr[panel + 1]
    for k in range(base, plan.base[panel + 1]):
        store(factor, k, zero)
    step = PANEL + 1 if plan.head[panel] == BLOCK else 1
    for k in range(plan.width[panel], PANEL):
        store(factor, base + step * k, full(_PHANTOM))
    for p in range(first, end):
        store(factor, plan.entry_to[p], take(values, plan.entry_from[p] * lanes + start, count))


@compiled(nogil=True, error_model="numpy", forceinline=True)
def _scale(plan, panel, signed, factor, inverse, scale):
    """Set the scale of the assembled panel's pivots: |a_ii|, and with signs at least a_ij² / |a_jj| for j before i.

    A diagonal of -δ says nothing about the size of its pivot; the contribution of an eliminated neighbor does. On a
    definite matrix it makes no difference: a_ij² <= a_ii a_jj. Written: scale; inverse (1 / |a_jj| for now).
    """
    zero = full(0.0)
    step = PANEL + 1 if plan.head[panel] == BLOCK else 1
    for k in range(PANEL):
        slot = PANEL * panel + k
        size = absolute(load(factor, plan.base[panel] + step * k))
        if not signed:
            store(scale, slot, size)
        else:
            store(scale, slot, pick(load(scale, slot), size, size, load(scale, slot)))
            store(inverse, slot, pick(size, zero, zero, div(full(1.0), size)))
    if signed:
        for p in range(plan.entry_ptr[panel], plan.entry_ptr[panel + 1]):
            row, column = plan.entry_row[p], plan.entry_column[p]
            if row != column:
                entry, gained = load(factor, plan.entry_to[p]), load(scale, row)
                gain = mul(mul(entry, entry), load(inverse, column))
                store(scale, row, pick(gained, gain, gain, gained))


@compiled(nogil=True, error_model="numpy", forceinline=True)
def _receive(plan, panel, factor, inverse):  # written: factor
    """Subtract X D⁻¹ Xᵀ of every earlier panel that reaches this one."""
    for u in range(plan.update_ptr[panel], plan.update_ptr[panel + 1]):
        x, rows, target, s = plan.updates[u, 0], plan.updates[u, 1], plan.updates[u, 2], plan.updates[u, 3]
        i0, i1, i2, i3 = load(inverse, s), load(inverse, s + 1), load(inverse, s + 2), load(inverse, s + 3)
        # tij = Xi / pivot j for the four columns i of this panel: sixteen registers, held over all rows.
        p, q = plan.updates[u, 4], plan.updates[u, 5]
        t00, t01 = mul(load(factor, p), i0), mul(load(factor, p + 1), i1)
        t02, t03 = mul(load(factor, p + 2), i2), mul(load(factor, p + 3), i3)
        t10, t11 = mul(load(factor, q), i0), mul(load(factor, q + 1), i1)
        t12, t13 = mul(load(factor, q + 2), i2), mul(load(factor, q + 3), i3)
        p, q = plan.updates[u, 6], plan.updates[u, 7]
        t20, t21 = mul(load(factor, p), i0), mul(load(factor, p + 1), i1)
        t22, t23 = mul(load(factor, p + 2), i2), mul(load(factor, p + 3), i3)
        t30, t31 = mul(load(factor, q), i0), mul(load(factor, q + 1), i1)
        t32, t33 = mul(load(factor, q + 2), i2), mul(load(factor, q + 3), i3)
        for i in range(rows):
            # In the rows of the diagonal block this also writes above the diagonal, where nothing is ever read.
            y, row = plan.targets[target + i], x + PANEL * i
            x0, x1, x2, x3 = load(factor, row), load(factor, row + 1), load(factor, row + 2), load(factor, row + 3)
            y0 = fnma(x3, t03, fnma(x2, t02, fnma(x1, t01, fnma(x0, t00, load(factor, y)))))
            y1 = fnma(x3, t13, fnma(x2, t12, fnma(x1, t11, fnma(x0, t10, load(factor, y + 1)))))
            y2 = fnma(x3, t23, fnma(x2, t22, fnma(x1, t21, fnma(x0, t20, load(factor, y + 2)))))
            y3 = fnma(x3, t33, fnma(x2, t32, fnma(x1, t31, fnma(x0, t30, load(factor, y + 3)))))
            store(factor, y, y0)
            store(factor, y + 1, y1)
            store(factor, y + 2, y2)
            store(factor, y + 3, y3)


@compiled(nogil=True, error_model="numpy", forceinline=True)
def _eliminate(plan, panel, tiny, factor, inverse, scale, tally):
    """Factorize one panel in place. xij is unscaled, lij = xij / pivot j. Written: factor, inverse, tally."""
    b, s = plan.base[panel], PANEL * panel
    i0 = _invert(load(factor, b), s, tiny, scale, tally)
    x10 = load(factor, b + 4)
    l10 = mul(x10, i0)
    i1 = _invert(fnma(x10, l10, load(factor, b + 5)), s + 1, tiny, scale, tally)
    x20 = load(factor, b + 8)
    l20 = mul(x20, i0)
    x21 = fnma(x20, l10, load(factor, b + 9))
    l21 = mul(x21, i1)
    d2 = fnma(x21, l21, fnma(x20, l20, load(factor, b + 10)))
    i2 = _invert(d2, s + 2, tiny, scale, tally)
    x30 = load(factor, b + 12)
    l30 = mul(x30, i0)
    x31 = fnma(x30, l10, load(factor, b + 13))
    l31 = mul(x31, i1)
    x32 = fnma(x31, l21, fnma(x30, l20, load(factor, b + 14)))
    l32 = mul(x32, i2)
    d3 = fnma(x32, l32, fnma(x31, l31, fnma(x30, l30, load(factor, b + 15))))
    i3 = _invert(d3, s + 3, tiny, scale, tally)
    store(factor, b + 4, l10)
    store(factor, b + 8, l20)
    store(factor, b + 9, l21)
    store(factor, b + 12, l30)
    store(factor, b + 13, l31)
    store(factor, b + 14, l32)
    store(inverse, s, i0)
    store(inverse, s + 1, i1)
    store(inverse, s + 2, i2)
    store(inverse, s + 3, i3)
    for r in range((plan.base[panel + 1] - b - BLOCK) // PANEL):
        x = b + BLOCK + PANEL * r
        x0 = load(factor, x)
        x1 = fnma(x0, l10, load(factor, x + 1))
        x2 = fnma(x1, l21, fnma(x0, l20, load(factor, x + 2)))
        x3 = fnma(x2, l32, fnma(x1, l31, fnma(x0, l30, load(factor, x + 3))))
        store(factor, x + 1, x1)
        store(factor, x + 2, x2)
        store(factor, x + 3, x3)


@compiled(nogil=True, error_model="numpy")
def _invert(pivot, slot, tiny, scale, tally):  # written: tally
    """Count the pivot and return its inverse; zero where it is weak, which leaves its row out."""
    zero, one = full(0.0), full(1.0)
    size, limit = absolute(pivot), mul(load(scale, slot), full(tiny))
    used = pick(size, limit, full(np.inf), pivot)
    store(tally, _NEGATIVE, add(load(tally, _NEGATIVE), pick(zero, used, zero, one)))
    store(tally, _WEAK, add(load(tally, _WEAK), pick(size, limit, one, zero)))
    store(tally, _BROKEN, add(load(tally, _BROKEN), pick(size, full(_LARGEST), zero, one)))
    smallest = load(tally, _SMALLEST)
    store(tally, _SMALLEST, pick(size, smallest, size, smallest))
    return div(one, used)


@compiled(nogil=True, error_model="numpy")
def solve(plan, factor, inverse, rhs, lanes, work, out):
    """Solve for every lane. Read: factor, inverse, rhs (n * lanes); written: work (tiles, slots), out (may be rhs)."""
    for tile in range((lanes + WIDTH - 1) // WIDTH):
        solve_tile(plan, factor[tile], inverse[tile], rhs, lanes, tile, work[tile], out)


@compiled(nogil=True, error_model="numpy")
def solve_tile(plan, factor, inverse, rhs, lanes, tile, work, out):  # written: work (slots), out
    """Solve one tile of rhs (n * lanes)."""
    start = tile * WIDTH
    count = min(WIDTH, lanes - start)
    slot = plan.slot
    for k in range(len(work) // WIDTH):  # phantoms stay zero
        store(work, k, full(0.0))
    for i in range(len(slot)):
        store(work, slot[i], take(rhs, i * lanes + start, count))
    _substitute(plan, factor, inverse, work)
    for i in range(len(slot)):
        put(out, i * lanes + start, count, load(work, slot[i]))


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
        first = row_ptr[panel]
        for r in range(row_ptr[panel + 1] - first):
            row, p = rows[first + r], b + head[panel] + PANEL * r
            y = fnma(x1, load(factor, p + 1), fnma(x0, load(factor, p), load(x, row)))
            store(x, row, fnma(x3, load(factor, p + 3), fnma(x2, load(factor, p + 2), y)))
    for panel in range(panels - 1, -1, -1):
        b, s = base[panel], PANEL * panel
        s0 = s1 = s2 = s3 = full(0.0)
        first = row_ptr[panel]
        for r in range(row_ptr[panel + 1] - first):
            y, p = load(x, rows[first + r]), b + head[panel] + PANEL * r
            s0, s1 = fma(load(factor, p), y, s0), fma(load(factor, p + 1), y, s1)
            s2, s3 = fma(load(factor, p + 2), y, s2), fma(load(factor, p + 3), y, s3)
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
