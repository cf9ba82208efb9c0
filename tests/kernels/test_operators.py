"""Every row of the table of operators: value and derivatives against torch, range, casadi, and the same bits in every lane."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numba import njit
from torch import Tensor

from snapfm.kernels.numba.packs import load, store
from snapfm.kernels.operations import LANES, apply, second_partials, slopes
from snapfm.kernels.operators import ZERO_GRADIENT, ZERO_HESSIAN, Op

EPS = torch.finfo(torch.float64).eps


@dataclass(frozen=True)
class Reference:
    """The same function in torch, ordinary first operands, extreme ones, and second and third operands for all."""

    function: Callable[..., Tensor]
    ordinary: tuple[float, ...]
    extreme: tuple[float, ...] = ()
    b: float = 0.7
    c: float = 1.0


WAVES = (-2.5, -1.0, -0.3, 0.0, 0.4, 1.2, 3.7)
POSITIVE = (0.2, 0.5, 1.0, 1.7, 3.0)
INSIDE = (-0.9, -0.4, 0.0, 0.3, 0.8)
HUGE = (-1e200, -800.0, -1e-300, 1e-300, 800.0, 1e200)
STEPS = (-2.5, -1.5, -0.5, -0.2, 0.5, 0.7, 1.5, 2.5)

REFERENCES = {
    Op.MUL: Reference(lambda a, b: a * b, WAVES, HUGE),
    Op.DIV: Reference(lambda a, b: a / b, WAVES, HUGE),
    Op.POW: Reference(lambda a, b: a**b, POSITIVE, (1e-200, 1e100), b=2.3),
    Op.SQUARE: Reference(torch.square, WAVES, (-1e100, 1e100)),
    Op.SQRT: Reference(torch.sqrt, POSITIVE, (1e-150, 1e200)),
    Op.EXP: Reference(torch.exp, WAVES, (-800.0, 700.0)),
    Op.LOG: Reference(torch.log, POSITIVE, (1e-150, 1e200)),
    Op.SIN: Reference(torch.sin, WAVES, (1e8,)),
    Op.COS: Reference(torch.cos, WAVES, (1e8,)),
    Op.TANH: Reference(torch.tanh, WAVES, HUGE),
    Op.SIGMOID: Reference(torch.sigmoid, WAVES, HUGE),
    Op.RECIPROCAL: Reference(torch.reciprocal, POSITIVE, (-1e-100, 1e100)),
    Op.RSQRT: Reference(torch.rsqrt, POSITIVE, (1e-100, 1e100)),
    Op.ABS: Reference(torch.abs, WAVES, HUGE),
    Op.RELU: Reference(torch.relu, WAVES, HUGE),
    Op.MAX: Reference(torch.maximum, WAVES, HUGE),
    Op.MIN: Reference(torch.minimum, WAVES, HUGE),
    Op.SELECT: Reference(lambda a, b, c: torch.where(c != 0.0, a, b), WAVES, HUGE),
    Op.GT: Reference(lambda a, b: (a > b).double(), WAVES, HUGE),
    Op.GE: Reference(lambda a, b: (a >= b).double(), (*WAVES, 0.7), HUGE),
    Op.EQ: Reference(lambda a, b: (a == b).double(), (*WAVES, 0.7), HUGE),
    Op.HOLD: Reference(lambda a: a.detach(), WAVES, HUGE),
    Op.SIGN: Reference(torch.sign, WAVES, HUGE),
    Op.FLOOR: Reference(torch.floor, STEPS, HUGE),
    Op.CEIL: Reference(torch.ceil, STEPS, HUGE),
    Op.TRUNC: Reference(torch.trunc, STEPS, HUGE),
    Op.ROUND: Reference(torch.round, STEPS, HUGE),
    Op.TAN: Reference(torch.tan, WAVES, (1e8, 1e-300)),
    Op.SINH: Reference(torch.sinh, WAVES, (-700.0, 1e-300, 700.0)),
    Op.COSH: Reference(torch.cosh, WAVES, (-700.0, 1e-300, 700.0)),
    Op.ASIN: Reference(torch.asin, INSIDE, (-1.0 + 1e-6, 1e-300, 1.0 - 1e-6)),
    Op.ACOS: Reference(torch.acos, INSIDE, (-1.0 + 1e-6, 1e-300, 1.0 - 1e-6)),
    Op.ATAN: Reference(torch.atan, WAVES, (-1e100, 1e-300, 1e70)),
    Op.ASINH: Reference(torch.asinh, WAVES, (-1e70, 1e-300, 1e70)),
    Op.ACOSH: Reference(torch.acosh, (1.2, 2.0, 5.0), (1.0 + 1e-6, 1e70)),
    Op.ATANH: Reference(torch.atanh, INSIDE, (-1.0 + 1e-6, 1e-300, 1.0 - 1e-6)),
    Op.LOG1P: Reference(torch.log1p, (-0.7, *POSITIVE), (-1.0 + 1e-6, 1e-300, 1e70)),
    Op.EXPM1: Reference(torch.expm1, WAVES, (-800.0, 1e-300, 700.0)),
    Op.EXP2: Reference(torch.exp2, WAVES, (-1000.0, 1000.0)),
    Op.LOG2: Reference(torch.log2, POSITIVE, (1e-100, 1e100)),
    Op.LOG10: Reference(torch.log10, POSITIVE, (1e-100, 1e100)),
    Op.ERF: Reference(torch.erf, WAVES, HUGE[1:5]),
    Op.ERFC: Reference(torch.erfc, WAVES, (*HUGE[1:5], 20.0)),
    Op.SILU: Reference(F.silu, WAVES, HUGE[1:5]),
    Op.SOFTPLUS: Reference(lambda a, b: F.softplus(a, 1.0, 20.0), (*WAVES, 19.9, 20.1), HUGE[1:5], b=20.0),
    Op.GELU: Reference(F.gelu, WAVES, HUGE[1:5]),
    Op.GELU_TANH: Reference(lambda a: F.gelu(a, approximate="tanh"), WAVES, HUGE[1:5]),
    Op.MISH: Reference(F.mish, WAVES, HUGE[1:5]),
    Op.LOGIT: Reference(torch.logit, (0.1, 0.4, 0.9), (1e-100, 1.0 - 1e-6)),
    Op.ENTR: Reference(torch.special.entr, POSITIVE, (1e-100, 1e100)),
    Op.SINC: Reference(torch.sinc, (-2.5, -0.4, 1.2, 3.7), (-0.09, 1e3)),  # near 0 torch cancels, and at 0 it gives NaN
    Op.RAMP: Reference(lambda a, b: 0.5 * (a + torch.hypot(a, 2 * b)) - b, WAVES, HUGE),
    Op.STEP: Reference(lambda a, b: 0.5 + 0.5 * a / torch.hypot(a, 2 * b), WAVES, HUGE),
    Op.HUBER: Reference(lambda a, b: F.huber_loss(a, 0 * a, reduction="none", delta=0.7), WAVES, HUGE[1:5]),
}


@njit
def _evaluate(
    op, cells, out
):  # packs of cells: a, b, c, two to spill to; of out: value, two slopes, three of curvature
    a, b, c = load(cells, 0), load(cells, 1), load(cells, 2)
    value = apply(op, a, b, c, cells, 3)
    by_a, by_b = slopes(op, a, b, c, value, cells, 3)
    by_aa, by_ab, by_bb = second_partials(op, a, b, value, by_a, by_b, cells, 3)
    store(out, 0, value)
    store(out, 1, by_a)
    store(out, 2, by_b)
    store(out, 3, by_aa)
    store(out, 4, by_ab)
    store(out, 5, by_bb)


def evaluate(op: Op, a: float, b: float, c: float) -> np.ndarray:
    cells, out = np.repeat([a, b, c, 0.0, 0.0], LANES), np.zeros(6 * LANES)
    cells[: LANES - 1] = 0.3  # other samples beside the one in the last lane
    _evaluate(int(op), cells, out)
    return out.reshape(6, LANES)[:, -1]


def by_torch(op: Op, reference: Reference, a: float) -> np.ndarray:
    """Value, slopes and curvature by reverse differentiation, twice."""
    operands = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (a, reference.b, reference.c)]
    value = reference.function(*operands[: op.arity])
    out = [value.detach()]
    first = [_derivative(value, operand) for operand in operands[:2]]
    if op.parameter:
        first[1] = torch.zeros(())
    second = [
        _derivative(first[0], operands[0]),
        _derivative(first[0], operands[1]),
        _derivative(first[1], operands[1]),
    ]
    if op.parameter:
        second[1:] = [torch.zeros(()), torch.zeros(())]
    return np.array([float(part.detach()) for part in (*out, *first, *second)])


def _derivative(value: Tensor, by: Tensor) -> Tensor:
    if not value.requires_grad:
        return torch.zeros(())
    found = torch.autograd.grad(value, by, create_graph=True, allow_unused=True)[0]
    return torch.zeros(()) if found is None else found


def test_every_operator_has_a_reference() -> None:
    assert set(REFERENCES) == set(Op)
    assert [int(op) for op in Op] == list(range(len(Op)))


@pytest.mark.parametrize("op", list(REFERENCES), ids=lambda op: op.name)
def test_value_and_derivatives_are_those_of_torch(op: Op) -> None:
    reference = REFERENCES[op]
    for a in reference.ordinary:
        found, expected = evaluate(op, a, reference.b, reference.c), by_torch(op, reference, a)
        np.testing.assert_allclose(found, expected, rtol=100 * EPS, atol=100 * EPS, err_msg=f"at {a}")


@pytest.mark.parametrize("op", list(REFERENCES), ids=lambda op: op.name)
def test_extreme_operands(op: Op) -> None:
    """Where torch's own derivative is a number, so is ours. Near an edge torch cancels, so that ten digits must do."""
    reference = REFERENCES[op]
    for a in reference.extreme:
        found, expected = evaluate(op, a, reference.b, reference.c), by_torch(op, reference, a)
        known = np.isfinite(expected)
        np.testing.assert_allclose(found[known], expected[known], rtol=1e-9, atol=1e-290, err_msg=f"at {a}")
        assert not np.isnan(found).any(), a


