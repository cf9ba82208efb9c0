"""Arithmetic, and every torch operator that the table of operators names: one operator for each element."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.fx import Node

from snapfm.kernels.operators import Op
from snapfm.structure.lowering.table import Lowered, lowers
from snapfm.structure.lowering.tape import Form, Unlowerable, added
from snapfm.structure.lowering.walk import Walk


def _add(sign: float) -> Lowered:
    def lowered(walk: Walk, node: Node) -> Form:
        given: Any = node.kwargs.get("alpha", 1)
        alpha = sign * float(given)
        left, right = walk.spread(node.args[0], node), walk.spread(node.args[1], node)
        return added(left, right.scaled(np.full(right.size, alpha)), walk.tape.cells)

    return lowered


lowers("add")(_add(1.0))
lowers("sub")(_add(-1.0))


@lowers("rsub")
def _rsub(walk: Walk, node: Node) -> Form:
    given: Any = node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1)
    alpha = float(given)
    left, right = walk.spread(node.args[0], node), walk.spread(node.args[1], node)
    return added(right, left.scaled(np.full(left.size, -alpha)), walk.tape.cells)


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
    return walk.tape.apply(Op.MUL, walk.spread(one, node), walk.spread(other, node))


@lowers("div")
def _div(walk: Walk, node: Node) -> Form:
    over, under = node.args[0], node.args[1]
    rounding = node.kwargs.get("rounding_mode")
    if rounding is not None:
        one, other = walk.term(over, node), walk.term(under, node)
        return (one.held() / other.held()).apply(Op.FLOOR if rounding == "floor" else Op.TRUNC).form
    if walk.is_known(under):
        factor = 1.0 / walk.number(under).expand(walk.value[node].shape).reshape(-1).numpy()
        return walk.spread(over, node).scaled(factor)
    return walk.tape.apply(Op.DIV, walk.spread(over, node), walk.spread(under, node))


@lowers("pow")
def _pow(walk: Walk, node: Node) -> Form:
    base, exponent = node.args[0], node.args[1]
    if isinstance(exponent, Node) and walk.reads(exponent):
        # aᵇ = exp(b log a), for positive a. Below zero torch itself has no slope in b.
        raised, known = walk.term(exponent, node), walk.term(base, node).known()
        if known is not None and (known > 0.0).all():
            return (raised * np.log(known)).apply(Op.EXP).form
        return (walk.term(base, node).apply(Op.LOG) * raised).apply(Op.EXP).form
    if not walk.is_known(exponent) or walk.number(exponent).numel() != 1:
        return walk.term(base, node).apply(Op.POW, walk.term(exponent, node)).form
    power = float(walk.number(exponent))
    if power == 2.0 and isinstance(base, Node) and base in walk.squares:
        return walk.squares[base]
    form = walk.spread(base, node)
    if power == 1.0:
        return form
    if power == 2.0:
        return walk.tape.apply(Op.SQUARE, form)
    if power == 0.5:
        return walk.tape.apply(Op.SQRT, form)
    if power == 0.0:
        return walk.tape.constant(torch.ones(form.shape))
    constant = walk.tape.constant(torch.full(form.shape, power, dtype=torch.float64))
    return walk.tape.apply(Op.POW, form, constant)


@lowers("square")
def _square(walk: Walk, node: Node) -> Form:
    return walk.squared(node.args[0])


def _elementwise(op: Op) -> Lowered:
    def lowered(walk: Walk, node: Node) -> Form:
        if len(node.args) != op.arity or node.kwargs:  # an option that the table knows nothing of
            raise Unlowerable(str(node.target))
        if op.arity == 1:
            return walk.tape.apply(op, walk.operand(node.args[0]))
        return walk.tape.apply(op, *(walk.spread(argument, node) for argument in node.args))

    return lowered


for _op in Op:
    lowers(*_op.aten)(_elementwise(_op))


@lowers("_to_copy")
def _cast(walk: Walk, node: Node) -> Form:
    if walk.value[node].dtype == torch.bool:
        return walk.term(node.args[0], node).nonzero().form
    if walk.value[node].dtype != torch.float64:
        raise Unlowerable(f"cast to {walk.value[node].dtype}")
    return walk.operand(node.args[0])
