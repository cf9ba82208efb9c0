"""Forward and backward substitution with the factors of one tile, in whichever precision they are.

Consumes a Schedule and what kernels.ldl wrote; `x` has the precision of the factors, packs and all. No lane touches
another. May import kernels.packs and kernels.panels only.
"""

from __future__ import annotations

from snapfm.kernels.compiling import compiled
from snapfm.kernels.packs import fma, fnma, full_like, load, mul, store
from snapfm.kernels.panels import BLOCK, PANEL


@compiled(nogil=True, error_model="numpy")
def substitute(plan, factor, inverse, x):  # written: x
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
        s0 = s1 = s2 = s3 = full_like(x, 0.0)
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