@pytest.mark.parametrize("op", list(REFERENCES), ids=lambda op: op.name)
def test_kind_and_range_are_what_the_derivatives_say(op: Op) -> None:
    reference, (low, high) = REFERENCES[op], op.range
    found = np.array([evaluate(op, a, reference.b, reference.c) for a in (*reference.ordinary, *reference.extreme)])
    assert (op in ZERO_GRADIENT) == (not found[:, 1:].any())
    assert (op in ZERO_HESSIAN) == (not found[:, 3:].any())
    assert (found[:, 0] >= low).all()
    assert (found[:, 0] <= high).all()


@pytest.mark.parametrize("op", list(REFERENCES), ids=lambda op: op.name)
def test_second_partials_that_the_table_lists_are_those_that_torch_finds(op: Op) -> None:
    """A partial that is not listed would have no term in any Hessian."""
    reference = REFERENCES[op]
    others = (reference.b, 1.3 * reference.b + 0.1)
    second = [by_torch(op, replace(reference, b=b), a)[3:] for a in reference.ordinary for b in others]
    found = np.nonzero((np.abs(np.nan_to_num(second)) > 100 * EPS).any(axis=0))[0]
    assert op.curved == tuple(found.tolist())


@pytest.mark.parametrize("op", [op for op in REFERENCES if op.range[0] < 0.0 and math.isfinite(op.range[0])], ids=repr)
def test_lower_end_of_the_range_is_not_passed(op: Op) -> None:
    reference = REFERENCES[op]
    inside = [a for a in np.linspace(-4.0, 4.0, 4001) if op not in (Op.ASIN,) or abs(a) < 1.0]
    assert min(evaluate(op, a, reference.b, reference.c)[0] for a in inside) >= op.range[0]


