"""Soft equalities of a barrier: h − δλ = 0, with δ in step with the barrier parameter (math.md, "Soft barrier").

A quadratic penalty that hardens as the barrier falls: far from an answer the rows need not hold to first order. Used by
kernels.interior, which it must not import.
"""

from __future__ import annotations

from snapfm.kernels import layout
from snapfm.kernels.layout import section, table
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import residual_at


@compiled(nogil=True, error_model="numpy")
def rows_at(code, frame, tile, delta):  # written: cells, rows, residual
    """Evaluate the rows; equalities are h − δλ, so that they need not hold before the barrier has fallen."""
    residual_at(code, frame, tile)
    residual, lam = section(tile, layout.RESIDUAL), section(tile, layout.MULTIPLIER)
    equality = table(frame, layout.EQUALITY)
    for r in range(len(equality)):
        if equality[r] == 1:
            for lane in range(LANES):
                i = r * LANES + lane
                residual[i] -= delta[lane] * lam[i]


@compiled(nogil=True, error_model="numpy")
def mean_square(tile, size):  # written: size
    """Compute per lane the mean square of the rows' sizes, the unit of δ."""
    row_size = section(tile, layout.ROW_SIZE)
    size[:] = 0.0
    for i in range(len(row_size)):
        size[i % LANES] += row_size[i] ** 2
    for lane in range(LANES):
        size[lane] /= max(len(row_size) // LANES, 1)


@compiled(nogil=True, error_model="numpy")
def harden(frame, tile, lane, delta, new):  # written: delta and residual of one lane
    """Lower δ of a lane."""
    residual, lam = section(tile, layout.RESIDUAL), section(tile, layout.MULTIPLIER)
    equality = table(frame, layout.EQUALITY)
    for r in range(len(equality)):
        if equality[r] == 1:
            residual[r * LANES + lane] += (delta[lane] - new) * lam[r * LANES + lane]
    delta[lane] = new


@compiled(nogil=True, error_model="numpy")
def balance(frame, tile, lane, delta):  # written: multiplier and residual of one lane
    """Set the multipliers of soft rows to h/δ, those of the penalty at this point: a step then lowers it or is too long.

    Rows that share eliminated unknowns keep theirs: h depends on all of these multipliers together.
    """
    residual, lam = section(tile, layout.RESIDUAL), section(tile, layout.MULTIPLIER)
    equality, ptr = table(frame, layout.EQUALITY), table(frame, layout.GRAM_PTR)
    for r in range(len(equality)):
        i = r * LANES + lane
        if equality[r] == 1 and ptr[r] == ptr[r + 1]:
            lam[i] += residual[i] / delta
            residual[i] = 0.0
