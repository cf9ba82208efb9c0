"""Numeric LDLᵀ without pivoting of one large matrix, panel by panel with dense arithmetic.

Reads Supernodes and the values of one lane. Right-looking: a panel is eliminated, then its products are added to the later
panels they belong to, eight columns at a time, so that no memory is needed beside the factor. All arithmetic is in an order fixed
by the pattern; a bad pivot is counted, never raised. Every row of a panel holds X = L D (unscaled), as in kernels.factor.ldl: a
pivot that is left out (D⁻¹ = 0) leaves finite numbers. kernels.factor.front_solves solves with the factor. May import
kernels.numba.packs, kernels.factor.supernodes and kernels.factor.ldl only.

The dense products are compiled here rather than left to a BLAS: the one inside SciPy starts threads of its own, and their number
is a setting of the whole process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from snapfm.arrays import Index, Values
from snapfm.kernels.factor.ldl import FACTORED, NONFINITE, SINGULAR
from snapfm.kernels.factor.supernodes import WIDEST, Supernodes
from snapfm.kernels.numba import packs
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import WIDTH, add, fma, full, load, load_at, mul, spread, store, store_at

# Groups of eight columns whose products are computed side by side: each row group is then read once for all of them.
COLUMNS = 4
_LARGEST = float(np.finfo(np.float64).max)
_BLOCK = WIDTH * WIDTH


class FrontScratch(NamedTuple):
    """Memory of one factorization and its solves, beside the factor: written by every call, read by none."""

    scale: Values  # (n,)
    scaled: Values  # -X D⁻¹ of the columns under way
    strip: Values  # their products; in a solve, sums and rows of one panel
    reach: Index  # where the rows of one panel lie in another
    x: Values  # (n,) and a pack
    tally: Values  # (3,) negative pivots, weak ones, the smallest |pivot|


def scratch(plan: Supernodes, aligned: Callable[[int], Values]) -> FrontScratch:
    """Allocate with a function that returns float64 on a cache line."""
    size, groups = len(plan.perm), plan.longest // WIDTH + 1
    return FrontScratch(
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
    """Set the scale of every pivot, see kernels.factor.ldl. Written: scale; inverse (1 / |a_jj| for now)."""
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
    a = packs.eight(full(0.0)) if fresh else packs.load_eight(out, o)
    b = packs.eight(full(0.0)) if fresh else packs.load_eight(out, p)
    for k in range(count):
        a = packs.add_multiples(scaled, (s + k) * WIDTH, 1, load(factor, x + k), a)
        b = packs.add_multiples(scaled, (s + k) * WIDTH, 1, load(factor, y + k), b)
    packs.store_eight(out, o, a)
    packs.store_eight(out, p, b)


@compiled(nogil=True, error_model="numpy")
def _multiply_one(factor, x, count, scaled, s, out, o, fresh):  # written: out
    """Add one row group times eight rows of `scaled`; see _multiply_two."""
    a = packs.eight(full(0.0)) if fresh else packs.load_eight(out, o)
    for k in range(count):
        a = packs.add_multiples(scaled, (s + k) * WIDTH, 1, load(factor, x + k), a)
    packs.store_eight(out, o, a)