@pytest.mark.parametrize("op", list(REFERENCES), ids=lambda op: op.name)
def test_casadi_writes_the_same_function(op: Op) -> None:
    ca = pytest.importorskip("casadi")
    written = pytest.importorskip("snapfm_bench.peers.casadi_operators").written
    reference = REFERENCES[op]
    symbol = ca.SX.sym("a")
    value = written(op, ca, symbol, *(reference.b, reference.c)[: op.arity - 1])
    slope = ca.jacobian(value, symbol)
    function = ca.Function("row", [symbol], [value, slope, ca.jacobian(slope, symbol)])
    halves = op == Op.ROUND  # casadi has no rounding of halves to even
    kinks = (0.0,) if op in (Op.ABS, Op.RELU) else ()
    for a in reference.ordinary:
        if (halves and a % 1.0 == 0.5) or a in kinks:
            continue
        expected = evaluate(op, a, reference.b, reference.c)[[0, 1, 3]]
        if op == Op.HOLD:  # casadi has no value without a slope
            expected = np.array([a, 1.0, 0.0])
        np.testing.assert_allclose([float(one) for one in function(a)], expected, rtol=1e3 * EPS, atol=1e3 * EPS)


def test_powers_zero_and_one_at_zero_have_slopes() -> None:
    """The exponent may come from params: 0 and 1 must not give 0·∞."""
    assert evaluate(Op.POW, 0.0, 0.0, 0.0).tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert evaluate(Op.POW, 0.0, 1.0, 0.0).tolist() == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert evaluate(Op.POW, -2.0, 3.0, 0.0).tolist() == [-8.0, 12.0, 0.0, -12.0, 0.0, 0.0]


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_states_of_a_kink_are_straight_pieces(weight: float) -> None:
    for a in (-2.0, 0.0, 1e-12, 3.0):
        assert evaluate(Op.RAMP, a, -1.0 - weight, 0.0)[:4] == pytest.approx([weight * a, weight, 0.0, 0.0])
        assert evaluate(Op.RAMP, a, -3.0 - weight, 0.0)[:4] == pytest.approx([0.0, weight, 0.0, 0.0])
        for state in (-1.0 - weight, -3.0 - weight):
            assert evaluate(Op.STEP, a, state, 0.0)[:4] == pytest.approx([weight, 0.0, 0.0, 0.0])


def test_a_smoothing_of_no_width_is_the_kink() -> None:
    for a in (-2.0, 1.5):
        assert evaluate(Op.RAMP, a, 0.0, 0.0)[:2].tolist() == [max(a, 0.0), float(a > 0.0)]
        assert evaluate(Op.STEP, a, 0.0, 0.0)[:2].tolist() == [float(a > 0.0), 0.0]
    assert np.isfinite(evaluate(Op.RAMP, 0.0, 0.0, 0.0)).all()
    assert np.isfinite(evaluate(Op.STEP, 0.0, 0.0, 0.0)).all()


@pytest.mark.parametrize("op", [op for op in REFERENCES if op not in (Op.GT, Op.GE, Op.EQ, Op.SELECT)], ids=repr)
def test_not_a_number_stays_visible(op: Op) -> None:
    assert math.isnan(evaluate(op, math.nan, 0.7, 1.0)[0])


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(AttributeError, match="the table of operators has no COTANGENT"):
        _ = Op.COTANGENT


def test_an_operator_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(Op.TAN)) is Op.TAN
