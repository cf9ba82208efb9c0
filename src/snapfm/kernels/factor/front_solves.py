"""Solves with the factor of kernels.factor.fronts: one right-hand side in packs of rows, or eight right-hand sides at once.

Read: Supernodes, the panels and D⁻¹; allocates nothing. May import kernels.numba.packs only.
"""

from __future__ import annotations

from snapfm.kernels.numba import packs
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import WIDTH, add, fma, full, load, load_at, mul, spread, store, store_at

_BLOCK = WIDTH * WIDTH


@compiled(nogil=True, error_model="numpy")
def solve(plan, factor, inverse, rhs, lane, room, out):
    """Solve one lane, eight rows at a time. Read: rhs (n, lanes); written: room, out (may be rhs)."""
    x, strip = room.x, room.strip
    first, base, row_ptr, rows = plan.first, plan.base, plan.row_ptr, plan.rows
    size, panels = len(plan.perm), len(first) - 1
    for i in range(size):
        x[i] = rhs[plan.perm[i], lane]
    x[size:] = 0.0
    for k in range(panels):
        _forward(base[k], first[k], first[k + 1], row_ptr[k], row_ptr[k + 1], rows, factor, inverse, x, strip)
    for k in range(panels - 1, -1, -1):
        _backward(base[k], first[k], first[k + 1], row_ptr[k], row_ptr[k + 1], rows, factor, inverse, x, strip)
    for i in range(size):
        out[plan.perm[i], lane] = x[i]


@compiled(nogil=True, error_model="numpy")
def _forward(base, first, end, p, q, rows, factor, inverse, x, strip):  # written: x, strip
    """Eliminate a panel's pivots from the right-hand side below; its own become D⁻¹ L⁻¹ x.

    A group that is not full ends in rows of zeros, which add nothing to the entries of x beyond it.
    """
    width = end - first
    pivots = (width + WIDTH - 1) // WIDTH
    for block in range(pivots):
        done = block * WIDTH
        count = min(WIDTH, width - done)
        at = (base + block * width + done) * WIDTH
        for j in range(count):
            value = -x[first + done + j] * inverse[first + done + j]
            x[first + done + j] = value
            for i in range(j + 1, count):
                x[first + done + i] += factor[at + j * WIDTH + i] * value
        for g in range(block + 1, pivots):
            total = load_at(x, first + g * WIDTH)
            for j in range(count):
                total = fma(load(factor, base + g * width + done + j), spread(x, first + done + j), total)
            store_at(x, first + g * WIDTH, total)
    here, r = base + pivots * width, p
    while r < q:
        if r + 3 * WIDTH < q:  # four groups: their sums do not wait for each other
            a = b = c = d = full(0.0)
            for k in range(width):
                value = spread(x, first + k)
                a, b = fma(load(factor, here + k), value, a), fma(load(factor, here + width + k), value, b)
                c = fma(load(factor, here + 2 * width + k), value, c)
                d = fma(load(factor, here + 3 * width + k), value, d)
            store(strip, 0, a)
            store(strip, 1, b)
            store(strip, 2, c)
            store(strip, 3, d)
            groups = 4
        else:
            a = full(0.0)
            for k in range(width):
                a = fma(load(factor, here + k), spread(x, first + k), a)
            store(strip, 0, a)
            groups = 1
        for i in range(min(groups * WIDTH, q - r)):
            x[rows[r + i]] += strip[i]
        here += groups * width
        r += groups * WIDTH
    for k in range(first, end):
        x[k] = -x[k]


