"""Derivatives of lowered rows as one program: Jᵀλ, Jacobian and Hessian of batches against dense ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.compile import dense
from torch import Tensor

from snapfm.compile import CompiledLaws, compile_laws, derivatives
from snapfm.compile.derivatives import evaluate_params
from snapfm.laws import Equality

SHAPE = (3, 4)
COUNT = 11  # more than a tile of eight, and not a multiple of it
EPS = torch.finfo(torch.float64).eps
U = torch.rand(COUNT, *SHAPE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
PARAMS = {
    "a": 0.5 + torch.rand(COUNT, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
    "b": torch.rand(COUNT, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64),
}
Function = Callable[[Tensor, dict[str, Tensor]], Tensor]

LAWS: dict[str, Function] = {
    "affine": lambda u, p: u.sum(0) - p["b"],
    "scaled": lambda u, p: p["b"] * u[0] - p["a"],
    "square": lambda u, p: (u**2).sum(1) - p["a"] ** 2,
    "product": lambda u, p: p["a"] * u[1:] * u[:-1] - torch.sin(u[1:]),
    "quotient": lambda u, p: u[0] / (1.0 + p["b"] * u[1] ** 2) + torch.exp(u[2] * u[0]),
    "triple": lambda u, p: u[0] * u[1] * u[2] * p["b"],
    "kinks": lambda u, p: torch.relu(u - p["b"]) + torch.maximum(u, u.flip(0)) * u,
    "choice": lambda u, p: torch.where(p["b"] > 0.5, u[0] ** 2, u[1] * u[2]),
    "row of params": lambda u, p: torch.cat([p["b"] - 1.0, u[0, :1] ** 3]),
    "total": lambda u, p: (torch.log(1.0 + u).sum() * p["a"])[None],
}


def compiled(*names: str) -> CompiledLaws:
    return compile_laws([Equality(name, LAWS[name]) for name in names], SHAPE, PARAMS)


def weights(rows: int) -> Tensor:
    return torch.randn(COUNT, rows, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("names", [(name,) for name in LAWS] + [tuple(LAWS)], ids=lambda names: " ".join(names[:2]))
def test_derivatives_of_a_batch_equal_dense_ones(names: tuple[str, ...]):
    laws = compiled(*names)
    scalar, weight = laws.scalar, weights(laws.rows)
    assert laws.opaque == {}

    def stacked(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        return torch.cat([LAWS[name](u, p).reshape(-1) for name in names])

    slopes, curvature = scalar.jacobian(U, PARAMS), scalar.hessian(U, PARAMS, weight.numpy())
    pulled = scalar.pull(U, PARAMS, slice(0, laws.rows), weight.numpy())
    assert np.array_equal(slopes, laws.jacobian(U, PARAMS).numpy())
    for i in range(COUNT):
        sample = {name: value[i] for name, value in PARAMS.items()}
        truth = dense.jacobian(stacked, U[i], sample)
        dense.assert_agrees("Jacobian", scalar.program.pattern, torch.from_numpy(slopes[i]), truth, 1e2 * EPS)
        dense.assert_close("Jᵀλ", torch.from_numpy(pulled[i]), weight[i] @ truth, 1e3 * EPS)
        hessian = dense.hessian(stacked, U[i], sample, weight[i])
        dense.assert_agrees("Hessian", scalar.hessian_pattern, torch.from_numpy(curvature[i]), hessian, 1e3 * EPS)


@pytest.mark.parametrize("name", LAWS)
def test_the_pattern_is_that_of_the_program(name: str):
    laws = compiled(name)
    program = laws.scalar.program
    assert np.array_equal(laws.pattern.indptr, program.pattern.indptr)
    assert np.array_equal(laws.pattern.indices, program.pattern.indices)


def test_a_sample_that_is_not_finite_spoils_no_other():
    laws, weight = compiled(*LAWS), weights(compiled(*LAWS).rows).numpy()
    spoiled = U.clone()
    spoiled[4] = torch.nan
    others = np.arange(COUNT) != 4
    scalar, every = laws.scalar, slice(0, laws.rows)
    for clean, beside in (
        (scalar.jacobian(U, PARAMS), scalar.jacobian(spoiled, PARAMS)),
        (scalar.hessian(U, PARAMS, weight), scalar.hessian(spoiled, PARAMS, weight)),
        (scalar.pull(U, PARAMS, every, weight), scalar.pull(spoiled, PARAMS, every, weight)),
    ):
        assert np.array_equal(clean[others], beside[others])
        assert np.isnan(beside[4]).any()


def test_both_triangles_hold_the_same_bits():
    laws = compiled("triple", "quotient")
    values, pattern = laws.scalar.hessian(U, PARAMS, weights(laws.rows).numpy()), laws.scalar.hessian_pattern
    assert pattern is not None
    for one in values:
        matrix = pattern.csr(one).toarray()
        assert np.array_equal(matrix, matrix.T)


def test_values_of_params_are_evaluated_once_per_sample():
    laws = compiled("square", "scaled")
    tape = laws.scalar.tape
    found = evaluate_params(tape, laws.example[0], PARAMS, COUNT)
    assert found.shape == (COUNT, tape.params)
    expected = [(PARAMS["a"] ** 2)[:, None], PARAMS["b"], PARAMS["a"][:, None]]
    assert [(first, size) for first, _, size in tape.graphs] == [(1, 1), (2, 4), (6, 1)]
    assert np.array_equal(found, torch.cat(expected, dim=1).numpy())


def test_float32_fields_are_differentiated_in_float64():
    laws = compiled("product")
    assert np.array_equal(laws.scalar.jacobian(U.float(), PARAMS), laws.scalar.jacobian(U.float().double(), PARAMS))


def test_no_rows_and_rows_without_unknowns():
    scalar = compile_laws([], SHAPE).scalar
    assert scalar.pull(U, {}, slice(0, 0), np.zeros((COUNT, 0))).shape == (COUNT, 12)
    assert scalar.jacobian(U, {}).shape == (COUNT, 0)
    assert scalar.hessian_pattern is not None
    assert scalar.hessian_pattern.nnz == 0
    nobody = compile_laws([Equality("none", lambda u, p: u.sum(0))], (0, 2)).scalar
    nothing = torch.zeros(3, 0, 2, dtype=torch.float64)
    assert nobody.jacobian(nothing, {}).shape == nobody.pull(nothing, {}, slice(0, 2), np.ones((3, 2))).shape == (3, 0)


def test_a_hessian_too_dense_leaves_the_slopes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("snapfm.compile.program.PAIR_LIMIT", 100)
    laws = compile_laws([Equality("square", lambda u, p: u.sum() ** 2)], SHAPE)  # 144 pairs
    assert laws.scalar.hessian_pattern is None
    assert laws.hessian_pattern is None
    truth = 2 * U.flatten(1).sum(1, keepdim=True).expand(COUNT, 12)
    assert torch.allclose(torch.from_numpy(laws.scalar.jacobian(U, {})), truth, rtol=1e-14)
    weight = np.ones((COUNT, 1))
    np.testing.assert_allclose(laws.scalar.pull(U, {}, slice(0, 1), weight), truth, rtol=1e-14)


def test_long_rows_are_pulled_back_in_pieces(monkeypatch: pytest.MonkeyPatch):
    laws = compiled("square", "total", "affine")
    weight = weights(laws.rows).numpy()
    whole = laws.scalar.pull(U, PARAMS, slice(1, laws.rows), weight[:, 1:])
    monkeypatch.setattr(derivatives, "_ENTRIES_A_PIECE", 3)
    pieces = laws.scalar.pull(U, PARAMS, slice(1, laws.rows), weight[:, 1:])
    assert np.allclose(pieces, whole, rtol=0.0, atol=8 * EPS * np.abs(whole).max())
