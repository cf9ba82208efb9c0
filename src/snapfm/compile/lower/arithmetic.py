"""Arithmetic, and every torch operator that the table of operators names: one operator for each element."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.fx import Node

from snapfm.arrays import Values
from snapfm.compile.lower.formulas import Lowered, Term, formula, lowers
from snapfm.compile.lower.interpreter import Lowering, expanded
from snapfm.compile.lower.tape import Form, Unlowerable, stacked
from snapfm.kernels.operators import Op

formula("add", terms=2)(lambda one, other, alpha=1.0: one + other * alpha)
formula("sub", terms=2)(lambda one, other, alpha=1.0: one - other * alpha)
formula("rsub", terms=2)(lambda one, other, alpha=1.0: other - one * alpha)
formula("neg")(lambda one: -one)


@lowers("mul")
def _mul(walk: Lowering, node: Node) -> Form:
    one, other = node.args[0], node.args[1]
    if walk.is_known(one) or walk.is_known(other):
        scale, form = (one, other) if walk.is_known(one) else (other, one)
        factor = walk.number(scale).expand(walk.value[node].shape).reshape(-1).numpy()
        return walk.spread(form, node).scaled(factor)
    if one is other:
        return walk.squared(one)
    return walk.tape.apply(Op.MUL, walk.spread(one, node), walk.spread(other, node))


@lowers("div")
def _div(walk: Lowering, node: Node) -> Form:
    over: Any = node.args[0]
    under: Any = node.args[1]
    rounding = node.kwargs.get("rounding_mode")
    if rounding is not None:
        one, other = walk.term(over, node), walk.term(under, node)
        return (one.held() / other.held()).apply(Op.FLOOR if rounding == "floor" else Op.TRUNC).form
    if walk.is_known(under):
        factor = 1.0 / walk.number(under).expand(walk.value[node].shape).reshape(-1).numpy()
        return walk.spread(over, node).scaled(factor)
    shape = tuple(walk.value[node].shape)
    if walk.reads(under) and not walk.is_known(over) and walk.value[under].numel() < walk.value[node].numel():
        # A divisor of several elements, such as a norm, is inverted once: each quotient would couple all pairs it reads.
        inverse = Term(walk.tape, walk.operand(under)).apply(Op.RECIPROCAL).form
        return (walk.term(over, node) * Term(walk.tape, expanded(inverse, shape))).form
    return walk.tape.apply(Op.DIV, walk.spread(over, node), walk.spread(under, node))


@lowers("pow")
def _pow(walk: Lowering, node: Node) -> Form:
    base, exponent = node.args[0], node.args[1]
    if isinstance(exponent, Node) and walk.reads(exponent):
        # aᵇ = exp(b log a), for positive a. Below zero torch itself has no slope in b.
        raised, known = walk.term(exponent, node), walk.term(base, node).known()
        if known is not None and (known > 0.0).all():
            return (raised * np.log(known)).apply(Op.EXP).form
        return (walk.term(base, node).apply(Op.LOG) * raised).apply(Op.EXP).form
    if not walk.is_known(exponent):
        return walk.term(base, node).apply(Op.POW, walk.term(exponent, node)).form
    powers = walk.number(exponent).expand(walk.value[node].shape).reshape(-1).numpy()
    if isinstance(base, Node) and base in walk.squares and (powers == 2.0).all():
        return walk.squares[base]
    return _raised(walk, walk.spread(base, node), powers)


def _raised(walk: Lowering, form: Form, powers: Values) -> Form:
    """Raise each element to its known exponent: to 0 it is a constant, to 1 linear, so neither adds an operation."""
    simple = np.isin(powers, (0.0, 0.5, 1.0, 2.0))
    parts, places = [], []
    for power in np.unique(np.where(simple, powers, np.nan)):  # NaN stands for all exponents that are not simple
        place = np.flatnonzero(~simple if np.isnan(power) else powers == power)
        alone = len(place) == form.size
        part = form if alone else form.gather(place, (len(place),))
        if power == 0.0:
            part = walk.tape.constant(torch.ones(part.shape))
        elif power in (0.5, 2.0):
            part = walk.tape.apply(Op.SQUARE if power == 2.0 else Op.SQRT, part)
        elif power != 1.0:
            part = walk.tape.apply(Op.POW, part, walk.tape.constant(torch.tensor(powers[place]).reshape(part.shape)))
        if alone:
            return part
        parts.append(part)
        places.append(place)
    if not parts:  # no elements
        return form
    return stacked(parts, walk.tape.cells).gather(np.argsort(np.concatenate(places)), form.shape)


@lowers("square")
def _square(walk: Lowering, node: Node) -> Form:
    return walk.squared(node.args[0])


def _elementwise(op: Op) -> Lowered:
    def lowered(walk: Lowering, node: Node) -> Form:
        if len(node.args) != op.arity or node.kwargs:  # an option that the table knows nothing of
            raise Unlowerable(str(node.target))
        if op.arity == 1:
            return walk.tape.apply(op, walk.operand(node.args[0]))
        return walk.tape.apply(op, *(walk.spread(argument, node) for argument in node.args))

    return lowered


for _op in Op:
    lowers(*_op.aten)(_elementwise(_op))


@lowers("_to_copy")
def _cast(walk: Lowering, node: Node) -> Form:
    if walk.value[node].dtype == torch.bool:
        return walk.term(node.args[0], node).nonzero().form
    if walk.value[node].dtype != torch.float64:
        raise Unlowerable(f"cast to {walk.value[node].dtype}")
    return walk.operand(node.args[0])
