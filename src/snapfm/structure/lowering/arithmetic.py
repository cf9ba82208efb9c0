"""Arithmetic and functions of one number: what is linear is multiplied out, the rest becomes one operation an element."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.fx import Node

from snapfm.kernels.operations import Op
from snapfm.structure.forms import Form, added
from snapfm.structure.lowering.listing import Unlowerable
from snapfm.structure.lowering.table import REAL, Lowered, lowers
from snapfm.structure.lowering.walk import Walk


def _add(sign: float) -> Lowered:
    def lowered(walk: Walk, node: Node) -> Form:
        given: Any = node.kwargs.get("alpha", 1)
        alpha = sign * float(given)
        left, right = walk.spread(node.args[0], node), walk.spread(node.args[1], node)
        return added(left, right.scaled(np.full(right.size, alpha)), walk.listing.cells)

    return lowered


lowers("add")(_add(1.0))
lowers("sub")(_add(-1.0))


@lowers("rsub")
def _rsub(walk: Walk, node: Node) -> Form:
    given: Any = node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1)
    alpha = float(given)
    left, right = walk.spread(node.args[0], node), walk.spread(node.args[1], node)
    return added(right, left.scaled(np.full(left.size, -alpha)), walk.listing.cells)


@lowers("neg")
def _neg(walk: Walk, node: Node) -> Form:
    form = walk.operand(node.args[0])
    return form.scaled(np.full(form.size, -1.0))


@lowers("mul")
def _mul(walk: Walk, node: Node) -> Form:
    one, other = node.args[0], node.args[1]
    if walk.is_known(one) or walk.is_known(other):
        scale, form = (one, other) if walk.is_known(one) else (other, one)
        factor = walk.number(scale).expand(walk.value[node].shape).reshape(-1).numpy()
        return walk.spread(form, node).scaled(factor)
    if one is other:
        return walk.squared(one)
    return walk.listing.apply(Op.MUL, walk.spread(one, node), walk.spread(other, node))


@lowers("div")
def _div(walk: Walk, node: Node) -> Form:
    if node.kwargs.get("rounding_mode") is not None:
        raise Unlowerable("div with rounding")
    over, under = node.args[0], node.args[1]
    if walk.is_known(under):
        factor = 1.0 / walk.number(under).expand(walk.value[node].shape).reshape(-1).numpy()
        return walk.spread(over, node).scaled(factor)
    return walk.listing.apply(Op.DIV, walk.spread(over, node), walk.spread(under, node))


@lowers("pow")
def _pow(walk: Walk, node: Node) -> Form:
    base, exponent = node.args[0], node.args[1]
    if not walk.is_known(exponent) or walk.number(exponent).numel() != 1:
        raise Unlowerable("pow with varying exponent")
    power = float(walk.number(exponent))
    if power == 2.0 and isinstance(base, Node) and base in walk.squares:
        return walk.squares[base]
    form = walk.spread(base, node)
    if power == 1.0:
        return form
    if power == 2.0:
        return walk.listing.apply(Op.SQUARE, form)
    if power == 0.5:
        return walk.listing.apply(Op.SQRT, form)
    if power == 0.0:
        return walk.listing.constant(torch.ones(form.shape))
    constant = walk.listing.constant(torch.full(form.shape, power, dtype=torch.float64))
    return walk.listing.apply(Op.POW, form, constant)


@lowers("square")
def _square(walk: Walk, node: Node) -> Form:
    return walk.squared(node.args[0])


def _unary(op: Op) -> Lowered:
    return lambda walk, node: walk.listing.apply(op, walk.operand(node.args[0]))


REAL |= {
    "sqrt": _unary(Op.SQRT), "exp": _unary(Op.EXP), "log": _unary(Op.LOG), "sin": _unary(Op.SIN), "cos": _unary(Op.COS),
    "tanh": _unary(Op.TANH), "sigmoid": _unary(Op.SIGMOID), "reciprocal": _unary(Op.RECIPROCAL), "abs": _unary(Op.ABS),
    "relu": _unary(Op.RELU), "rsqrt": _unary(Op.RSQRT),
}  # fmt: skip


@lowers("_to_copy")
def _cast(walk: Walk, node: Node) -> Form:
    if walk.value[node].dtype != torch.float64:
        raise Unlowerable(f"cast to {walk.value[node].dtype}")
    return walk.operand(node.args[0])
