"""Rules for operators that work element by element, with broadcasting.

Four kinds: linear in what they read, products, curved (a general nonlinear function), and those whose slope jumps
(kinked) or vanishes (flat) without curvature.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from snapfm.structure.dependence import KINK, PARAMETRIC, Dependence, combined
from snapfm.structure.rules.registry import Call, Operand, Tracked, rule
from snapfm.structure.sets import union


@rule("add", "sub", "rsub", "neg", "deg2rad", "rad2deg", "_to_copy")
def linear(call: Call) -> Tracked:
    """Add operands: nothing bends. A cast to integers rounds, so its slope vanishes."""
    total = combined([call.spread(operand) for operand in _operands(call)])
    if not (call.value.dtype.is_floating_point or call.value.is_complex()):
        return total.flattened()
    return total


@rule("mul")
def product(call: Call) -> Tracked:
    """Multiply: each factor scales the other, and where both read the field the product bends."""
    return _multiply(call, call.args[0], call.args[1])


@rule("div")
def quotient(call: Call) -> Tracked:
    """Divide: linear in the numerator, curved in the denominator."""
    over, under = call.args[0], call.args[1]
    if call.kwargs.get("rounding_mode") is not None:
        return combined([call.spread(over), call.spread(under)]).flattened()
    top, bottom = call.spread(over), call.spread(under)
    total = combined([top, bottom])
    if not _reads(under):
        return total.marked(PARAMETRIC) if _varies(under) else total
    both = union([top.first, bottom.first])
    bent = call.events.bend(total, bottom.first, both)
    return bent.marked(PARAMETRIC)


@rule("pow")
def power(call: Call) -> Tracked:
    """Raise to a power: the exponents 0 and 1, where they are known, do not bend."""
    base, exponent = call.args[0], call.args[1]
    total = combined([call.spread(base), call.spread(exponent)])
    known = exponent.known if isinstance(exponent, Operand) else True
    if not known or _reads(exponent):
        return call.events.curve(total).marked(PARAMETRIC)
    value = exponent.value if isinstance(exponent, Operand) else torch.tensor(float(exponent))
    exponents = value.expand(call.value.shape).reshape(-1).numpy()
    total = Dependence(total.first.keep(exponents != 0), total.second.keep(exponents != 0))
    bending = total.first.keep((exponents != 0) & (exponents != 1))
    return call.events.bend(total, bending, bending)


@rule(
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "sigmoid", "logit", "erf", "erfc", "erfinv", "sqrt", "rsqrt", "reciprocal",
    "gelu", "silu", "softplus", "mish", "elu", "celu", "sinc", "lgamma", "digamma", "atan2",
    "hypot", "logaddexp", "logaddexp2", "xlogy", "polygamma", "i0", "special_i1", "special_erfcx", "special_log_ndtr",
    "special_ndtri", "special_entr", "angle", "sgn",
)  # fmt: skip
def curved(call: Call) -> Tracked:
    """Apply a general nonlinear function of all operands at this element."""
    total = combined([call.spread(operand) for operand in _operands(call)])
    return call.events.curve(total).marked(PARAMETRIC)


@rule("mse_loss", "huber_loss", "smooth_l1_loss")
def loss(call: Call) -> Tracked:
    """Apply a nonlinear function of the difference at each element, then add them up unless asked not to."""
    one, other = call.args[0], call.args[1]
    shape = torch.broadcast_shapes(one.value.shape, other.value.shape)  # type: ignore[no-untyped-call]
    bent = call.events.curve(combined([call.spread_to(one, shape), call.spread_to(other, shape)])).marked(PARAMETRIC)
    if call.value.shape == shape:
        return bent
    return bent.group(np.zeros(bent.size, np.int64), np.arange(bent.size), 1)


@rule("abs")
def magnitude(call: Call) -> Tracked:
    """Take the absolute value: a kink for real numbers, curved for complex ones."""
    (operand,) = _operands(call)
    if operand.value.is_complex():
        return call.events.curve(call.spread(operand))
    return call.spread(operand).marked(KINK)


@rule(
    "relu", "leaky_relu", "hardtanh", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "fmax", "fmin", "where",
    "threshold", "softshrink", "hardshrink", "nan_to_num", "frac", "fmod", "remainder", "copysign",
)  # fmt: skip
def kinked(call: Call) -> Tracked:
    """Choose between linear pieces: no curvature, but a slope that changes with the values."""
    operands = _operands(call)
    total = combined([call.spread(operand) for operand in operands])
    name = call.target.overloadpacket.__name__
    if name == "where":
        condition = operands[0]
        if condition.track is None:
            return _chosen(call) if condition.known else total.marked(PARAMETRIC)
    if name in ("fmod", "remainder", "copysign") and sum(map(_reads, operands)) > 1:
        return call.events.curve(total).marked(PARAMETRIC)
    return total.marked(KINK).marked(PARAMETRIC)


@rule(
    "eq", "ne", "lt", "le", "gt", "ge", "sign", "floor", "ceil", "round", "trunc", "isnan", "isinf",
    "logical_and", "logical_or", "logical_not", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_not", "bitwise_xor",
    "signbit",
)  # fmt: skip
def flat_steps(call: Call) -> Tracked:
    """Answer with steps: the slope vanishes, the branch taken is remembered."""
    return combined([call.spread(operand) for operand in _operands(call)]).flattened()


@rule("view_as_real", "view_as_complex")
def complex_parts(call: Call) -> Tracked:
    """Split complex numbers into two real ones, or join them."""
    operand = call.args[0]
    track = call.track(operand)
    if call.value.is_complex():
        size = call.value.numel()
        return track.group(np.repeat(np.arange(size), 2), np.arange(2 * size), size)
    return track.gather(np.repeat(np.arange(track.size), 2))


def _multiply(call: Call, one: Any, other: Any) -> Dependence:
    left, right = call.spread(one), call.spread(other)
    if _reads(one) and _reads(other):
        bent = call.events.bend(combined([left, right]), left.first, right.first)
        return bent.scaled(left.first, right.first)
    total, scale = (left, other) if _reads(one) else (right, one)
    if _varies(scale):
        return total.marked(PARAMETRIC)
    if isinstance(scale, Operand):
        present = (scale.value != 0).expand(call.value.shape).reshape(-1).numpy()
        return Dependence(total.first.keep(present), total.second.keep(present))
    return total


def _chosen(call: Call) -> Dependence:
    """Pick by a known condition: each element is that of one branch."""
    condition, yes, no = call.args
    mask = condition.value.expand(call.value.shape).reshape(-1).numpy()
    taken, left = call.spread(yes), call.spread(no)
    return combined(
        [
            Dependence(taken.first.keep(mask), taken.second.keep(mask)),
            Dependence(left.first.keep(~mask), left.second.keep(~mask)),
        ]
    )


def _operands(call: Call) -> list[Operand]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves((call.args, call.kwargs)) if isinstance(leaf, Operand)]


def _reads(operand: Any) -> bool:
    return isinstance(operand, Operand) and operand.track is not None


def _varies(operand: Any) -> bool:
    return isinstance(operand, Operand) and not operand.known
