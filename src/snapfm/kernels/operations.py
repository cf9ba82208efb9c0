"""The nonlinear operations of a program, eight samples at a time: value, slopes and curvature.

`Op` numbers them; `apply` is the compiled table, the one place that knows each derivative. The branch is taken once per
element, the loops over lanes are inside it.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import njit

LANES = 8  # samples of a tile, as in the linear solver


class Op(IntEnum):
    """Operations on a, b and (SELECT) c; comparisons give 0 or 1 and have no slope."""

    MUL = 0
    DIV = 1
    POW = 2  # the exponent b is a constant
    SQUARE = 3
    SQRT = 4
    EXP = 5
    LOG = 6
    SIN = 7
    COS = 8
    TANH = 9
    SIGMOID = 10
    RECIPROCAL = 11
    RSQRT = 12
    ABS = 13
    RELU = 14
    MAX = 15
    MIN = 16
    SELECT = 17
    GT = 18
    GE = 19


FLAT = (Op.GT, Op.GE)  # no slope
STRAIGHT = (Op.ABS, Op.RELU, Op.MAX, Op.MIN, Op.SELECT, Op.GT, Op.GE)  # no curvature

_MUL, _DIV, _POW, _SQUARE, _SQRT, _EXP, _LOG = 0, 1, 2, 3, 4, 5, 6
_SIN, _COS, _TANH, _SIGMOID, _RECIPROCAL, _RSQRT, _ABS = 7, 8, 9, 10, 11, 12, 13
_RELU, _MAX, _MIN, _SELECT, _GT = 14, 15, 16, 17, 18


@njit(cache=True, nogil=True, error_model="numpy")
def apply(op, a, b, c, value):  # read: a, b, c (LANES,); written: value (LANES,)
    """Give the value alone."""
    if op == _MUL:
        for lane in range(LANES):
            value[lane] = a[lane] * b[lane]
    elif op == _SQUARE:
        for lane in range(LANES):
            value[lane] = a[lane] * a[lane]
    elif op == _SQRT:
        for lane in range(LANES):
            value[lane] = np.sqrt(a[lane])
    elif op == _DIV:
        for lane in range(LANES):
            value[lane] = a[lane] / b[lane]
    elif op == _POW:
        for lane in range(LANES):
            value[lane] = a[lane] ** b[lane]
    elif op == _EXP:
        for lane in range(LANES):
            value[lane] = np.exp(a[lane])
    elif op == _LOG:
        for lane in range(LANES):
            value[lane] = np.log(a[lane])
    elif op == _SIN:
        for lane in range(LANES):
            value[lane] = np.sin(a[lane])
    elif op == _COS:
        for lane in range(LANES):
            value[lane] = np.cos(a[lane])
    elif op == _TANH:
        for lane in range(LANES):
            value[lane] = np.tanh(a[lane])
    elif op == _SIGMOID:
        for lane in range(LANES):
            value[lane] = 1.0 / (1.0 + np.exp(-a[lane]))
    elif op == _RECIPROCAL:
        for lane in range(LANES):
            value[lane] = 1.0 / a[lane]
    elif op == _RSQRT:
        for lane in range(LANES):
            value[lane] = 1.0 / np.sqrt(a[lane])
    elif op == _ABS:
        for lane in range(LANES):
            value[lane] = abs(a[lane])
    elif op == _RELU:
        for lane in range(LANES):
            value[lane] = a[lane] if a[lane] > 0.0 or a[lane] != a[lane] else 0.0
    elif op == _MAX:
        for lane in range(LANES):
            value[lane] = a[lane] if a[lane] >= b[lane] or a[lane] != a[lane] else b[lane]
    elif op == _MIN:
        for lane in range(LANES):
            value[lane] = a[lane] if a[lane] <= b[lane] or a[lane] != a[lane] else b[lane]
    elif op == _SELECT:
        for lane in range(LANES):
            value[lane] = a[lane] if c[lane] != 0.0 else b[lane]
    elif op == _GT:
        for lane in range(LANES):
            value[lane] = 1.0 if a[lane] > b[lane] else 0.0
    else:
        for lane in range(LANES):
            value[lane] = 1.0 if a[lane] >= b[lane] else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def slopes(op, a, b, c, value, out):
    """Give f_a, f_b, f_aa, f_ab, f_bb. Read: a, b, c, value (LANES,); written: out (the first 5 · LANES)."""
    fa, fb, faa = out[:LANES], out[LANES : 2 * LANES], out[2 * LANES : 3 * LANES]
    fab, fbb = out[3 * LANES : 4 * LANES], out[4 * LANES : 5 * LANES]
    for lane in range(LANES):
        fb[lane] = 0.0
        faa[lane] = 0.0
        fab[lane] = 0.0
        fbb[lane] = 0.0
    if op == _MUL:
        for lane in range(LANES):
            fa[lane], fb[lane], fab[lane] = b[lane], a[lane], 1.0
    elif op == _SQUARE:
        for lane in range(LANES):
            fa[lane], faa[lane] = 2.0 * a[lane], 2.0
    elif op == _SQRT:
        for lane in range(LANES):
            fa[lane] = 0.5 / value[lane]
            faa[lane] = -0.5 * fa[lane] / a[lane]
    elif op == _DIV:
        for lane in range(LANES):
            fa[lane] = 1.0 / b[lane]
            fb[lane] = -value[lane] * fa[lane]
            fab[lane] = -fa[lane] * fa[lane]
            fbb[lane] = -2.0 * fb[lane] * fa[lane]
    elif op == _POW:
        for lane in range(LANES):
            fa[lane] = b[lane] * a[lane] ** (b[lane] - 1.0)
            faa[lane] = b[lane] * (b[lane] - 1.0) * a[lane] ** (b[lane] - 2.0)
    elif op == _EXP:
        for lane in range(LANES):
            fa[lane] = faa[lane] = value[lane]
    elif op == _LOG:
        for lane in range(LANES):
            fa[lane] = 1.0 / a[lane]
            faa[lane] = -fa[lane] * fa[lane]
    elif op == _SIN:
        for lane in range(LANES):
            fa[lane], faa[lane] = np.cos(a[lane]), -value[lane]
    elif op == _COS:
        for lane in range(LANES):
            fa[lane], faa[lane] = -np.sin(a[lane]), -value[lane]
    elif op == _TANH:
        for lane in range(LANES):
            fa[lane] = 1.0 - value[lane] * value[lane]
            faa[lane] = -2.0 * value[lane] * fa[lane]
    elif op == _SIGMOID:
        for lane in range(LANES):
            fa[lane] = value[lane] * (1.0 - value[lane])
            faa[lane] = fa[lane] * (1.0 - 2.0 * value[lane])
    elif op == _RECIPROCAL:
        for lane in range(LANES):
            fa[lane] = -value[lane] * value[lane]
            faa[lane] = -2.0 * fa[lane] * value[lane]
    elif op == _RSQRT:
        for lane in range(LANES):
            fa[lane] = -0.5 * value[lane] / a[lane]
            faa[lane] = -1.5 * fa[lane] / a[lane]
    elif op == _ABS:
        for lane in range(LANES):
            fa[lane] = 1.0 if a[lane] > 0.0 else -1.0 if a[lane] < 0.0 else 0.0
    elif op == _RELU:
        for lane in range(LANES):
            fa[lane] = 1.0 if a[lane] > 0.0 else 0.0
    elif op == _MAX:
        for lane in range(LANES):
            fa[lane] = 1.0 if a[lane] >= b[lane] else 0.0
            fb[lane] = 1.0 - fa[lane]
    elif op == _MIN:
        for lane in range(LANES):
            fa[lane] = 1.0 if a[lane] <= b[lane] else 0.0
            fb[lane] = 1.0 - fa[lane]
    elif op == _SELECT:
        for lane in range(LANES):
            fa[lane] = 1.0 if c[lane] != 0.0 else 0.0
            fb[lane] = 1.0 - fa[lane]
    else:
        for lane in range(LANES):
            fa[lane] = 0.0
