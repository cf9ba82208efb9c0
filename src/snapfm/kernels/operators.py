"""The table of scalar operators, one row each. Everything that lists operators is generated from it.

A row says everything about an operator: the torch operators it stands for, its value, its first and second derivatives, and
the range of its values. A new operator is added here and nowhere else. The number of an operator is the place of its row.

A row has one of two forms, by how the operator is evaluated:

- `_row`: expressions over packs of eight lanes, which stay in registers. They read the operands a, b, c, the `value`, the
  slopes by_a and by_b, `zero` and `one`. An operator whose value has no instruction has `lane`, an expression of one
  lane's operands; its derivatives may be expressions over packs.
- `@_smooth`: a function of one lane, for the value and all derivatives.

kernels.operations compiles the table. Imports nothing of snapfm.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

Range: TypeAlias = tuple[float, float]
Lane: TypeAlias = Callable[..., Any]

_ANY: Range = (-math.inf, math.inf)
_POSITIVE: Range = (0.0, math.inf)
_UNIT: Range = (0.0, 1.0)
_SIGNED_UNIT: Range = (-1.0, 1.0)


class _Table(type):
    """Lets operators be named (Op.MUL), listed and counted, as the members of an enumeration are."""

    rows: dict[str, Op] = {}  # noqa: RUF012  the one table, filled by this file only

    def __getattr__(cls, name: str) -> Op:
        if name not in _Table.rows:
            raise AttributeError(f"the table of operators has no {name}")
        return _Table.rows[name]

    def __iter__(cls) -> Iterator[Op]:
        return iter(_Table.rows.values())

    def __len__(cls) -> int:
        return len(_Table.rows)


class Op(int, metaclass=_Table):
    """One operator: its number in programs, and its row of the table.

    `aten` names the torch operators that apply it element by element to their first `arity` arguments. `flat` says that it
    has no slope. `curved` lists the second partials that are not zero everywhere: 0 for f_aa, 1 for f_ab, 2 for f_bb; an
    operator without any is `straight`. `parameter` says that operand b has no slope: it must not depend on the field. `range`
    holds for any operands.
    """

    name: str
    aten: tuple[str, ...]
    arity: int
    zero_gradient: bool
    curved: tuple[int, ...]
    zero_hessian: bool
    parameter: bool
    range: Range

    def __repr__(self) -> str:
        return f"Op.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (Op, self.name)


NO_SLOPES, NO_SECOND_PARTIALS = "zero, zero", "zero, zero, zero"
VALUES: dict[Op, str] = {}  # expressions over packs
SLOPES: dict[Op, str] = {}
SECOND_PARTIALS: dict[Op, str] = {}
BY_LANE: dict[Op, str] = {}  # what assigns f, or f, g and h, from one lane's a and b
FUNCTIONS: dict[str, Lane] = {}


def _row(
    name: str,
    *aten: str,
    value: str = "",
    lane: str = "",
    slopes: str = NO_SLOPES,
    second_partials: str = NO_SECOND_PARTIALS,
    range: Range = _ANY,
) -> Op:
    """Add a row: `value` over packs or `lane` over one lane, and over packs the derivatives.

    `slopes` are f_a and f_b, `second_partials` f_aa, f_ab and f_bb.

    A derivative written as `zero` is zero everywhere, and no term is planned for it.
    """
    op = int.__new__(Op, len(_Table.rows))
    reads = compile(value or lane, name, "eval").co_names
    op.arity = 1 + max("abc".index(operand) for operand in "abc" if operand in reads)
    op.name, op.aten, op.range = name, aten, range
    op.zero_gradient, op.curved = not _nonzero(slopes), _nonzero(second_partials)
    op.zero_hessian = not op.curved
    op.parameter = op.arity == 2 and _nonzero(slopes) == (0,)
    if value:
        VALUES[op] = value
    else:
        BY_LANE[op] = f"f = {lane}"
    SLOPES[op], SECOND_PARTIALS[op] = slopes, second_partials
    _Table.rows[name] = op
    return op


def _nonzero(derivatives: str) -> tuple[int, ...]:
    """Return the places, in a tuple of expressions, of those that are not `zero`."""
    whole = ast.parse(derivatives, mode="eval").body
    assert isinstance(whole, ast.Tuple)
    return tuple(place for place, one in enumerate(whole.elts) if ast.unparse(one) != "zero")


def _smooth(*aten: str, range: Range = _ANY) -> Callable[[Lane], Lane]:
    """Add a row: a function of a, or of a and a parameter b, that returns its value, first and second derivative by a."""

    def decorate(function: Lane) -> Lane:
        arguments = ", ".join(inspect.signature(function).parameters)
        called = f"{function.__name__}({arguments})"
        slope, bend = "called(op, 1, a, b, cells, spill), zero", "called(op, 2, a, b, cells, spill), zero, zero"
        op = _row(_upper(function), *aten, lane=called, slopes=slope, second_partials=bend, range=range)
        BY_LANE[op] = f"f, g, h = {called}"
        FUNCTIONS[function.__name__] = function
        return function

    return decorate


def _upper(function: Lane) -> str:
    return function.__name__.removeprefix("_").upper()


# The table. Comparisons return 0 or 1.

# fmt: off
_row("MUL", value="mul(a, b)", slopes="b, a", second_partials="zero, one, zero")
_row("DIV", value="div(a, b)", slopes="div(one, b), fnma(value, div(one, b), zero)",
     second_partials="zero, fnma(by_a, by_a, zero), mul(full(-2.0), mul(by_b, by_a))")
# the exponent b is a parameter; the exponents 0 and 1, where it varies with params, must not yield 0·∞ at a = 0
_row("POW", lane="a**b",
     slopes="pick(absolute(b), zero, zero, mul(b, called(POW, 0, a, fnma(one, one, b), cells, spill))), zero",
     second_partials="pick(absolute(mul(b, fnma(one, one, b))), zero, zero, "
           "mul(mul(b, fnma(one, one, b)), called(POW, 0, a, fnma(full(2.0), one, b), cells, spill))), zero, zero")
_row("SQUARE", value="mul(a, a)", slopes="add(a, a), zero", second_partials="full(2.0), zero, zero", range=_POSITIVE)
_row("SQRT", "sqrt", value="root(a)", slopes="div(full(0.5), value), zero",
     second_partials="div(mul(full(-0.5), by_a), a), zero, zero", range=_POSITIVE)
_row("EXP", "exp", lane="np.exp(a)", slopes="value, zero", second_partials="value, zero, zero", range=_POSITIVE)
_row("LOG", "log", lane="np.log(a)", slopes="div(one, a), zero", second_partials="fnma(by_a, by_a, zero), zero, zero")
_row("SIN", "sin", lane="np.sin(a)", slopes="called(COS, 0, a, b, cells, spill), zero",
     second_partials="fnma(one, value, zero), zero, zero", range=_SIGNED_UNIT)
_row("COS", "cos", lane="np.cos(a)", slopes="fnma(one, called(SIN, 0, a, b, cells, spill), zero), zero",
     second_partials="fnma(one, value, zero), zero, zero", range=_SIGNED_UNIT)
_row("TANH", "tanh", lane="np.tanh(a)", slopes="fnma(value, value, one), zero",
     second_partials="mul(full(-2.0), mul(value, by_a)), zero, zero", range=_SIGNED_UNIT)
_row("SIGMOID", "sigmoid", lane="1.0 / (1.0 + np.exp(-a))", slopes="mul(value, fnma(one, value, one)), zero",
     second_partials="mul(by_a, fnma(full(2.0), value, one)), zero, zero", range=_UNIT)
_row("RECIPROCAL", "reciprocal", value="div(one, a)", slopes="fnma(value, value, zero), zero",
     second_partials="mul(full(-2.0), mul(by_a, value)), zero, zero")
_row("RSQRT", "rsqrt", value="div(one, root(a))", slopes="div(mul(full(-0.5), value), a), zero",
     second_partials="div(mul(full(-1.5), by_a), a), zero, zero", range=_POSITIVE)
_row("ABS", "abs", value="absolute(a)", slopes="pick(a, zero, pick(zero, a, zero, full(-1.0)), one), zero",
     range=_POSITIVE)
_row("RELU", "relu", value="pick(a, zero, zero, a)", slopes="pick(a, zero, zero, one), zero",
     range=_POSITIVE)
# NaN stays NaN
_row("MAX", "maximum", "fmax", value="pick(b, a, a, pick(a, a, b, a))",
     slopes="pick(b, a, one, zero), fnma(one, pick(b, a, one, zero), one)")
_row("MIN", "minimum", "fmin", value="pick(a, b, a, pick(a, a, b, a))",
     slopes="pick(a, b, one, zero), fnma(one, pick(a, b, one, zero), one)")
_row("SELECT", value="pick(absolute(c), zero, b, a)",
     slopes="pick(absolute(c), zero, zero, one), fnma(one, pick(absolute(c), zero, zero, one), one)")
_row("GT", "gt", value="pick(a, b, zero, pick(a, a, pick(b, b, one, zero), zero))", range=_UNIT)
_row("GE", "ge", value="pick(b, a, one, zero)", range=_UNIT)
_row("EQ", "eq", value="pick(a, b, pick(b, a, one, zero), zero)", range=_UNIT)
# A value without its slope: for detach, and for a shift that cancels in exact arithmetic and only keeps rounding or overflow
# small.
_row("HOLD", "detach", value="a")
_row("SIGN", "sign", value="pick(a, zero, pick(zero, a, zero, full(-1.0)), pick(zero, a, one, a))", range=_SIGNED_UNIT)
_row("FLOOR", "floor", lane="np.floor(a)")
_row("CEIL", "ceil", lane="np.ceil(a)")
_row("TRUNC", "trunc", lane="np.trunc(a)")
_row("ROUND", "round", lane="np.rint(a)")
# fmt: on


@_smooth("tan")
def _tan(a):
    f = math.tan(a)
    slope = 1.0 + f * f
    return f, slope, 2.0 * f * slope


@_smooth("sinh")
def _sinh(a):
    f = math.sinh(a)
    return f, math.cosh(a), f


@_smooth("cosh", range=(1.0, math.inf))
def _cosh(a):
    f = math.cosh(a)
    return f, math.sinh(a), f


@_smooth("asin", range=(-math.pi / 2, math.pi / 2))
def _asin(a):
    slope = 1.0 / math.sqrt((1.0 - a) * (1.0 + a))
    return math.asin(a), slope, a * slope * slope * slope


@_smooth("acos", range=(0.0, math.pi))
def _acos(a):
    slope = -1.0 / math.sqrt((1.0 - a) * (1.0 + a))
    return math.acos(a), slope, a * slope * slope * slope


@_smooth("atan", range=(-math.pi / 2, math.pi / 2))
def _atan(a):
    slope = 1.0 / (1.0 + a * a)
    return math.atan(a), slope, -2.0 * a * slope * slope


@_smooth("asinh")
def _asinh(a):
    slope = 1.0 / math.hypot(1.0, a)
    return math.asinh(a), slope, -a * slope * slope * slope


@_smooth("acosh", range=_POSITIVE)
def _acosh(a):
    slope = 1.0 / (math.sqrt(a - 1.0) * math.sqrt(a + 1.0))
    return math.acosh(a), slope, -a * slope * slope * slope


@_smooth("atanh")
def _atanh(a):
    slope = 1.0 / ((1.0 - a) * (1.0 + a))
    return math.atanh(a), slope, 2.0 * a * slope * slope


@_smooth("log1p")
def _log1p(a):
    slope = 1.0 / (1.0 + a)
    return math.log1p(a), slope, -slope * slope


@_smooth("expm1", range=(-1.0, math.inf))
def _expm1(a):
    slope = math.exp(a)
    return math.expm1(a), slope, slope


@_smooth("exp2", range=_POSITIVE)
def _exp2(a):
    f, log = 2.0**a, math.log(2.0)
    return f, log * f, log * log * f


@_smooth("log2")
def _log2(a):
    log = 1.0 / math.log(2.0)
    return np.log2(a), log / a, -log / a / a


@_smooth("log10")
def _log10(a):
    log = 1.0 / math.log(10.0)
    return math.log10(a), log / a, -log / a / a


@_smooth("erf", range=_SIGNED_UNIT)
def _erf(a):
    slope = 2.0 / math.sqrt(math.pi) * math.exp(-a * a)
    return math.erf(a), slope, -2.0 * a * slope


@_smooth("erfc", range=(0.0, 2.0))
def _erfc(a):
    slope = -2.0 / math.sqrt(math.pi) * math.exp(-a * a)
    return math.erfc(a), slope, -2.0 * a * slope


@_smooth("silu", range=(-0.2785, math.inf))
def _silu(a):
    gate = 1.0 / (1.0 + math.exp(-a))
    rise = gate / (1.0 + math.exp(a))
    return a * gate, gate + a * rise, rise * (2.0 + a * (1.0 - 2.0 * gate))


@_smooth(range=_POSITIVE)
def _softplus(a, b):  # log(1 + eᵃ), and a itself above the threshold b, as torch has it
    if a > b:
        return a, 1.0, 0.0
    small = math.exp(-abs(a))
    slope = (1.0 if a > 0.0 else small) / (1.0 + small)
    return max(a, 0.0) + math.log1p(small), slope, small / (1.0 + small) / (1.0 + small)


@_smooth(range=(-0.17, math.inf))
def _gelu(a):
    share = 0.5 * math.erfc(-a / math.sqrt(2.0))
    density = math.exp(-0.5 * a * a) / math.sqrt(2.0 * math.pi)
    if density == 0.0:  # a² may be infinite
        return a * share, share, 0.0
    return a * share, share + a * density, density * (2.0 - a * a)


@_smooth(range=(-0.171, math.inf))
def _gelu_tanh(a):
    scale, cubic = math.sqrt(2.0 / math.pi), 0.044715
    t = math.tanh(scale * (a + cubic * a * a * a))
    rise, share = (1.0 - t) * (1.0 + t), 0.5 * (1.0 + t)
    if rise == 0.0:  # a² may be infinite
        return a * share, share, 0.0
    inner = scale * (1.0 + 3.0 * cubic * a * a)
    bend = rise * inner + 0.5 * a * rise * (6.0 * scale * cubic * a - 2.0 * t * inner * inner)
    return a * share, share + 0.5 * a * rise * inner, bend


@_smooth("mish", range=(-0.309, math.inf))
def _mish(a):
    small = math.exp(-abs(a))
    t = math.tanh(max(a, 0.0) + math.log1p(small))
    gate = (1.0 if a > 0.0 else small) / (1.0 + small)
    rise = (1.0 - t) * (1.0 + t) * gate  # slope of t
    bend = rise * (small / (1.0 + small) if a > 0.0 else 1.0 / (1.0 + small)) - 2.0 * t * rise * gate
    return a * t, t + a * rise, 2.0 * rise + a * bend


@_smooth()
def _logit(a):
    slope = 1.0 / (a * (1.0 - a))
    return math.log(a / (1.0 - a)), slope, (2.0 * a - 1.0) * slope * slope


@_smooth(range=_POSITIVE)
def _huber(a, b):  # a² / 2 up to |a| = b, straight beyond
    if abs(a) < b:
        return 0.5 * a * a, a, 1.0
    return b * (abs(a) - 0.5 * b), math.copysign(b, a), 0.0


@_smooth("special_entr", range=(-math.inf, 0.368))
def _entr(a):  # −a log a
    if a <= 0.0:
        return (0.0 if a == 0.0 else -math.inf), math.inf, -math.inf
    return -a * math.log(a), -1.0 - math.log(a), -1.0 / a


@_smooth("sinc", range=(-0.218, 1.0))
def _sinc(a):  # sin πa / πa; near zero the quotients would cancel
    x, p = math.pi * a, math.pi
    if abs(x) < 0.3:
        y = x * x
        f = 1.0 - y / 6.0 * (1.0 - y / 20.0 * (1.0 - y / 42.0 * (1.0 - y / 72.0 * (1.0 - y / 110.0))))
        slope = -x / 3.0 * (1.0 - y / 10.0 * (1.0 - y / 28.0 * (1.0 - y / 54.0 * (1.0 - y / 88.0))))
        bend = -1.0 / 3.0 + y / 10.0 - y * y / 168.0 + y * y * y / 6480.0 - y * y * y * y / 443520.0
        return f, p * slope, p * p * bend
    f = math.sin(x) / x
    slope = (math.cos(x) - f) / a
    return f, slope, -p * p * f - 2.0 * slope / a


# A kink as a smooth piece. b ≥ 0 is the width of a smoothing, which has the kink's value on the kink and less by b far from it,
# so that no bound on a sum of kinks becomes infeasible. b = −1 − θ is the linear piece of slope θ in [0, 1]: 0 and 1 are the
# kink's two sides, and a weight between them is used on the kink itself;
# b = −3 − θ has the same slope and the kink's own value, zero, as if a were zero.
# compile.kinks writes max, min, abs, relu and where with them; laws as they are recorded hold neither.


@_smooth()
def _ramp(a, b):  # max(a, 0)
    if b <= -3.0:
        return 0.0 * a, -3.0 - b, 0.0
    if b < 0.0:
        return (-1.0 - b) * a, -1.0 - b, 0.0
    root = math.hypot(a, 2.0 * b)
    if root == 0.0:
        return a, 0.5, 0.0
    f = 0.5 * (root + a) if a > 0.0 else 2.0 * b / (root - a) * b
    return f - b, f / root, 2.0 * (b / root) * (b / root) / root


@_smooth(range=_UNIT)
def _step(a, b):  # 1 where a > 0, else 0: the slope of the ramp
    if b < 0.0:
        return (-1.0 if b > -3.0 else -3.0) - b + 0.0 * a, 0.0, 0.0  # NaN stays NaN
    root = math.hypot(a, 2.0 * b)
    if root == 0.0:
        return 0.5, 0.0, 0.0
    share = (b / root) * (b / root)
    f = (0.5 * (root + a) if a > 0.0 else 2.0 * b / (root - a) * b) / root
    return f, 2.0 * share / root, -6.0 * share * (a / root) / root / root


def by_lane() -> list[str]:
    """Write the statements that assign f, or f, g and h, from one lane's a and b: a branch for each operator that has one."""
    lines: list[str] = []
    for op, statement in BY_LANE.items():
        lines += [f"{'elif' if lines else 'if'} op == {int(op)}:", f"    {statement}"]
    return lines


ZERO_GRADIENT = tuple(op for op in Op if op.zero_gradient)  # no slope
ZERO_HESSIAN = tuple(op for op in Op if op.zero_hessian)  # no curvature
