"""Sequential quadratic programming: laws that are degenerate where Newton's method needs independent rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import snapfm
from snapfm.errors import Status


def linear(rows: np.ndarray, lower: Any, upper: Any) -> snapfm.Oracle:
    """An affine Oracle of a dense matrix."""
    return snapfm.Oracle(
        "rows", lambda u, p: rows @ u, lambda u, p: rows, lower=lower, upper=upper, hessian_pattern=([], [])
    )


def transport(size: int) -> np.ndarray:
    """Row and column sums of a matrix: one of these equations follows from the others."""
    one = np.eye(size)
    return np.concatenate([np.kron(one, np.ones(size)), np.kron(np.ones(size), one)])


@pytest.mark.parametrize("seed", range(3))
def test_doubly_stochastic_matrices_with_a_vertex_as_the_only_answer(seed: int) -> None:
    """All weight far along a permutation: the nearest point is a vertex, where 4x as many limits are active as needed."""
    size, rng = 5, np.random.default_rng(seed)
    rows, goal = transport(size), np.eye(size)[rng.permutation(size)].ravel()
    law = linear(rows, 1.0, 1.0)
    u_hat = torch.from_numpy(1e3 * goal + rng.standard_normal(size * size))[None]
    found = snapfm.Projector([law, snapfm.Bounds(0.0)], (size * size,))(u_hat)
    assert found.converged.all()
    np.testing.assert_allclose(found.u[0].numpy(), goal, atol=1e-8)


@pytest.mark.parametrize("seed", range(6))
def test_linear_rows_that_can_hold_are_never_called_infeasible(seed: int) -> None:
    """Rows of sizes from 1e-3 to 1e3, dependent ones among them, and bounds: HiGHS finds a point, so does the projector."""
    rng = np.random.default_rng(seed)
    n, m = 12, 9
    rows = rng.standard_normal((m, n)) * 10.0 ** rng.uniform(-3, 3, (m, 1))
    rows[-1] = rows[0] + rows[1]
    inside = rng.uniform(0.0, 1.0, n) * (rng.uniform(size=n) < 0.4)
    limits = rows @ inside
    assert linprog(np.zeros(n), A_eq=rows, b_eq=limits, bounds=(0, None)).status == 0
    project = snapfm.Projector([linear(rows, limits, limits), snapfm.Bounds(0.0)], (n,))
    found = project(torch.from_numpy(inside + rng.standard_normal((4, n)) * np.array([[0.0], [0.1], [1.0], [10.0]])))
    assert (found.status != Status.INFEASIBLE).all()
    assert found.converged.all()


def test_a_square_system_with_dependent_slopes_at_its_only_answer() -> None:
    """x = 0 and 10x/(x + 0.1) + 2y² = 0 (Powell): Newton's method converges to a point that does not obey."""

    def value(u: Any, p: Any) -> Any:
        return np.array([u[0], 10.0 * u[0] / (u[0] + 0.1) + 2.0 * u[1] ** 2])

    def jacobian(u: Any, p: Any) -> Any:
        return np.array([[1.0, 0.0], [1.0 / (u[0] + 0.1) ** 2, 4.0 * u[1]]])

    def hessian(u: Any, p: Any, y: Any) -> Any:
        return np.array([[-2.0 * y[1] / (u[0] + 0.1) ** 3, 0.0], [0.0, 4.0 * y[1]]])

    project = snapfm.Projector([snapfm.Oracle("powell", value, jacobian, hessian)], (2,))
    found = project(torch.tensor([[3.0, 1.0], [2.9, 1.1]], dtype=torch.float64))
    assert (found.violation <= 1e-8).all()
    assert found.converged.all()
    assert float(found.u.abs().max()) < 1e-4


def test_many_inequalities_in_a_plane() -> None:
    """501 tangents of a circle in a plane: hundreds of active sets of nearly parallel rows."""
    angle = np.linspace(0.0, 2.0 * np.pi, 501)
    rows = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    project = snapfm.Projector([linear(rows, None, 1.0)], (2,))
    found = project(torch.tensor([[3.0, 4.0], [-0.2, 0.1]], dtype=torch.float64))
    assert found.converged.all()
    np.testing.assert_allclose(found.u[0].norm().item(), 1.0, atol=1e-4)
    np.testing.assert_allclose(found.u[1].numpy(), [-0.2, 0.1])


def test_an_answer_does_not_depend_on_its_batch() -> None:
    rows, rng = transport(4), np.random.default_rng(0)
    project = snapfm.Projector([linear(rows, 1.0, 1.0), snapfm.Bounds(0.0)], (16,))
    u_hat = torch.from_numpy(100.0 * rng.standard_normal((5, 16)))
    together = project(u_hat)
    for i in range(5):
        assert torch.equal(project(u_hat[i : i + 1]).u[0], together.u[i])


def test_a_contradiction_is_not_called_converged_and_keeps_a_point_of_small_violation() -> None:
    """x + y = 1 and x + y = 1 + 1e-3 cannot both hold."""
    rows = np.array([[1.0, 1.0], [1.0, 1.0]])
    project = snapfm.Projector([linear(rows, [1.0, 1.001], [1.0, 1.001]), snapfm.Bounds(0.0)], (2,), limit=200)
    found = project(torch.tensor([[5.0, 1.0]], dtype=torch.float64))
    assert not found.converged.any()
    assert float(found.violation) <= 1e-3


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6])
def test_more_rows_than_unknowns_of_very_different_sizes(scale: float) -> None:
    """x = s, y = 2/s and xy = 2 (Brown): the linearized rows contradict each other everywhere but at the answer."""

    def value(u: Any, p: Any) -> Any:
        return np.array([u[0] - scale, u[1] - 2.0 / scale, u[0] * u[1] - 2.0])

    def jacobian(u: Any, p: Any) -> Any:
        return np.array([[1.0, 0.0], [0.0, 1.0], [u[1], u[0]]])

    def hessian(u: Any, p: Any, y: Any) -> Any:
        return y[2] * np.array([[0.0, 1.0], [1.0, 0.0]])

    project = snapfm.Projector([snapfm.Oracle("brown", value, jacobian, hessian)], (2,))
    found = project(torch.tensor([[1.0, 1.0], [3.0, -1.0]], dtype=torch.float64))
    assert found.converged.all()
    np.testing.assert_allclose(found.u.numpy(), [[scale, 2.0 / scale]] * 2, rtol=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_feasibility_is_restored_where_no_step_obeys_the_linearized_rows(seed: int) -> None:
    """Twice as many curved equations as unknowns, which hold at one point: |u − aᵢ|² = |c − aᵢ|², inside bounds."""
    n, rng = 4, np.random.default_rng(seed)
    centers, answer = rng.standard_normal((2 * n, n)), rng.uniform(-1.0, 1.0, n)
    sizes = ((answer - centers) ** 2).sum(axis=1)
    law = snapfm.Oracle(
        "distances", lambda u, p: ((u - centers) ** 2).sum(axis=1) - sizes, lambda u, p: 2.0 * (u - centers),
        lambda u, p, y: 2.0 * y.sum() * np.eye(n),
    )  # fmt: skip
    found = snapfm.Projector([law, snapfm.Bounds(-3.0, 3.0)], (n,))(torch.from_numpy(3.0 * rng.standard_normal((5, n))))
    assert found.converged.all()
    np.testing.assert_allclose(found.u.numpy(), np.tile(answer, (5, 1)), atol=1e-7)
