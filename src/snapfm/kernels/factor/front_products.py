"""Dense products of row groups of a panel: the inner loop of kernels.factor.fronts.

Compiled here rather than left to a BLAS: the one inside SciPy starts threads of its own, and their number is a setting of the
whole process. Sixteen packs are added up in registers. May import kernels.numba.packs only.
"""

from __future__ import annotations

from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import WIDTH, fma, full, load, spread, store


@compiled(nogil=True, error_model="numpy")
def multiply_two(factor, x, y, count, scaled, s, out, o, p, fresh):  # written: out
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
def multiply_one(factor, x, count, scaled, s, out, o, fresh):  # written: out
    """Add one row group times eight rows of `scaled`; see multiply_two."""
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
