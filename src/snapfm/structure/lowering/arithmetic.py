"""Arithmetic, and every torch operator that the table of operators names: one operator for each element.

Complex products, squares and magnitudes are written out in real and imaginary parts: a complex tensor is a form with a last axis
of two. What is linear in complex numbers needs no entry here. It stays a map until it meets a real number again (see `regions`).
"""

from __future__ import annotations

import numpy as np
import torch
from torch.fx import Node

from snapfm.arrays import Values
from snapfm.kernels.operators import Op
from snapfm.structure.lowering.formulas import COMPLEX, Lowered, formula, lowers
from snapfm.structure.lowering.tape import Form, Unlowerable, added, stacked
from snapfm.structure.lowering.walk import Walk
from snapfm.structure.rules.registry import flat, positions

formula("add", terms=2)(lambda one, other, alpha=1.0: one + other * alpha)
formula("sub", terms=2)(lambda one, other, alpha=1.0: one - other * alpha)
formula("rsub", terms=2)(lambda one, other, alpha=1.0: other - one * alpha)
formula("neg")(lambda one: -one)


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
    if not walk.is_known(exponent):
        return walk.term(base, node).apply(Op.POW, walk.term(exponent, node)).form
    powers = walk.number(exponent).expand(walk.value[node].shape).reshape(-1).numpy()
    if isinstance(base, Node) and base in walk.squares and (powers == 2.0).all():
        return walk.squares[base]
    return _raised(walk, walk.spread(base, node), powers)


def _raised(walk: Walk, form: Form, powers: Values) -> Form:
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


@lowers("mul", table=COMPLEX)
def _complex_mul(walk: Walk, node: Node) -> Form:
    """(a + ib)(c + id) = (ac − bd) + i(ad + bc)."""
    one, other = (walk.spread_pair(argument, node) for argument in node.args)
    (a, b), (c, d) = _real_and_imaginary(one), _real_and_imaginary(other)
    return _multiplied(walk, a, b, c, d)


@lowers("pow", table=COMPLEX)
def _complex_pow(walk: Walk, node: Node) -> Form:
    exponent = node.args[1]
    if isinstance(exponent, Node) or complex(exponent) != 2.0:  # type: ignore[arg-type]
        raise Unlowerable(f"complex pow of {exponent}")
    a, b = _real_and_imaginary(walk.spread_pair(node.args[0], node))
    return _multiplied(walk, a, b, a, b)


@lowers("abs", table=COMPLEX)
def _complex_abs(walk: Walk, node: Node) -> Form:
    """√(a² + b²); its square, which has no kink at zero, is remembered for whoever squares it again."""
    a, b = _real_and_imaginary(walk.pair(node.args[0]))
    one, other = (walk.tape.apply(Op.SQUARE, part) for part in (a, b))
    walk.squares[node] = added(one, other, walk.tape.cells)
    return walk.tape.apply(Op.SQRT, walk.squares[node])


def _multiplied(walk: Walk, a: Form, b: Form, c: Form, d: Form) -> Form:
    ac, bd, ad, bc = (walk.tape.apply(Op.MUL, *two) for two in ((a, c), (b, d), (a, d), (b, c)))
    minus = bd.scaled(np.full(bd.size, -1.0))
    cells = walk.tape.cells
    real, imaginary = added(ac, minus, cells), added(ad, bc, cells)
    shape = (*a.shape, 2)
    order = flat(positions((2, *a.shape)).movedim(0, -1))
    return stacked([real, imaginary], cells).gather(order, shape)


def _real_and_imaginary(pair: Form) -> tuple[Form, Form]:
    numbers, shape = positions(pair.shape), pair.shape[:-1]
    return pair.gather(flat(numbers[..., 0]), shape), pair.gather(flat(numbers[..., 1]), shape)
