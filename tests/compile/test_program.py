"""Lowered programs: values, Jacobians, Hessians and gradients against dense ones, lane by lane; what they are cut down to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

from snapfm.compile import CompiledLaws, compile_laws
from snapfm.compile.lower import Tape, Unlowerable
from snapfm.compile.program import Program, build_program
from snapfm.kernels import operators
from snapfm.kernels.operations import LANES
from snapfm.kernels.operators import Op
from snapfm.kernels.program import tile_gradient, tile_hessian, tile_partials, tile_slopes, tile_values
from snapfm.laws import Equality

LAWS = {
    "arithmetic": lambda u, p: (u[1:] * u[:-1] - p["a"] * u[1:]) / (2.0 + u[:-1] ** 2) - 1.5,
    "waves": lambda u, p: torch.sin(u[:, 1:]) * torch.cos(u[:, :-1]) + torch.tanh(u[:, 1:] - p["a"]),
    "growth": lambda u, p: torch.exp(0.3 * u).sum(0) + torch.log(3.0 + u[0]) + torch.sigmoid(u[1]) * p["a"],
    "powers": lambda u, p: (2.5 + u) ** 1.5 + torch.sqrt(4.0 + u) - (3.0 + u).reciprocal() + torch.rsqrt(3.0 + u),
    "choices": lambda u, p: torch.where(u > p["a"], u**3, -u) + u.abs() + torch.relu(u) + u.clamp(-0.5, 0.5),
    "extremes": lambda u, p: torch.maximum(u[1:], u[:-1]) * torch.minimum(u[1:], p["a"] * u[:-1]),
    "contraction": lambda u, p: (u @ u.T) @ torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]], dtype=torch.float64),
    "scan": lambda u, p: torch.cumsum(u, 1) ** 2 + u.mean() * torch.einsum("x,xt->t", torch.arange(3.0).double(), u),
    "writing": lambda u, p: _written(u),
    "products": lambda u, p: u[:, :3].prod(0) + u[:, 3:].prod() * p["a"],
    "norms": lambda u, p: u.norm(dim=0) * u.norm() - torch.linalg.vector_norm(u, dim=(0, 1), keepdim=True),
}


def _written(u: Tensor) -> Tensor:
    out = torch.zeros_like(u)
    out[1:] = u[1:] * u[:-1]
    out[0] += u[0] ** 2
    return out


def _whole(program: Program, u: Tensor, outside: np.ndarray) -> tuple[np.ndarray, ...]:
    """Run a program on one sample, put into every lane: rows, Jacobian values, Hessian values for weights 1, 2, 3, …"""
    cells = np.zeros(program.cells * LANES)
    lanes = cells.reshape(-1, LANES)
    lanes[0] = 1.0
    inputs = np.concatenate([u.flatten().numpy()[program.unknowns], outside[program.externals]])
    lanes[1 : program.code.first] = inputs[:, None]
    m = program.pattern.rows
    rows, partial = np.zeros(m * LANES), np.zeros(5 * program.operations * LANES)
    slots, left, right = (np.zeros((program.slots + 1) * LANES) for _ in range(3))
    entries = np.repeat(program.constants, LANES)
    weight = np.repeat(np.arange(1.0, m + 1), LANES)
    adjoint, hessian = np.zeros(program.operations * LANES), np.zeros(program.hessian.nnz * LANES)
    tile_values(program.code, cells, rows)
    tile_partials(program.code, cells, True, partial)
    tile_slopes(program.code, partial, slots, left, right, entries)
    tile_hessian(program.code, weight, left, right, partial, adjoint, hessian)
    gradient = np.zeros(len(cells))
    tile_gradient(program.code, cells, weight, partial, gradient)
    return tuple(array.reshape(-1, LANES) for array in (rows, entries, hessian, gradient))


@pytest.mark.parametrize("name", LAWS)
def test_values_and_derivatives_equal_dense_ones_in_every_lane(name: str):
    law = Equality(name, LAWS[name])
    params = {"a": torch.tensor([0.4], dtype=torch.float64)}
    scalar = compile_laws([law], (3, 5), params).scalar
    tape = scalar.tape
    program = build_program(tape, scalar.rows, np.arange(15))
    u, sample = (
        torch.randn(3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64),
        {"a": params["a"][0]},
    )
    outside = np.zeros(tape.cells)
    for first, graph, size in tape.externals:
        outside[first : first + size] = graph(u, sample).reshape(-1).numpy()
    rows, entries, curvature, gradient = _whole(program, u, outside)

    def residual(x: Tensor) -> Tensor:
        return law.residual(x, sample).reshape(-1)

    def total(x: Tensor) -> Tensor:
        return (torch.arange(1.0, program.pattern.rows + 1).double() * residual(x)).sum()

    tolerance = 1e3 * torch.finfo(torch.float64).eps * max(1.0, float(residual(u).abs().max()))
    dense = torch.func.jacrev(residual)(u).reshape(-1, 15).numpy()
    hessian = torch.func.hessian(total)(u).reshape(15, 15).numpy()
    slope = torch.func.grad(total)(u).flatten().numpy()
    for lane in range(LANES):
        assert np.abs(rows[:, lane] - residual(u).numpy()).max() <= tolerance
        assert np.abs(program.pattern.csr(entries[:, lane]).toarray() - dense).max() <= tolerance
        assert np.abs(program.hessian.csr(curvature[:, lane]).toarray() - np.tril(hessian)).max() <= 100 * tolerance
        found = np.zeros(15)
        found[program.unknowns] = gradient[1 : 1 + len(program.unknowns), lane]
        assert np.abs(found - slope).max() <= 100 * tolerance


def _compiled(function: Callable[..., Tensor]) -> CompiledLaws:
    return compile_laws([Equality("law", function)], (4,))


def test_a_program_holds_only_what_its_rows_need():
    scalar = _compiled(lambda u, p: torch.stack([u[0] * u[1], torch.exp(u[2]), u[3]])).scalar
    first = build_program(scalar.tape, csr_array(scalar.rows[[0]]), np.arange(4))
    assert (first.operations, first.unknowns.tolist(), first.pattern.indices.tolist()) == (1, [0, 1], [0, 1])
    last = build_program(scalar.tape, csr_array(scalar.rows[[2]]), np.arange(4))
    assert (last.operations, last.unknowns.tolist(), last.varying.tolist()) == (0, [3], [])
    assert last.constants.tolist() == [1.0]
    assert last.hessian.nnz == 0


def test_derivatives_by_some_unknowns_only():
    """By unknowns 3 and 1, in that order: what comes of the others is a number."""
    scalar = _compiled(lambda u, p: (u[0] * u[1] * u[3] + u[2] ** 2)[None]).scalar
    program = build_program(scalar.tape, scalar.rows, np.array([3, 1]))
    assert program.pattern.columns == 2
    assert program.pattern.indices.tolist() == [0, 1]
    assert list(zip(program.hessian.row_of().tolist(), program.hessian.indices.tolist())) == [(1, 0)]
    assert not program.diagonal
    nothing = build_program(scalar.tape, scalar.rows, np.zeros(0, np.int64))
    assert (nothing.pattern.nnz, nothing.hessian.nnz, nothing.slots) == (0, 0, 0)
    assert nothing.unknowns.tolist() == [0, 1, 2, 3]


def test_a_hessian_too_dense_is_refused_or_left_out(monkeypatch: pytest.MonkeyPatch):
    scalar = _compiled(lambda u, p: (u.sum() ** 2)[None]).scalar
    monkeypatch.setattr("snapfm.compile.program.PAIR_LIMIT", 15)
    with pytest.raises(Unlowerable, match="curvature that couples more than 15 pairs of unknowns"):
        build_program(scalar.tape, scalar.rows, np.arange(4))
    program = build_program(scalar.tape, scalar.rows, np.arange(4), second=False)
    assert (program.pattern.nnz, program.hessian.nnz) == (4, 0)


def test_no_rows():
    tape = Tape(3)
    program = build_program(tape, csr_array((0, tape.cells)), np.arange(3))
    assert (program.operations, program.pattern.rows, program.pattern.nnz) == (0, 0, 0)
    assert program.diagonal


@pytest.fixture
def hypot(monkeypatch: pytest.MonkeyPatch) -> Op:
    """Add an operator to the table whose second partials are all non-zero."""
    for table in ("VALUES", "SLOPES", "SECOND_PARTIALS", "BY_LANE"):
        monkeypatch.setattr(operators, table, {})
    monkeypatch.setattr(operators._Table, "rows", dict(operators._Table.rows))
    by_a, by_b = "div(a, value)", "div(b, value)"
    second = "div(mul(by_b, by_b), value), fnma(by_a, div(by_b, value), zero), div(mul(by_a, by_a), value)"
    value = "root(add(mul(a, a), mul(b, b)))"
    return operators._row("HYPOT", value=value, slopes=f"{by_a}, {by_b}", second_partials=second)


def test_a_new_operator_of_two_operands_keeps_all_its_second_partials(hypot: Op):
    tape = Tape(3)
    tape.apply(hypot, tape.unit(0, 1, (1,)), tape.unit(2, 1, (1,)))
    row = csr_array(([1.0], [tape.cells - 1], [0, 1]), shape=(1, tape.cells))
    hessian = build_program(tape, row, np.arange(3)).hessian
    assert list(zip(hessian.row_of().tolist(), hessian.indices.tolist())) == [(0, 0), (2, 0), (2, 2)]


@pytest.mark.parametrize("op", [op for op in Op if op.arity > 1 and not op.parameter], ids=repr)
def test_every_operator_of_two_operands_has_the_hessian_that_its_partials_say(op: Op):
    tape = Tape(3)
    tape.apply(op, *(tape.unit(i, 1, (1,)) for i in range(op.arity)))
    row = csr_array(([1.0], [tape.cells - 1], [0, 1]), shape=(1, tape.cells))
    hessian = build_program(tape, row, np.arange(3)).hessian
    expected = [((0, 0), (1, 0), (1, 1))[kind] for kind in op.curved]
    assert list(zip(hessian.row_of().tolist(), hessian.indices.tolist())) == expected
