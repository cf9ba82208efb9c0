"""What rows read: the kind of each row, the pattern of Jacobian and Hessian, on laws and tapes small enough to see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from tests.compile import dense
from torch import Tensor

from snapfm.compile import CompiledLaws, RowKind, compile_laws
from snapfm.compile.lower import Tape
from snapfm.compile.sparsity.pattern import Sets
from snapfm.compile.sparsity.reads import CellReads, cell_reads, reads, row_kinds, row_slopes
from snapfm.kernels.operators import Op
from snapfm.laws import Equality

AFFINE, PARAMETRIC, SEPARABLE, GENERAL = RowKind
PARAMS = {"a": torch.ones(1, dtype=torch.float64), "b": torch.ones(1, 4, dtype=torch.float64)}
PARAMS_OF_TWO = {name: value.expand(2, *value.shape[1:]) for name, value in PARAMS.items()}


def compiled(law: Callable[..., Tensor], shape: tuple[int, ...] = (4,)) -> CompiledLaws:
    return compile_laws([Equality("law", law)], shape, PARAMS)


@pytest.mark.parametrize(
    ("law", "kind", "expected"),
    [
        (lambda u, p: 3 * u.sum() - p["a"], AFFINE, set()),
        (lambda u, p: u.sum() - p["a"] ** 2 / p["b"].sum(), AFFINE, set()),
        (lambda u, p: p["a"] * u.sum(), PARAMETRIC, set()),
        (lambda u, p: (u / p["b"]).sum(), PARAMETRIC, set()),
        (lambda u, p: u.flip(0) @ p["b"], PARAMETRIC, set()),
        (lambda u, p: torch.where(p["b"] > 0.5, u, -u).sum(), PARAMETRIC, set()),
        (lambda u, p: (u**2).sum(), SEPARABLE, {(i, i) for i in range(4)}),
        (lambda u, p: u[0] + u[2] ** 3, SEPARABLE, {(2, 2)}),
        (lambda u, p: p["a"] * torch.sin(u[1]) - u[3], SEPARABLE, {(1, 1)}),
        (lambda u, p: u[0] * torch.exp(u[0]) / u[0], SEPARABLE, {(0, 0)}),
        (lambda u, p: u.abs().sum(), SEPARABLE, set()),
        (lambda u, p: torch.maximum(u[0], u[1]), SEPARABLE, set()),
        (lambda u, p: torch.where(u[0] > 0, u[1], u[2]), SEPARABLE, set()),
        (lambda u, p: torch.where(u[0] > 0, u[1] ** 2, u[2]), SEPARABLE, {(1, 1)}),
        (lambda u, p: torch.floor(u).sum() + u[3], SEPARABLE, set()),
        (lambda u, p: u[0] * u[1], GENERAL, {(0, 1), (1, 0)}),
        (lambda u, p: u[0] / u[1], GENERAL, {(0, 1), (1, 0), (1, 1)}),
        (lambda u, p: (u[0] + u[1]) ** 2, GENERAL, {(0, 0), (0, 1), (1, 0), (1, 1)}),
        (lambda u, p: u[0] * u[1] + u[2] ** 2, GENERAL, {(0, 1), (1, 0), (2, 2)}),
        (lambda u, p: u[0] * u[1] * u[2], GENERAL, {(i, j) for i in range(3) for j in range(3) if i != j}),
        (lambda u, p: torch.exp(u[0] * u[1]), GENERAL, {(0, 0), (0, 1), (1, 0), (1, 1)}),
        (lambda u, p: u[0] * torch.sin(u[1]), GENERAL, {(0, 1), (1, 0), (1, 1)}),
        (lambda u, p: torch.relu(u[0] * u[1]), GENERAL, {(0, 1), (1, 0)}),
        (lambda u, p: u @ torch.diag(torch.arange(4.0).double()) @ u, SEPARABLE, {(1, 1), (2, 2), (3, 3)}),
        # multilinear: no unknown meets itself
        (lambda u, p: u[:2].prod(), GENERAL, {(0, 1), (1, 0)}),
        (lambda u, p: u[:3].prod(), GENERAL, {(i, j) for i in range(3) for j in range(3) if i != j}),
    ],
)
def test_kind_and_pairs(law: Callable[..., Tensor], kind: RowKind, expected: set[tuple[int, int]]) -> None:
    laws = compiled(law)
    assert laws.opaque == {}
    assert laws.kinds.tolist() == [kind]
    assert dense.pairs(laws.hessian_pattern) == expected
    assert laws.affine == (kind == AFFINE)
    u = 0.1 + torch.rand(2, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    laws.verify(u, PARAMS_OF_TWO)


def test_each_row_for_itself() -> None:
    def law(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        return torch.stack([u[0], p["a"] * u[0], u[0] ** 2, u[0] * u[1], p["a"]])

    laws = compiled(law)
    assert laws.kinds.tolist() == [AFFINE, PARAMETRIC, SEPARABLE, GENERAL, AFFINE]
    assert laws.constants.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]  # of row 0 alone; row 4 has no entry
    assert laws.scalar.program.varying.tolist() == [1, 2, 3, 4]  # entries that a call has to evaluate


def bordered(u: Tensor, p: dict[str, Tensor]) -> Tensor:
    """Put a boundary value from the params before the field."""
    return torch.cat([p["a"][None], u])


@pytest.mark.parametrize(
    "law",
    [
        lambda u, p: (bordered(u, p)[1:] * bordered(u, p)[:-1])[:1],
        lambda u, p: torch.outer(bordered(u, p), u)[0, :1],
        lambda u, p: (bordered(u, p)[:2, None] @ u[None, :2])[:1, 0],
        lambda u, p: u[:1] / bordered(u, p)[:1],
    ],
    ids=["product", "outer", "matrix", "quotient"],
)
def test_boundary_value_from_params_is_no_constant(law: Callable[..., Tensor]) -> None:
    """The product of a param and an unknown, taken from tensors of which other elements read the field."""
    laws = compiled(law)
    assert laws.kinds.tolist() == [PARAMETRIC]
    params = {"a": torch.tensor([2.0, 5.0], dtype=torch.float64), "b": PARAMS_OF_TWO["b"]}
    slopes = laws.jacobian(torch.ones(2, 4, dtype=torch.float64), params)
    assert slopes.tolist() in ([[2.0], [5.0]], [[0.5], [0.2]])


def test_curvature_that_does_not_reach_the_residual_is_dropped() -> None:
    """The square and the product are computed, then sliced away or multiplied by a known zero."""

    def law(u: Tensor, p: object) -> Tensor:
        joined = torch.cat([u, u**2, u[:2] * u[2:]])
        return joined[:4] + torch.tensor([0.0, 0, 0, 1]).double() * u**2

    laws = compiled(law)
    assert laws.kinds.tolist() == [AFFINE, AFFINE, AFFINE, SEPARABLE]
    assert dense.pairs(laws.hessian_pattern) == {(3, 3)}


def test_what_cancels_is_no_entry() -> None:
    """Forms are added before they are looked at."""
    laws = compiled(lambda u, p: torch.stack([u[0] + u[1] - u[0], u[2] ** 2 - u[2] ** 2 + u[3]]))
    assert laws.pattern.counts.tolist()[0] == 1
    assert laws.kinds.tolist()[0] == AFFINE


def test_constant_slopes_are_known_without_a_call() -> None:
    laws = compiled(lambda u, p: torch.stack([2 * u[0] - 3 * u[1], u[2] ** 2]))
    assert laws.constants.tolist() == [2.0, -3.0, 0.0]


def test_hessian_too_dense_to_write_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapfm.compile.program.PAIR_LIMIT", 15)
    laws = compiled(lambda u, p: u.sum() ** 2)  # 16 pairs
    assert laws.kinds.tolist() == [GENERAL]
    assert laws.hessian_pattern is None
    assert laws.nnz == 4
    u = torch.ones(2, 4, dtype=torch.float64)
    assert laws.jacobian(u, PARAMS_OF_TWO).tolist() == [[8.0] * 4] * 2
    laws.check()
    laws.verify(u, PARAMS_OF_TWO)


# Listings written by hand.


def sets_of(sets: Sets) -> list[list[int]]:
    return [sets.indices[a:b].tolist() for a, b in zip(sets.indptr, sets.indptr[1:])]


def test_reads_follow_operations() -> None:
    """The constant is cell 0, unknowns are cells 1..4; cells 5 = u0·u1, 6 = [u2 > cell 5], 7 = cell 6 ? u3 : u2."""
    tape = Tape(4)
    unknown = [tape.unit(1 + i, 1, (1,)) for i in range(4)]
    product = tape.apply(Op.MUL, unknown[0], unknown[1])
    above = tape.apply(Op.GT, unknown[2], product)
    chosen = tape.apply(Op.SELECT, unknown[3], unknown[2], above)
    assert (tape.cells, tape.first_unknown, tape.first_operation) == (8, 1, 5)
    assert sets_of(cell_reads(tape)) == [[], [0], [1], [2], [3], [0, 1], [0, 1, 2], [0, 1, 2, 3]]
    assert sets_of(CellReads(tape, slopes=True).follow()) == [[], [0], [1], [2], [3], [0, 1], [], [2, 3]]
    matrix = csr_array(np.array([[2, 1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 3, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1.0]]))
    found = reads(tape, matrix)
    assert sets_of(found.all) == [[0], [0, 1, 2], [0, 1, 2, 3]]
    assert sets_of(found.nonlinear) == [[], [0, 1], [0, 1, 2, 3]]
    assert sets_of(row_slopes(tape, matrix)) == [[0], [0, 1, 2], [2, 3]]
    # a choice by a product keeps its branches apart, but which one is taken depends on what couples
    assert row_kinds(tape, matrix, cell_reads(tape)).tolist() == [AFFINE, GENERAL, GENERAL]
    assert chosen.size == 1


def test_kinds_of_operations_on_params() -> None:
    """Cell 1 is a param: what it scales is parametric, what it is alone stays affine."""
    tape = Tape(2, params=1)
    param, one, other = (tape.unit(1 + i, 1, (1,)) for i in range(3))
    forms = [
        tape.apply(Op.MUL, param, one),
        tape.apply(Op.DIV, one, param),
        tape.apply(Op.DIV, param, one),
        tape.apply(Op.SQUARE, param),
        tape.apply(Op.MUL, one, one),
        tape.apply(Op.DIV, one, other),
        tape.apply(Op.SELECT, one, other, param),
        tape.apply(Op.MAX, one, param),
    ]
    rows = csr_array(np.concatenate([form.widened(tape.cells).matrix.toarray() for form in forms]))
    expected = [PARAMETRIC, PARAMETRIC, SEPARABLE, AFFINE, SEPARABLE, GENERAL, PARAMETRIC, SEPARABLE]
    assert row_kinds(tape, rows, cell_reads(tape)).tolist() == expected


def test_no_rows_and_no_unknowns() -> None:
    tape = Tape(0)
    nothing = csr_array((0, 1))
    assert reads(tape, nothing).all.size == 0
    assert row_kinds(tape, nothing, cell_reads(tape)).tolist() == []
    constant = csr_array(np.ones((2, 1)))
    assert sets_of(row_slopes(tape, constant)) == [[], []]
    assert row_kinds(tape, constant, cell_reads(tape)).tolist() == [AFFINE, AFFINE]
