"""Functions of one number or two that are formulas of the operators in the table, and losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from snapfm.kernels.operators import Op
from snapfm.structure.lowering.formulas import Term, arguments
from snapfm.structure.lowering.table import lowers
from snapfm.structure.lowering.tape import Form, Unlowerable
from snapfm.structure.lowering.walk import Walk

_LARGEST = torch.finfo(torch.float64).max
_NO_THRESHOLD = 1e3  # log(1 + eᵃ) is a, to the last bit, long before


@lowers("softplus")
def _softplus(walk: Walk, node: Node) -> Form:
    given = arguments(node)
    x, beta = walk.term(given["self"], node), float(given["beta"])
    return ((x * beta).apply(Op.SOFTPLUS, float(given["threshold"])) / beta).form


@lowers("gelu")
def _gelu(walk: Walk, node: Node) -> Form:
    given = arguments(node)
    op = Op.GELU_TANH if given["approximate"] == "tanh" else Op.GELU
    return walk.term(given["self"], node).apply(op).form


@lowers("elu")
def _elu(walk: Walk, node: Node) -> Form:
    given = arguments(node)
    x, scale = walk.term(given["self"], node), float(given["scale"])
    below = (x.apply(Op.MIN, 0.0) * float(given["input_scale"])).apply(Op.EXPM1) * float(given["alpha"])
    return ((x.apply(Op.RELU) + below) * scale).form


@lowers("celu")
def _celu(walk: Walk, node: Node) -> Form:
    given = arguments(node)
    x, alpha = walk.term(given["self"], node), float(given["alpha"])
    return (x.apply(Op.RELU) + (x.apply(Op.MIN, 0.0) / alpha).apply(Op.EXPM1) * alpha).form


@lowers("leaky_relu")
def _leaky_relu(walk: Walk, node: Node) -> Form:
    given = arguments(node)
    x, slope = walk.term(given["self"], node), float(given["negative_slope"])
    return (x.apply(Op.RELU) * (1.0 - slope) + x * slope).form


@lowers("hardtanh")
def _hardtanh(walk: Walk, node: Node) -> Form:
    given = arguments(node)
    x = walk.term(given["self"], node)
    return x.apply(Op.MAX, float(given["min_val"])).apply(Op.MIN, float(given["max_val"])).form


@lowers("hardsigmoid")
def _hardsigmoid(walk: Walk, node: Node) -> Form:
    return _ramp(walk.term(node.args[0], node)).form


@lowers("hardswish")
def _hardswish(walk: Walk, node: Node) -> Form:
    x = walk.term(node.args[0], node)
    return (x * _ramp(x)).form


def _ramp(x: Term) -> Term:
    """Rise from 0 at −3 to 1 at 3."""
    return (x + 3.0).apply(Op.MAX, 0.0).apply(Op.MIN, 6.0) / 6.0


@lowers("threshold")
def _threshold(walk: Walk, node: Node) -> Form:
    given = arguments(node)
    x = walk.term(given["self"], node)
    return x.apply(Op.GT, float(given["threshold"])).select(x, float(given["value"])).form


@lowers("softshrink")
def _softshrink(walk: Walk, node: Node) -> Form:
    given = arguments(node)
    x, width = walk.term(given["self"], node), float(given["lambd"])
    return (x - x.apply(Op.MAX, -width).apply(Op.MIN, width)).form


@lowers("hardshrink")
def _hardshrink(walk: Walk, node: Node) -> Form:
    given = arguments(node)
    x = walk.term(given["self"], node)
    return x.apply(Op.ABS).apply(Op.GT, float(given["lambd"])).select(x, 0.0).form


@lowers("logit")
def _logit(walk: Walk, node: Node) -> Form:
    given = arguments(node)
    x = walk.term(given["self"], node)
    if given["eps"] is not None:
        x = x.apply(Op.MAX, float(given["eps"])).apply(Op.MIN, 1.0 - float(given["eps"]))
    return x.apply(Op.LOGIT).form


@lowers("logaddexp")
def _logaddexp(walk: Walk, node: Node) -> Form:
    return log_of_sum(*walk.terms(node)).form


@lowers("logaddexp2")
def _logaddexp2(walk: Walk, node: Node) -> Form:
    one, other = (term * math.log(2.0) for term in walk.terms(node))
    return (log_of_sum(one, other) / math.log(2.0)).form


def log_of_sum(one: Term, other: Term) -> Term:
    """log(eᵃ + eᵇ) = b + log(1 + eᵃ⁻ᵇ). Known numbers are taken for b: nothing cancels where they are 0."""
    if one.known() is not None:
        one, other = other, one
    return other + (one - other).apply(Op.SOFTPLUS, _NO_THRESHOLD)


@lowers("hypot")
def _hypot(walk: Walk, node: Node) -> Form:
    one, other = walk.terms(node)
    return (one.apply(Op.SQUARE) + other.apply(Op.SQUARE)).apply(Op.SQRT).form


@lowers("atan2")
def _atan2(walk: Walk, node: Node) -> Form:
    """The arctangent of y/x or, where |y| is larger, of −x/y; the quarter turns between them have no slope."""
    y, x = walk.terms(node)
    flatter = x.apply(Op.ABS).apply(Op.GE, y.apply(Op.ABS))
    angle = flatter.select(y, -x).apply(Op.DIV, flatter.select(x, y)).apply(Op.ATAN)
    upper = y.apply(Op.GE, 0.0) * 2.0 - 1.0  # 1 or −1
    half = x.apply(Op.GE, 0.0).select(0.0, upper * math.pi)
    return (angle + flatter.select(half, upper * (math.pi / 2))).form


@lowers("xlogy")
def _xlogy(walk: Walk, node: Node) -> Form:
    """a log b, and 0 where a is 0, whatever b is."""
    one, other = walk.terms(node)
    weight = one.known()
    if weight is not None:
        counts = (weight != 0.0).astype(float)
        inside: Term = other * counts + (1.0 - counts)
        return (inside.apply(Op.LOG) * one).form
    both = one.apply(Op.EQ, 0.0).apply(Op.MIN, other.apply(Op.EQ, 0.0))
    return (one * both.select(1.0, other).apply(Op.LOG)).form


@lowers("fmod")
def _fmod(walk: Walk, node: Node) -> Form:
    return _rest(walk, node, Op.TRUNC).form


@lowers("remainder")
def _remainder(walk: Walk, node: Node) -> Form:
    return _rest(walk, node, Op.FLOOR).form


def _rest(walk: Walk, node: Node, rounding: Op) -> Term:
    """a − b round(a / b): the quotient, rounded, has no slope."""
    one, other = walk.terms(node)
    return one - other * (one.held() / other.held()).apply(rounding)


@lowers("frac")
def _frac(walk: Walk, node: Node) -> Form:
    x = walk.term(node.args[0], node)
    return (x - x.apply(Op.TRUNC)).form


@lowers("copysign")
def _copysign(walk: Walk, node: Node) -> Form:
    one, other = walk.terms(node)
    size = one.apply(Op.ABS)
    return other.apply(Op.GE, 0.0).select(size, -size).form


@lowers("nan_to_num")
def _nan_to_num(walk: Walk, node: Node) -> Form:
    given = arguments(node)
    x = walk.term(given["self"], node)
    low = -_LARGEST if given["neginf"] is None else float(given["neginf"])
    high = _LARGEST if given["posinf"] is None else float(given["posinf"])
    finite = x.apply(Op.GT, _LARGEST).select(high, (-x).apply(Op.GT, _LARGEST).select(low, x))
    return x.apply(Op.EQ, x).select(finite, float(given["nan"] or 0.0)).form


@lowers("isnan")
def _isnan(walk: Walk, node: Node) -> Form:
    x = walk.term(node.args[0], node)
    return (1.0 - x.apply(Op.EQ, x)).form


@lowers("isinf")
def _isinf(walk: Walk, node: Node) -> Form:
    return walk.term(node.args[0], node).apply(Op.ABS).apply(Op.GT, _LARGEST).form


@lowers("signbit")
def _signbit(walk: Walk, node: Node) -> Form:
    return (-walk.term(node.args[0], node)).apply(Op.GT, 0.0).form


@lowers("mse_loss", "huber_loss", "smooth_l1_loss")
def _loss(walk: Walk, node: Node) -> Form:
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
