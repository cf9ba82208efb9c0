"""The scalar operators of snapfm.kernels.operators as functions of casadi, which is handed in."""

from __future__ import annotations

import math
from typing import Any

from snapfm.kernels.operators import Op


def written(op: Op, ca: Any, *operands: Any) -> Any:
    """Write an operator over casadi's symbols. At a kink casadi may choose another slope."""
    form = _FORMS.get(op.name, op.name.lower())
    return getattr(ca, form)(*operands) if isinstance(form, str) else form(ca, *operands)


def _softplus(ca: Any, a: Any, b: Any) -> Any:
    edge = ca.fmin(b, 36.0)  # above it the logarithm is a to the last bit, and the exponential may overflow
    return ca.if_else(a > edge, a, ca.log1p(ca.exp(ca.fmin(a, edge))))


def _gelu_tanh(ca: Any, a: Any) -> Any:
    return 0.5 * a * (1.0 + ca.tanh(math.sqrt(2.0 / math.pi) * (a + 0.044715 * a * a * a)))


def _huber(ca: Any, a: Any, b: Any) -> Any:
    return ca.if_else(ca.fabs(a) < b, 0.5 * a * a, b * (ca.fabs(a) - 0.5 * b))


def _sinc(ca: Any, a: Any) -> Any:
    x = ca.if_else(ca.fabs(a) < 1e-3, 1.0, math.pi * a)
    near = 1.0 - (math.pi * a) ** 2 / 6.0 + (math.pi * a) ** 4 / 120.0
    return ca.if_else(ca.fabs(a) < 1e-3, near, ca.sin(x) / x)


def _ramp(ca: Any, a: Any, b: Any) -> Any:
    piece = ca.if_else(b > -3.0, (-1.0 - b) * a, 0.0)
    return ca.if_else(b >= 0.0, 0.5 * (a + ca.sqrt(a * a + 4.0 * b * b)) - b, piece)


def _step(ca: Any, a: Any, b: Any) -> Any:
    return ca.if_else(b >= 0.0, 0.5 + 0.5 * a / ca.sqrt(a * a + 4.0 * b * b), ca.if_else(b > -3.0, -1.0 - b, -3.0 - b))


# A function of casadi by its name, or one of (casadi, a, b, c). Operators that are not listed have the same name there.
# HOLD: casadi has no value without a slope. What cancels needs none, and beyond detach a casadi peer sees the true slope.
# ROUND: torch rounds halves to even.
_FORMS: dict[str, Any] = {
    "MUL": lambda ca, a, b: a * b,
    "DIV": lambda ca, a, b: a / b,
    "POW": "power",
    "SQUARE": lambda ca, a: a * a,
    "SIGMOID": lambda ca, a: 1.0 / (1.0 + ca.exp(-a)),
    "RECIPROCAL": lambda ca, a: 1.0 / a,
    "RSQRT": lambda ca, a: 1.0 / ca.sqrt(a),
    "ABS": "fabs",
    "RELU": lambda ca, a: ca.fmax(a, 0.0),
    "MAX": "fmax",
    "MIN": "fmin",
    "SELECT": lambda ca, a, b, c: ca.if_else(c != 0.0, a, b),
    "GT": lambda ca, a, b: a > b,
    "GE": lambda ca, a, b: a >= b,
    "EQ": lambda ca, a, b: a == b,
    "HOLD": lambda ca, a: a,
    "TRUNC": lambda ca, a: ca.if_else(a < 0.0, ca.ceil(a), ca.floor(a)),
    "ROUND": lambda ca, a: ca.floor(a + 0.5),
    "EXP2": lambda ca, a: ca.exp(math.log(2.0) * a),
    "LOG2": lambda ca, a: ca.log(a) / math.log(2.0),
    "ERFC": lambda ca, a: 1.0 - ca.erf(a),
    "SILU": lambda ca, a: a / (1.0 + ca.exp(-a)),
    "SOFTPLUS": _softplus,
    "GELU": lambda ca, a: 0.5 * a * (1.0 + ca.erf(a / math.sqrt(2.0))),
    "GELU_TANH": _gelu_tanh,
    "MISH": lambda ca, a: a * ca.tanh(_softplus(ca, a, 36.0)),
    "LOGIT": lambda ca, a: ca.log(a / (1.0 - a)),
    "HUBER": _huber,
    "ENTR": lambda ca, a: -a * ca.log(a),
    "SINC": _sinc,
    "RAMP": _ramp,
    "STEP": _step,
}
