"""Functions of one number or two that are formulas of the operators in the table, losses, choices, comparisons and logic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from snapfm.compile.lower.formulas import Formula, Lowered, Term, arguments, formula, lowers
from snapfm.compile.lower.interpreter import Lowering
from snapfm.compile.lower.tape import Form, Unlowerable, stacked
from snapfm.kernels.operators import Op

_LARGEST = torch.finfo(torch.float64).max
_NO_THRESHOLD = 1e3  # log(1 + eᵃ) is a, to the last bit, long before


def _elu(x: Term, alpha: float, scale: float, input_scale: float) -> Term:
    below = (x.apply(Op.MIN, 0.0) * input_scale).apply(Op.EXPM1) * alpha
    return (x.apply(Op.RELU) + below) * scale


def _hardsigmoid(x: Term) -> Term:
    """Rise from 0 at −3 to 1 at 3."""
    return (x + 3.0).apply(Op.MAX, 0.0).apply(Op.MIN, 6.0) / 6.0


def _rest(one: Term, other: Term, rounding: Op) -> Term:
    """a − b round(a / b): the quotient, rounded, has no slope."""
    return one - other * (one.held() / other.held()).apply(rounding)


_OF_ONE: dict[str, Formula] = {
    "softplus": lambda x, beta, threshold: (x * beta).apply(Op.SOFTPLUS, threshold) / beta,
    "gelu": lambda x, approximate: x.apply(Op.GELU_TANH if approximate == "tanh" else Op.GELU),
    "elu": _elu,
    "celu": lambda x, alpha: _elu(x, alpha, 1.0, 1.0 / alpha),
    "leaky_relu": lambda x, negative_slope: x.apply(Op.RELU) * (1.0 - negative_slope) + x * negative_slope,
    "hardtanh": lambda x, min_val, max_val: x.apply(Op.MAX, min_val).apply(Op.MIN, max_val),
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda x: x * _hardsigmoid(x),
    "threshold": lambda x, threshold, value: x.apply(Op.GT, threshold).select(x, value),
    "softshrink": lambda x, lambd: x - x.apply(Op.MAX, -lambd).apply(Op.MIN, lambd),
    "hardshrink": lambda x, lambd: x.apply(Op.ABS).apply(Op.GT, lambd).select(x, 0.0),
    "frac": lambda x: x - x.apply(Op.TRUNC),
    "isnan": lambda x: 1.0 - x.apply(Op.EQ, x),
    "isinf": lambda x: x.apply(Op.ABS).apply(Op.GT, _LARGEST),
    "signbit": lambda x: (-x).apply(Op.GT, 0.0),
}
_OF_TWO: dict[str, Formula] = {
    "hypot": lambda one, other: (one.apply(Op.SQUARE) + other.apply(Op.SQUARE)).apply(Op.SQRT),
    "fmod": lambda one, other: _rest(one, other, Op.TRUNC),
    "remainder": lambda one, other: _rest(one, other, Op.FLOOR),
    "lt": lambda one, other: other.apply(Op.GT, one),
    "le": lambda one, other: other.apply(Op.GE, one),
    "ne": lambda one, other: 1.0 - one.apply(Op.EQ, other),
}
for _count, _formulas in ((1, _OF_ONE), (2, _OF_TWO)):
    for _name, _formula in _formulas.items():
        formula(_name, terms=_count)(_formula)


@formula("logit")
def _logit(x: Term, eps: float | None) -> Term:
    inside = x if eps is None else x.apply(Op.MAX, eps).apply(Op.MIN, 1.0 - eps)
    return inside.apply(Op.LOGIT)


@formula("logaddexp", terms=2)
def log_of_sum(one: Term, other: Term) -> Term:
    """log(eᵃ + eᵇ) = b + log(1 + eᵃ⁻ᵇ). Known numbers are taken for b: nothing cancels where they are 0."""
    if one.known() is not None:
        one, other = other, one
    return other + (one - other).apply(Op.SOFTPLUS, _NO_THRESHOLD)


@formula("logaddexp2", terms=2)
def _logaddexp2(one: Term, other: Term) -> Term:
    return log_of_sum(one * math.log(2.0), other * math.log(2.0)) / math.log(2.0)


@formula("atan2", terms=2)
def angle_of(y: Term, x: Term) -> Term:
    """The arctangent of y/x or, where |y| is larger, of −x/y; the quarter turns between them have no slope."""
    flatter = x.apply(Op.ABS).apply(Op.GE, y.apply(Op.ABS))
    angle = flatter.select(y, -x).apply(Op.DIV, flatter.select(x, y)).apply(Op.ATAN)
    upper = y.apply(Op.GE, 0.0) * 2.0 - 1.0  # 1 or −1
    half = x.apply(Op.GE, 0.0).select(0.0, upper * math.pi)
    return angle + flatter.select(half, upper * (math.pi / 2))


@formula("xlogy", terms=2)
def _xlogy(one: Term, other: Term) -> Term:
    """a log b, and 0 where a is 0, whatever b is."""
    weight = one.known()
    if weight is not None:
        counts = (weight != 0.0).astype(float)
        inside: Term = other * counts + (1.0 - counts)
        return inside.apply(Op.LOG) * one
    both = one.apply(Op.EQ, 0.0).apply(Op.MIN, other.apply(Op.EQ, 0.0))
    return one * both.select(1.0, other).apply(Op.LOG)


@formula("copysign", terms=2)
def _copysign(one: Term, other: Term) -> Term:
    size = one.apply(Op.ABS)
    return other.apply(Op.GE, 0.0).select(size, -size)


@formula("nan_to_num")
def _nan_to_num(x: Term, nan: float | None, posinf: float | None, neginf: float | None) -> Term:
    low = -_LARGEST if neginf is None else neginf
    high = _LARGEST if posinf is None else posinf
    finite = x.apply(Op.GT, _LARGEST).select(high, (-x).apply(Op.GT, _LARGEST).select(low, x))
    return x.apply(Op.EQ, x).select(finite, nan or 0.0)


@lowers("mse_loss", "huber_loss", "smooth_l1_loss")
def _loss(walk: Lowering, node: Node) -> Form:
    given: dict[str, Any] = arguments(node)
    shape = tuple(torch.broadcast_shapes(walk.value[given["self"]].shape, walk.value[given["target"]].shape))  # type: ignore[no-untyped-call]
    off = walk.term_as(given["self"], shape) - walk.term_as(given["target"], shape)
    name = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    if name == "mse_loss":
        each = off.apply(Op.SQUARE)
    elif name == "huber_loss":
        each = off.apply(Op.HUBER, float(given["delta"]))
    elif float(given["beta"]) == 0.0:
        each = off.apply(Op.ABS)
    else:
        each = off.apply(Op.HUBER, float(given["beta"])) / float(given["beta"])
    if given["reduction"] not in (0, 1, 2):
        raise Unlowerable(f"{name} with reduction {given['reduction']}")
    if given["reduction"] == 0:  # none; 1 is the mean, 2 the sum
        return each.form
    total = each.sum(np.zeros(each.form.size, np.int64), 1, ())
    return (total / max(each.form.size, 1) if given["reduction"] == 1 else total).form


@lowers("clamp", "clamp_min", "clamp_max")
def _clamp(walk: Lowering, node: Node) -> Form:
    given = arguments(node)
    low, high = given.get("min"), given.get("max")
    form = walk.spread(node.args[0], node)
    if low is not None:
        form = walk.tape.apply(Op.MAX, form, walk.spread(low, node))
    if high is not None:
        form = walk.tape.apply(Op.MIN, form, walk.spread(high, node))
    return form


@lowers("where")
def _where(walk: Lowering, node: Node) -> Form:
    return _chosen(walk, node, *node.args)


@lowers("masked_fill")
def _masked_fill(walk: Lowering, node: Node) -> Form:
    kept, condition, fill = node.args
    return _chosen(walk, node, condition, fill, kept)


def _chosen(walk: Lowering, node: Node, condition: Any, yes: Any, no: Any) -> Form:
    """Choose by a condition; by a known one with copies, because 0 times an infinite fill would be NaN."""
    if not walk.is_known(condition):
        return walk.term(condition, node).select(walk.term(yes, node), walk.term(no, node)).form
    mask = walk.value[condition].expand(walk.value[node].shape).reshape(-1).numpy()
    both = stacked([walk.spread(yes, node), walk.spread(no, node)], walk.tape.cells)
    return both.gather(np.arange(len(mask)) + np.where(mask, 0, len(mask)), tuple(walk.value[node].shape))


def _logical(combine: Callable[..., Term]) -> Lowered:
    """Lower a logical operator by a formula of its arguments as 0 and 1."""
    return lambda walk, node: combine(*(_truth(walk, argument, node) for argument in node.args)).form


lowers("logical_not", "bitwise_not")(_logical(lambda one: 1.0 - one))
lowers("logical_and", "bitwise_and")(_logical(lambda one, other: one.apply(Op.MIN, other)))
lowers("logical_or", "bitwise_or")(_logical(lambda one, other: one.apply(Op.MAX, other)))
lowers("logical_xor", "bitwise_xor")(_logical(lambda one, other: 1.0 - one.apply(Op.EQ, other)))


def _truth(walk: Lowering, argument: Any, node: Node) -> Term:
    """Return an argument of a logical operator as 0 and 1."""
    term = walk.term(argument, node)
    if isinstance(argument, bool) or (isinstance(argument, Node) and walk.value[argument].dtype == torch.bool):
        return term
    if walk.value[node].dtype != torch.bool:
        raise Unlowerable(f"{node.target} of integers")
    return term.nonzero()
