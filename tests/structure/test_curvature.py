"""Order of nonlinearity: the kind of each row and the pattern of the Lagrangian Hessian, on laws small enough to see."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from snapfm.errors import UnsupportedLaw
from snapfm.laws import Equality
from snapfm.structure import Pattern, RowKind, compile_laws, curvature
from snapfm.structure.plan import LawPlan

AFFINE, PARAMETRIC, SEPARABLE, GENERAL = RowKind
PARAMS = {"a": torch.ones(1, dtype=torch.float64), "b": torch.ones(1, 4, dtype=torch.float64)}


def planned(law: Callable[..., Tensor], shape: tuple[int, ...] = (4,)) -> LawPlan:
    return compile_laws([Equality("law", law)], shape, PARAMS).plans[0]


def pairs(plan: LawPlan) -> set[tuple[int, int]]:
    pattern = plan.curvature.pattern
    assert pattern is not None
    return set(zip(pattern.row_of().tolist(), pattern.indices.tolist()))


@pytest.mark.parametrize(
    ("law", "kind", "expected"),
    [
        (lambda u, p: 3 * u.sum() - p["a"], AFFINE, set()),
        (lambda u, p: u.sum() - p["a"] ** 2 / p["b"].sum(), AFFINE, set()),
        (lambda u, p: p["a"] * u.sum(), PARAMETRIC, set()),
        (lambda u, p: (u / p["b"]).sum(), PARAMETRIC, set()),
        (lambda u, p: u.flip(0) @ p["b"], PARAMETRIC, set()),
        (lambda u, p: (u**2).sum(), SEPARABLE, {(i, i) for i in range(4)}),
        (lambda u, p: u[0] + u[2] ** 3, SEPARABLE, {(2, 2)}),
        (lambda u, p: p["a"] * torch.sin(u[1]) - u[3], SEPARABLE, {(1, 1)}),
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
        (lambda u, p: u @ torch.diag(torch.arange(4.0).double()) @ u, SEPARABLE, {(1, 1), (2, 2), (3, 3)}),
        (lambda u, p: u[:2].prod(), GENERAL, {(0, 0), (0, 1), (1, 0), (1, 1)}),
    ],
)
def test_kind_and_pairs(law: Callable[..., Tensor], kind: RowKind, expected: set[tuple[int, int]]) -> None:
    plan = planned(law)
    assert plan.curvature.kinds.tolist() == [kind]
    assert pairs(plan) == expected
    assert plan.curvature.diagonal == (kind != GENERAL)


def test_each_row_for_itself() -> None:
    def law(u: Tensor, p: dict[str, Tensor]) -> Tensor:
        return torch.stack([u[0], p["a"] * u[0], u[0] ** 2, u[0] * u[1], p["a"]])

    plan = planned(law)
    assert plan.curvature.kinds.tolist() == [AFFINE, PARAMETRIC, SEPARABLE, GENERAL, AFFINE]
    assert plan.count(AFFINE, PARAMETRIC) == 3
    assert sorted(row for passes in plan.fixed_passes for row in passes.rows) == [0, 4]
    assert sorted(row for passes in plan.varying_passes for row in passes.rows) == [1, 2, 3]


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
    plan = planned(law)
    assert plan.curvature.kinds.tolist() == [PARAMETRIC]
    params = {"a": torch.tensor([2.0, 5.0], dtype=torch.float64), "b": PARAMS_OF_TWO["b"]}
    slopes = plan.jacobian(torch.ones(2, 4, dtype=torch.float64), params)
    assert slopes.tolist() in ([[2.0], [5.0]], [[0.5], [0.2]])


def test_curvature_that_does_not_reach_the_residual_is_dropped() -> None:
    """The square and the product are computed, then sliced away or multiplied by a known zero."""

    def law(u: Tensor, p: object) -> Tensor:
        joined = torch.cat([u, u**2, u[:2] * u[2:]])
        return joined[:4] + torch.tensor([0.0, 0, 0, 1]).double() * u**2

    plan = planned(law)
    assert plan.curvature.kinds.tolist() == [AFFINE, AFFINE, AFFINE, SEPARABLE]
    assert pairs(plan) == {(3, 3)}


def test_constant_slopes_are_computed_once() -> None:
    plan = planned(lambda u, p: torch.stack([2 * u[0] - 3 * u[1], u[2] ** 2]))
    assert plan.constants.tolist() == [2.0, -3.0, 0.0]


def test_hessian_too_dense_to_write_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curvature, "PAIR_LIMIT", 15)
    plan = planned(lambda u, p: u.sum() ** 2)  # 16 pairs
    assert plan.curvature.pattern is None
    assert plan.curvature.kinds.tolist() == [GENERAL]
    u = torch.zeros(2, 4, dtype=torch.float64)
    assert plan.jacobian(u + 1, PARAMS_OF_TWO).tolist() == [[8.0] * 4] * 2
    with pytest.raises(UnsupportedLaw) as refusal:
        plan.hessian(u, PARAMS_OF_TWO, torch.ones(2, 1, dtype=torch.float64))
    assert str(refusal.value) == (
        "law 'law' expects a curvature that couples few unknowns; it couples too many pairs to write out. Introduce the "
        "coupled total as an unknown of its own, or square it outside the law."
    )


PARAMS_OF_TWO = {name: value.expand(2, *value.shape[1:]) for name, value in PARAMS.items()}


def test_bound_by_a_pattern() -> None:
    pattern = Pattern.from_coordinates([0, 0, 2], [1, 3, 0], (3, 4))
    bound = curvature.bounded(pattern)
    assert bound.kinds.tolist() == [GENERAL, AFFINE, SEPARABLE]
    assert bound.pattern is not None
    dense = bound.pattern.csr(np.ones(bound.pattern.nnz)).toarray()
    np.testing.assert_array_equal(dense, [[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 1]])


def test_bound_too_dense_to_write_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curvature, "PAIR_LIMIT", 8)
    assert curvature.bounded(Pattern.from_coordinates([0, 0, 0], [0, 1, 2], (1, 4))).pattern is None
