"""The casadi translation of a tape: values, Jacobian and Hessian against torch; presolve; the error paths."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from snapfm import Equality
from snapfm.compile import CompiledLaws, compile_laws
from snapfm.errors import MissingDependency, UnsupportedLaw
from snapfm.kernels.operators import ZERO_HESSIAN, Op
from snapfm.laws import Params
from snapfm.solve.base import limits_of
from snapfm_bench.peers.model import CasadiModel, casadi

SHAPE = (3, 5)
EPS = torch.finfo(torch.float64).eps

# Operators with constants, params and linear forms around them. tests/kernels/test_operators.py has the casadi form of all.
LAWS = {
    Op.MUL: lambda u, p: u[0] * (2.0 * u[1] - p["c"]) + 1.0,
    Op.DIV: lambda u, p: (u[0] + 1.0) / (u[1] + 3.0),
    Op.POW: lambda u, p: (u[0] - u[1]) ** 3 - p["c"],
    Op.SQUARE: lambda u, p: ((u - p["c"]) ** 2).sum(0),
    Op.SQRT: lambda u, p: torch.sqrt(u[0] + 4.0),
    Op.EXP: lambda u, p: torch.exp(0.5 * u[1]) - p["c"],
    Op.LOG: lambda u, p: torch.log(u[2] + 5.0),
    Op.SIN: lambda u, p: torch.sin(u).mean(0),
    Op.COS: lambda u, p: torch.cos(u[:, 1:] - u[:, :-1]),
    Op.TANH: lambda u, p: torch.tanh(u[0] + p["c"]),
    Op.SIGMOID: lambda u, p: torch.sigmoid(3.0 * u[1]),
    Op.RECIPROCAL: lambda u, p: torch.reciprocal(u[0] + 4.0),
    Op.RSQRT: lambda u, p: torch.rsqrt(u[0] + 4.0),
    Op.ABS: lambda u, p: (u[0] - 0.1).abs(),
    Op.RELU: lambda u, p: torch.relu(u[0]),
    Op.MAX: lambda u, p: torch.maximum(u[0], u[1] - p["c"]),
    Op.MIN: lambda u, p: torch.minimum(u[0], torch.tensor(0.2, dtype=torch.float64)),
    Op.SELECT: lambda u, p: torch.where(u[0] > u[1], u[2] ** 2, -u[2]),
    Op.GT: lambda u, p: torch.where(u[0] > 0.1, u[1], 2.0 * u[1]),
    Op.GE: lambda u, p: torch.where(u[0] >= p["c"], u[1], 3.0 * u[1]),
}


def structure_of(law: object) -> CompiledLaws:
    return compile_laws([Equality("law", law)], SHAPE, {"c": torch.full((1,), 0.3, dtype=torch.float64)})


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("make", ["SX", "MX"])
@pytest.mark.parametrize("op", list(LAWS), ids=lambda op: op.name)
def test_values_jacobian_and_hessian_are_those_of_torch(op: Op, make: str):
    structure = structure_of(LAWS[op])
    model = CasadiModel(structure, limits_of([], SHAPE), presolve=False)
    assert op in [block.op for block in model.tape.blocks]
    ca = casadi()
    sym = getattr(ca, make).sym
    u, known, weight = sym("u", structure.unknowns), sym("known", model.knowns), sym("weight", structure.rows)
    rows = model.rows(u, known)
    lagrangian = ca.dot(weight, rows)
    function = ca.Function("rows", [u, known, weight], [rows, ca.jacobian(rows, u), ca.hessian(lagrangian, u)[0]])
    params: Params = {"c": torch.tensor([-0.4, 0.0, 0.7], dtype=torch.float64)}
    field, scale = randn(3, *SHAPE, seed=3), randn(3, structure.rows, seed=4)
    values, slopes = structure.residual(field, params), structure.jacobian(field, params)
    hessian = structure.hessian(field, params, scale)
    cells = model.known(params, 3)
    for i in range(3):
        got = [np.array(one) for one in function(field[i].flatten().numpy(), cells[i], scale[i].numpy())]
        # A few roundings of numbers of order ten.
        close = {"rtol": 0, "atol": 1e3 * EPS}
        np.testing.assert_allclose(got[0].ravel(), values[i].numpy(), **close)
        np.testing.assert_allclose(got[1], structure.pattern.csr(slopes[i].numpy()).toarray(), **close)
        np.testing.assert_allclose(got[2], structure.hessian_pattern.csr(hessian[i]).toarray(), **close)
        if op in ZERO_HESSIAN and op != Op.SELECT:
            assert not got[2].any()


def test_a_law_of_constants_is_translated():
    structure = structure_of(lambda u, p: torch.stack([u[0, 0] - 1.0, u[0, 0] * 0.0 + p["c"]]))
    model = CasadiModel(structure, limits_of([], SHAPE), presolve=False)
    ca = casadi()
    u, known = ca.SX.sym("u", 15), ca.SX.sym("known", model.knowns)
    rows = ca.Function("rows", [u, known], [model.rows(u, known)])
    params = {"c": torch.tensor([0.25], dtype=torch.float64)}
    assert np.array(rows(np.full(15, 3.0), model.known(params, 1)[0])).ravel().tolist() == [2.0, 0.25]


def test_presolve_pins_and_drops_what_ours_does(ask):
    question = ask("redundant")
    model = CasadiModel(question.project.structure, question.project.limits, presolve=True)
    raw = CasadiModel(question.project.structure, question.project.limits, presolve=False)
    assert model.fixed.tolist() == [0, 5, 10]
    assert model.pins.tolist() == [0, 1, 2]
    assert model.kept.tolist() == [4, 5, 6, 7, 8]  # row 3, the first total, repeats the start
    assert model.free.tolist() == [i for i in range(15) if i % 5]
    assert raw.kept.tolist() == list(range(9))
    assert not len(raw.pins)
    assert torch.equal(torch.from_numpy(model.pinned(question.params, 3)), question.params["start"])


def test_inputs_are_kept_while_params_recur(ask):
    question = ask("square")
    model = CasadiModel(question.project.structure, question.project.limits, presolve=True)
    first = model.inputs(question.params, 3)
    assert model.inputs(question.params, 3)[0] is first[0]
    assert model.inputs(dict(question.params), 3)[0] is not first[0]


def test_a_law_without_scalar_form_is_refused():
    structure = structure_of(lambda u, p: torch.sort(u[0]).values - p["c"])
    with pytest.raises(UnsupportedLaw, match=r"a casadi peer expects laws made of arithmetic.*got '.*sort.*'. Rewrite"):
        CasadiModel(structure, limits_of([], SHAPE), presolve=False)


def test_missing_casadi_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "casadi", None)
    with pytest.raises(MissingDependency, match=r"casadi is needed for .* pip install 'snapfm-bench\[peers\]'"):
        casadi()