@compiled(nogil=True, error_model="numpy")
def _backward(base, first, end, p, q, rows, factor, inverse, x, strip):  # written: x, strip
    """x_j becomes x_j - Σ X_ij x_i / d_j over the rows i behind it, eight columns at a time."""
    width = end - first
    pivots, groups = (width + WIDTH - 1) // WIDTH, (q - p + WIDTH - 1) // WIDTH
    below = _BLOCK  # strip: sums of eight columns, then the rows below
    if groups > 0:
        store(strip, below // WIDTH + groups - 1, full(0.0))
    for r in range(q - p):
        strip[below + r] = x[rows[p + r]]
    for block in range(pivots - 1, -1, -1):
        done = block * WIDTH
        count = min(WIDTH, width - done)
        if count == WIDTH:
            totals = packs.eight(full(0.0))
            for g in range(block + 1, pivots + groups):
                y = load_at(x, first + g * WIDTH) if g < pivots else load(strip, WIDTH + g - pivots)
                totals = packs.add_products(factor, base + g * width + done, y, totals)
            packs.store_eight(strip, 0, totals)
        else:  # the last block: nothing behind it but the rows below
            for j in range(count):
                a0 = full(0.0)
                for g in range(groups):
                    a0 = fma(load(factor, base + (pivots + g) * width + done + j), load(strip, WIDTH + g), a0)
                store(strip, j, a0)
        for j in range(count - 1, -1, -1):
            at = (base + block * width + done + j) * WIDTH
            total = 0.0
            for lane in range(WIDTH):
                total += strip[j * WIDTH + lane]
            for i in range(j + 1, count):
                total += factor[at + i] * x[first + done + i]
            x[first + done + j] -= total * inverse[first + done + j]


@compiled(nogil=True, error_model="numpy")
def solve_eight(plan, factor, inverse, rhs, start, x, out):
    """Solve eight right-hand sides of one matrix at a time; zeros stand for absent ones, and they do not interact.

    Read: rhs (b, n) from row `start` on; written: x (n packs), out (b, n; may be rhs).
    """
    first, base, row_ptr, rows = plan.first, plan.base, plan.row_ptr, plan.rows
    size, panels, count = len(plan.perm), len(first) - 1, min(WIDTH, len(rhs) - start)
    x[:] = 0.0
    for side in range(count):
        for i in range(size):
            x[i * WIDTH + side] = rhs[start + side, plan.perm[i]]
    for k in range(panels):
        _forward_eight(base[k], first[k], first[k + 1], row_ptr[k], row_ptr[k + 1], rows, factor, inverse, x)
    for k in range(panels - 1, -1, -1):
        _backward_eight(base[k], first[k], first[k + 1], row_ptr[k], row_ptr[k + 1], rows, factor, inverse, x)
    for side in range(count):
        for i in range(size):
            out[start + side, plan.perm[i]] = x[i * WIDTH + side]


@compiled(nogil=True, error_model="numpy")
def _forward_eight(base, first, end, p, q, rows, factor, inverse, x):  # written: x
    """Eliminate a panel's pivots from the right-hand sides below; its own become D⁻¹ L⁻¹ x."""
    width = end - first
    for j in range(width):
        value = load(x, first + j)
        at = (base + j // WIDTH * width) * WIDTH + j % WIDTH
        for k in range(j):
            value = fma(spread(factor, at + k * WIDTH), load(x, first + k), value)
        # Held as -D⁻¹ x, so that what follows only adds.
        store(x, first + j, mul(value, full(-inverse[first + j])))
    x_below = base + (width + WIDTH - 1) // WIDTH * width
    for r in range(p, q, WIDTH):
        at = x_below * WIDTH
        totals = packs.eight(full(0.0))
        for k in range(first, end):
            totals = packs.add_multiples(factor, at, 1, load(x, k), totals)
            at += WIDTH
        for i in range(min(WIDTH, q - r)):
            store(x, rows[r + i], add(load(x, rows[r + i]), totals[i]))
        x_below += width
    for k in range(first, end):
        store(x, k, mul(load(x, k), full(-1.0)))


@compiled(nogil=True, error_model="numpy")
def _backward_eight(base, first, end, p, q, rows, factor, inverse, x):  # written: x
    """x_j becomes x_j - Σ X_ij x_i / d_j over the rows i behind it, eight columns at a time."""
    width = end - first
    pivots = (width + WIDTH - 1) // WIDTH
    for block in range(pivots - 1, -1, -1):
        done = block * WIDTH
        count = min(WIDTH, width - done)
        if count == WIDTH:
            totals = packs.eight(full(0.0))
            for i in range(done + WIDTH, width + q - p):
                local = i if i < width else pivots * WIDTH + i - width
                row = first + i if i < width else rows[p + i - width]
                at = (base + local // WIDTH * width + done) * WIDTH + local % WIDTH
                totals = packs.add_multiples(factor, at, WIDTH, load(x, row), totals)
            for j in range(WIDTH):
                _subtract(inverse, first + done + j, x, totals[j])
        else:  # the last block: nothing behind it but the rows below
            for j in range(count):
                at = base + pivots * width + done + j
                a0 = full(0.0)
                for r in range(q - p):
                    a0 = fma(spread(factor, (at + r // WIDTH * width) * WIDTH + r % WIDTH), load(x, rows[p + r]), a0)
                _subtract(inverse, first + done + j, x, a0)
        for j in range(count - 1, -1, -1):
            at = (base + block * width + done + j) * WIDTH
            a0 = full(0.0)
            for i in range(j + 1, count):
                a0 = fma(spread(factor, at + i), load(x, first + done + i), a0)
            _subtract(inverse, first + done + j, x, a0)


@compiled(nogil=True, error_model="numpy")
def _subtract(inverse, place, x, value):  # written: x
    store(x, place, fma(value, full(-inverse[place]), load(x, place)))
