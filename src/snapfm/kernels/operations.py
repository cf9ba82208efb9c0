"""The nonlinear operations of a program, eight samples at a time: value, slopes and curvature.

`Op` numbers them; `apply`, `slopes` and `bends` are the compiled table, the one place that knows each derivative. The branch
is taken once per pack. Operands stay in registers, and only functions without an instruction of their own go through
memory (SPILL): with arrays of eight for every operand the same table took five times as long.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from snapfm.kernels.compiling import compiled
from snapfm.kernels.packs import WIDTH, absolute, add, div, fnma, full, load, mul, pick, root, store

LANES = WIDTH  # samples of a tile, as in the linear solver
SPILL = 2  # packs behind a program's own cells, for functions called lane by lane


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
_RELU, _MAX, _MIN, _SELECT, _GT, _GE = 14, 15, 16, 17, 18, 19


@compiled(nogil=True, error_model="numpy")
def apply(op, a, b, c, cells, spill):  # a, b, c: packs; packs spill and spill + 1 of cells are overwritten
    """Give the value, a pack."""
    zero, one = full(0.0), full(1.0)
    if op == _MUL:
        return mul(a, b)
    if op == _SQUARE:
        return mul(a, a)
    if op == _SQRT:
        return root(a)
    if op == _DIV:
        return div(a, b)
    if op == _RECIPROCAL:
        return div(one, a)
    if op == _RSQRT:
        return div(one, root(a))
    if op == _ABS:
        return absolute(a)
    if op == _RELU:
        return pick(a, zero, zero, a)
    if op == _MAX:
        return pick(b, a, a, pick(a, a, b, a))  # NaN stays NaN
    if op == _MIN:
        return pick(a, b, a, pick(a, a, b, a))
    if op == _SELECT:
        return pick(absolute(c), zero, b, a)
    if op == _GT:
        return pick(a, b, zero, pick(a, a, pick(b, b, one, zero), zero))
    if op == _GE:
        return pick(b, a, one, zero)
    return _called(op, a, b, cells, spill)


@compiled(nogil=True, error_model="numpy")
def _called(op, a, b, cells, spill):  # functions of the mathematics library, lane by lane; written: two packs of cells
    store(cells, spill, a)
    store(cells, spill + 1, b)
    for lane in range(spill * LANES, (spill + 1) * LANES):
        x = cells[lane]
        if op == _POW:
            cells[lane] = x ** cells[LANES + lane]
        elif op == _EXP:
            cells[lane] = np.exp(x)
        elif op == _LOG:
            cells[lane] = np.log(x)
        elif op == _SIN:
            cells[lane] = np.sin(x)
        elif op == _COS:
            cells[lane] = np.cos(x)
        elif op == _TANH:
            cells[lane] = np.tanh(x)
        else:  # SIGMOID
            cells[lane] = 1.0 / (1.0 + np.exp(-x))
    return load(cells, spill)


@compiled(nogil=True, error_model="numpy")
def slopes(op, a, b, c, value, cells, spill):  # packs; packs spill and spill + 1 of cells are overwritten
    """Give f_a and f_b, two packs."""
    zero, one = full(0.0), full(1.0)
    if op == _MUL:
        return b, a
    if op == _SQUARE:
        return add(a, a), zero
    if op == _SQRT:
        return div(full(0.5), value), zero
    if op == _DIV:
        by_a = div(one, b)
        return by_a, fnma(value, by_a, zero)
    if op == _RECIPROCAL:
        return fnma(value, value, zero), zero
    if op == _RSQRT:
        return div(mul(full(-0.5), value), a), zero
    if op == _ABS:
        return pick(a, zero, pick(zero, a, zero, full(-1.0)), one), zero
    if op == _RELU:
        return pick(a, zero, zero, one), zero
    if op == _MAX:
        chosen = pick(b, a, one, zero)
        return chosen, fnma(one, chosen, one)
    if op == _MIN:
        chosen = pick(a, b, one, zero)
        return chosen, fnma(one, chosen, one)
    if op == _SELECT:
        chosen = pick(absolute(c), zero, zero, one)
        return chosen, fnma(one, chosen, one)
    if op == _EXP:
        return value, zero
    if op == _LOG:
        return div(one, a), zero
    if op == _TANH:
        return fnma(value, value, one), zero
    if op == _SIGMOID:
        return mul(value, fnma(one, value, one)), zero
    if op == _SIN:
        return _called(_COS, a, b, cells, spill), zero
    if op == _COS:
        return fnma(one, _called(_SIN, a, b, cells, spill), zero), zero
    if op == _POW:
        return mul(b, _called(_POW, a, fnma(one, one, b), cells, spill)), zero
    return zero, zero  # comparisons


@compiled(nogil=True, error_model="numpy")
def bends(op, a, b, value, by_a, by_b, cells, spill):  # packs; packs spill and spill + 1 of cells are overwritten
    """Give f_aa, f_ab and f_bb, three packs, from the slopes f_a and f_b."""
    zero, one = full(0.0), full(1.0)
    if op == _MUL:
        return zero, one, zero
    if op == _SQUARE:
        return full(2.0), zero, zero
    if op == _SQRT:
        return div(mul(full(-0.5), by_a), a), zero, zero
    if op == _DIV:
        return zero, fnma(by_a, by_a, zero), mul(full(-2.0), mul(by_b, by_a))
    if op == _RECIPROCAL:
        return mul(full(-2.0), mul(by_a, value)), zero, zero
    if op == _RSQRT:
        return div(mul(full(-1.5), by_a), a), zero, zero
    if op == _EXP:
        return value, zero, zero
    if op == _LOG:
        return fnma(by_a, by_a, zero), zero, zero
    if op == _TANH:
        return mul(full(-2.0), mul(value, by_a)), zero, zero
    if op == _SIGMOID:
        return mul(by_a, fnma(full(2.0), value, one)), zero, zero
    if op in (_SIN, _COS):
        return fnma(one, value, zero), zero, zero
    if op == _POW:
        twice = mul(b, fnma(one, one, b))
        return mul(twice, _called(_POW, a, fnma(full(2.0), one, b), cells, spill)), zero, zero
    return zero, zero, zero
