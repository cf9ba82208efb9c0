"""Numeric LDLᵀ without pivoting of one large matrix, panel by panel with dense arithmetic, and solves with the factor.

Reads Supernodes and the values of one lane. Right-looking: a panel is eliminated, then its products are added to the later
panels they belong to, eight columns at a time, so that no memory is needed beside the factor. All arithmetic is in an order fixed
by the pattern; a bad pivot is counted, never raised. Every row of a panel holds X = L D (unscaled), as in kernels.ldl: a
pivot that is left out (D⁻¹ = 0) leaves finite numbers. May import kernels.packs, kernels.supernodes and kernels.ldl only.

The products are compiled here rather than left to a BLAS: the one inside SciPy starts threads of its own, and their number
is a setting of the whole process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from snapfm.arrays import Index, Values
from snapfm.kernels.compiling import compiled
from snapfm.kernels.ldl import FACTORED, NONFINITE, SINGULAR
from snapfm.kernels.packs import WIDTH, add, fma, full, load, load_at, mul, spread, store, store_at
from snapfm.kernels.supernodes import WIDEST, Supernodes

# Groups of eight columns whose products are computed side by side: each row group is then read once for all of them.
COLUMNS = 4
_LARGEST = float(np.finfo(np.float64).max)
_BLOCK = WIDTH * WIDTH


class Scratch(NamedTuple):
    """Memory of one factorization and its solves, beside the factor: written by every call, read by none."""

    scale: Values  # (n,)
    scaled: Values  # -X D⁻¹ of the columns under way
    strip: Values  # their products; in a solve, sums and rows of one panel
    reach: Index  # where the rows of one panel lie in another
    x: Values  # (n,) and a pack
    tally: Values  # (3,) negative pivots, weak ones, the smallest |pivot|


def scratch(plan: Supernodes, aligned: Callable[[int], Values]) -> Scratch:
    """Allocate with a function that returns float64 on a cache line."""
    size, groups = len(plan.perm), plan.longest // WIDTH + 1
    return Scratch(
        aligned(size), aligned(COLUMNS * WIDEST * WIDTH), aligned((COLUMNS * groups + 1) * _BLOCK),
        np.empty(groups * WIDTH, np.int64), aligned(size + WIDTH), aligned(3),
    )  # fmt: skip


@compiled(nogil=True, error_model="numpy")
def factorize(
    plan, values, lane, signed, tiny, factor, inverse, room, stop
):  # read: plan, values (nnz, lanes), stop; written: factor, inverse, room
    """Factorize one lane; return its status. tally becomes: negative pivots, weak ones, the smallest |pivot|.

    Ends early, without a factor, once stop[0] is not zero. A pivot is weak if it is at most tiny * its scale; its row is
    left out of the solution.
    """
    scale, scaled, strip, reach, tally = room.scale, room.scaled, room.strip, room.reach, room.tally
    tally[0], tally[1], tally[2] = 0.0, 0.0, np.inf
    _assemble(plan.entry_to, values, lane, factor)
    _scale(plan.entry_row, plan.entry_column, values, lane, signed, inverse, scale)
    broken = False
    first, base, row_ptr = plan.first, plan.base, plan.row_ptr
    for panel in range(len(first) - 1):
        if stop[0] != 0:
            return NONFINITE
        width, below = first[panel + 1] - first[panel], row_ptr[panel + 1] - row_ptr[panel]
        if _eliminate(base[panel], first[panel], width, below, tiny, factor, inverse, scale, scaled, strip, tally):
            broken = True
        if below > 0:
            _update(
                panel, first, base, row_ptr, plan.rows, plan.owner, factor, inverse, scaled, strip, reach
            )  # fmt: skip
    if broken:
        return NONFINITE
    return SINGULAR if tally[1] > 0.0 else FACTORED


@compiled(nogil=True, error_model="numpy")
def _assemble(entry_to, values, lane, factor):  # written: factor
    factor[:] = 0.0
    for p in range(len(entry_to)):
        factor[entry_to[p]] = values[p, lane]


@compiled(nogil=True, error_model="numpy")
def _scale(row, column, values, lane, signed, inverse, scale):
    """Set the scale of every pivot, see kernels.ldl. Written: scale; inverse (1 / |a_jj| for now)."""
    for p in range(len(row)):
        if row[p] == column[p]:
            size = abs(values[p, lane])
            scale[row[p]] = size
            inverse[row[p]] = 0.0 if size <= 0.0 else 1.0 / size
    if signed:
        for p in range(len(row)):
            if row[p] != column[p]:
                gain = values[p, lane] * values[p, lane] * inverse[column[p]]
                if gain > scale[row[p]]:
                    scale[row[p]] = gain


@compiled(nogil=True, error_model="numpy")
def _eliminate(
    base, first, width, below, tiny, factor, inverse, scale, scaled, strip, tally
):  # written: factor, inverse, scaled, strip, tally
    """Factorize one panel in place, eight columns at a time; return whether a pivot is not finite.

    Before its elimination a block of columns receives the products of all earlier columns of the panel.
    """
    groups = (width + WIDTH - 1) // WIDTH + (below + WIDTH - 1) // WIDTH
    broken = False
    for block in range((width + WIDTH - 1) // WIDTH):
        done = WIDTH * block
        count = min(WIDTH, width - done)
        if done > 0:
            _negate_scaled(factor, base + block * width, inverse, first, done, scaled, 0)
            g = block
            if count == WIDTH:
                while g + 2 <= groups:
                    x = base + g * width
                    _multiply_two(factor, x, x + width, done, scaled, 0, factor, x + done, x + width + done, False)
                    g += 2
                if g < groups:
                    x = base + g * width
                    _multiply_one(factor, x, done, scaled, 0, factor, x + done, False)
            else:
                while g < groups:
                    x = base + g * width
                    for j in range(count):
                        store(strip, j, load(factor, x + done + j))
                    _multiply_one(factor, x, done, scaled, 0, strip, 0, False)
                    for j in range(count):
                        store(factor, x + done + j, load(strip, j))
                    g += 1
        # The block on the diagonal, entry by entry; scaled becomes -L of the block.
        x = (base + block * width + done) * WIDTH
        for j in range(count):
            place = first + done + j
            pivot = factor[x + j * WIDTH + j]
            size = abs(pivot)
            if size <= tally[2]:
                tally[2] = size
            if size <= scale[place] * tiny:
                tally[1] += 1.0
                inverted = 0.0
            else:
                inverted = 1.0 / pivot
                if pivot < 0.0:
                    tally[0] += 1.0
            if not size <= _LARGEST:
                broken = True
            inverse[place] = inverted
            for i in range(j + 1, count):
                scaled[i * WIDTH + j] = -factor[x + j * WIDTH + i] * inverted
            for k in range(j + 1, count):
                by = scaled[k * WIDTH + j]
                for i in range(k, count):
                    factor[x + k * WIDTH + i] += factor[x + j * WIDTH + i] * by
        for g in range(block + 1, groups):
            x = base + g * width + done
            for k in range(1, count):
                column = load(factor, x + k)
                for j in range(k):
                    column = fma(load(factor, x + j), spread(scaled, k * WIDTH + j), column)
                store(factor, x + k, column)
    return broken


@compiled(nogil=True, error_model="numpy")
def _negate_scaled(factor, x, inverse, first, count, scaled, at):  # written: scaled
    """-X D⁻¹ of a group of rows, column by column, from pack `at` of `scaled` on."""
    for k in range(count):
        store(scaled, at + k, mul(load(factor, x + k), full(-inverse[first + k])))


@compiled(nogil=True, error_model="numpy")
def _update(
    panel, first, base, row_ptr, rows, owner, factor, inverse, scaled, strip, reach
):  # written: factor (later panels), scaled, strip, reach
    """Add -X D⁻¹ Xᵀ of a panel to the panels that its rows belong to."""
    width, p = first[panel + 1] - first[panel], row_ptr[panel]
    below = row_ptr[panel + 1] - p
    groups = (below + WIDTH - 1) // WIDTH
    x = base[panel] + (width + WIDTH - 1) // WIDTH * width
    target = -1
    for start in range(0, groups, COLUMNS):
        end = min(start + COLUMNS, groups)
        for c in range(start, end):
            _negate_scaled(factor, x + c * width, inverse, first[panel], width, scaled, (c - start) * width)
        # Products of the rows from `start` on: column group by column group, `groups` tiles of eight packs each.
        g = start
        while g + 2 <= groups:
            for c in range(start, min(end, g + 2)):
                out = ((c - start) * groups + g) * WIDTH
                here = x + g * width
                _multiply_two(
                    factor, here, here + width, width, scaled, (c - start) * width, strip, out, out + WIDTH, True
                )
            g += 2
        if g < groups:
            for c in range(start, end):
                out = ((c - start) * groups + g) * WIDTH
                _multiply_one(factor, x + g * width, width, scaled, (c - start) * width, strip, out, True)
        for c in range(start, end):
            tiles = (c - start) * groups * WIDTH
            for j in range(min(WIDTH, below - c * WIDTH)):
                row = rows[p + c * WIDTH + j]
                if owner[row] != target:
                    target = owner[row]
                    _reach(c * WIDTH + j, below, p, target, first, base, row_ptr, rows, reach)
                column = WIDTH * (row - first[target])
                for i in range(c * WIDTH + j, min(below, (c + 1) * WIDTH)):
                    factor[reach[i] + column] += strip[(tiles + c * WIDTH + j) * WIDTH + i - c * WIDTH]
                _add(c + 1, below, reach, column, factor, strip, tiles + j)


@compiled(nogil=True, error_model="numpy")
def _reach(start, below, p, target, first, base, row_ptr, rows, reach):  # written: reach (from `start` on)
    """Where the rows of a panel, from `start` on, lie in the first column of a later panel."""
    width = first[target + 1] - first[target]
    q, pivots = row_ptr[target], (width + WIDTH - 1) // WIDTH * WIDTH
    for i in range(start, below):
        row = rows[p + i]
        at = row - first[target]
        if at >= width:
            while rows[q] < row:
                q += 1
            at = pivots + q - row_ptr[target]
        reach[i] = (base[target] + at // WIDTH * width) * WIDTH + at % WIDTH


@compiled(nogil=True, error_model="numpy")
def _add(group, below, reach, column, factor, strip, tiles):  # written: factor
    """Add one column of products, from a row group on."""
    whole = below // WIDTH
    for g in range(group, whole):
        i, t = g * WIDTH, tiles + g * WIDTH
        if reach[i + WIDTH - 1] - reach[i] == WIDTH - 1:  # side by side: neighbors, since places ascend
            store_at(factor, reach[i] + column, add(load_at(factor, reach[i] + column), load(strip, t)))
        else:
            for lane in range(WIDTH):
                factor[reach[i + lane] + column] += strip[t * WIDTH + lane]
    if group <= whole:
        for i in range(max(whole, group) * WIDTH, below):
            factor[reach[i] + column] += strip[(tiles + whole * WIDTH) * WIDTH + i - whole * WIDTH]


@compiled(nogil=True, error_model="numpy")
def _multiply_two(factor, x, y, count, scaled, s, out, o, p, fresh):  # written: out
    """Add two row groups (packs x and y on) times eight rows of `scaled` (pack s on) to `out`; instead of it if `fresh`."""
    if fresh:
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = full(0.0)
        b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = full(0.0)
    else:
        a0, a1, a2, a3 = load(out, o), load(out, o + 1), load(out, o + 2), load(out, o + 3)
        a4, a5, a6, a7 = load(out, o + 4), load(out, o + 5), load(out, o + 6), load(out, o + 7)
        b0, b1, b2, b3 = load(out, p), load(out, p + 1), load(out, p + 2), load(out, p + 3)
        b4, b5, b6, b7 = load(out, p + 4), load(out, p + 5), load(out, p + 6), load(out, p + 7)
    t = s * WIDTH
    for k in range(count):
        a, b = load(factor, x + k), load(factor, y + k)
        c = spread(scaled, t)
        a0, b0 = fma(a, c, a0), fma(b, c, b0)
        c = spread(scaled, t + 1)
        a1, b1 = fma(a, c, a1), fma(b, c, b1)
        c = spread(scaled, t + 2)
        a2, b2 = fma(a, c, a2), fma(b, c, b2)
        c = spread(scaled, t + 3)
        a3, b3 = fma(a, c, a3), fma(b, c, b3)
        c = spread(scaled, t + 4)
        a4, b4 = fma(a, c, a4), fma(b, c, b4)
        c = spread(scaled, t + 5)
        a5, b5 = fma(a, c, a5), fma(b, c, b5)
        c = spread(scaled, t + 6)
        a6, b6 = fma(a, c, a6), fma(b, c, b6)
        c = spread(scaled, t + 7)
        a7, b7 = fma(a, c, a7), fma(b, c, b7)
        t += WIDTH
    store(out, o, a0)
    store(out, o + 1, a1)
    store(out, o + 2, a2)
    store(out, o + 3, a3)
    store(out, o + 4, a4)
    store(out, o + 5, a5)
    store(out, o + 6, a6)
    store(out, o + 7, a7)
    store(out, p, b0)
    store(out, p + 1, b1)
    store(out, p + 2, b2)
    store(out, p + 3, b3)
    store(out, p + 4, b4)
    store(out, p + 5, b5)
    store(out, p + 6, b6)
    store(out, p + 7, b7)


@compiled(nogil=True, error_model="numpy")
def _multiply_one(factor, x, count, scaled, s, out, o, fresh):  # written: out
    """Add one row group times eight rows of `scaled`; see _multiply_two."""
    if fresh:
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = full(0.0)
    else:
        a0, a1, a2, a3 = load(out, o), load(out, o + 1), load(out, o + 2), load(out, o + 3)
        a4, a5, a6, a7 = load(out, o + 4), load(out, o + 5), load(out, o + 6), load(out, o + 7)
    t = s * WIDTH
    for k in range(count):
        a = load(factor, x + k)
        a0, a1 = fma(a, spread(scaled, t), a0), fma(a, spread(scaled, t + 1), a1)
        a2, a3 = fma(a, spread(scaled, t + 2), a2), fma(a, spread(scaled, t + 3), a3)
        a4, a5 = fma(a, spread(scaled, t + 4), a4), fma(a, spread(scaled, t + 5), a5)
        a6, a7 = fma(a, spread(scaled, t + 6), a6), fma(a, spread(scaled, t + 7), a7)
        t += WIDTH
    store(out, o, a0)
    store(out, o + 1, a1)
    store(out, o + 2, a2)
    store(out, o + 3, a3)
    store(out, o + 4, a4)
    store(out, o + 5, a5)
    store(out, o + 6, a6)
    store(out, o + 7, a7)


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
            a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = full(0.0)
            for g in range(block + 1, pivots + groups):
                y = load_at(x, first + g * WIDTH) if g < pivots else load(strip, WIDTH + g - pivots)
                at = base + g * width + done
                a0, a1 = fma(load(factor, at), y, a0), fma(load(factor, at + 1), y, a1)
                a2, a3 = fma(load(factor, at + 2), y, a2), fma(load(factor, at + 3), y, a3)
                a4, a5 = fma(load(factor, at + 4), y, a4), fma(load(factor, at + 5), y, a5)
                a6, a7 = fma(load(factor, at + 6), y, a6), fma(load(factor, at + 7), y, a7)
            store(strip, 0, a0)
            store(strip, 1, a1)
            store(strip, 2, a2)
            store(strip, 3, a3)
            store(strip, 4, a4)
            store(strip, 5, a5)
            store(strip, 6, a6)
            store(strip, 7, a7)
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
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = full(0.0)
        for k in range(first, end):
            z = load(x, k)
            a0, a1 = fma(spread(factor, at), z, a0), fma(spread(factor, at + 1), z, a1)
            a2, a3 = fma(spread(factor, at + 2), z, a2), fma(spread(factor, at + 3), z, a3)
            a4, a5 = fma(spread(factor, at + 4), z, a4), fma(spread(factor, at + 5), z, a5)
            a6, a7 = fma(spread(factor, at + 6), z, a6), fma(spread(factor, at + 7), z, a7)
            at += WIDTH
        _add_row(rows, r, q, x, a0)
        _add_row(rows, r + 1, q, x, a1)
        _add_row(rows, r + 2, q, x, a2)
        _add_row(rows, r + 3, q, x, a3)
        _add_row(rows, r + 4, q, x, a4)
        _add_row(rows, r + 5, q, x, a5)
        _add_row(rows, r + 6, q, x, a6)
        _add_row(rows, r + 7, q, x, a7)
        x_below += width
    for k in range(first, end):
        store(x, k, mul(load(x, k), full(-1.0)))


@compiled(nogil=True, error_model="numpy")
def _add_row(rows, r, end, x, value):  # written: x
    if r < end:
        store(x, rows[r], add(load(x, rows[r]), value))


@compiled(nogil=True, error_model="numpy")
def _backward_eight(base, first, end, p, q, rows, factor, inverse, x):  # written: x
    """x_j becomes x_j - Σ X_ij x_i / d_j over the rows i behind it, eight columns at a time."""
    width = end - first
    pivots = (width + WIDTH - 1) // WIDTH
    for block in range(pivots - 1, -1, -1):
        done = block * WIDTH
        count = min(WIDTH, width - done)
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = full(0.0)
        if count == WIDTH:
            for i in range(done + WIDTH, width + q - p):
                local = i if i < width else pivots * WIDTH + i - width
                row = first + i if i < width else rows[p + i - width]
                at = (base + local // WIDTH * width + done) * WIDTH + local % WIDTH
                y = load(x, row)
                a0, a1 = fma(spread(factor, at), y, a0), fma(spread(factor, at + 8), y, a1)
                a2, a3 = fma(spread(factor, at + 16), y, a2), fma(spread(factor, at + 24), y, a3)
                a4, a5 = fma(spread(factor, at + 32), y, a4), fma(spread(factor, at + 40), y, a5)
                a6, a7 = fma(spread(factor, at + 48), y, a6), fma(spread(factor, at + 56), y, a7)
            _subtract(inverse, first + done, x, a0)
            _subtract(inverse, first + done + 1, x, a1)
            _subtract(inverse, first + done + 2, x, a2)
            _subtract(inverse, first + done + 3, x, a3)
            _subtract(inverse, first + done + 4, x, a4)
            _subtract(inverse, first + done + 5, x, a5)
            _subtract(inverse, first + done + 6, x, a6)
            _subtract(inverse, first + done + 7, x, a7)
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
