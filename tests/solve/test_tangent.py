"""JDJᵀ through the stages, against the dense matrix: marches, rotated pairs, aggregates, inequalities, any solver."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.linear.counting import Counting
from tests.solve.marching_laws import crank_nicolson

from snapfm import Bounds, Equality, Inequality, Projector
from snapfm.linear import Lanes, Solver
from snapfm.solve.tangent import Tangents

DT = 0.1


def explicit(nonlinear: bool) -> list[Equality]:
    """An initial condition and explicit time steps over half of the field; totals of the rest."""

    def step(u: torch.Tensor, p: dict[str, torch.Tensor]) -> torch.Tensor:
        past = u[:-1, :4]
        force = past**2 if nonlinear else 2.0 * past
        return (u[1:, :4] - past) / DT - torch.roll(past, 1, -1) - force

    return [
        Equality("initial", lambda u, p: u[0, :4] - p["u0"]),
        Equality("steps", step),
        Equality("total", lambda u, p: (u[:, 4:] ** 2).sum(1) + u[:, :4].sum(1) - 1.0),
    ]


def tied() -> list[Equality]:
    """A zero-gradient edge that is rotated, beside an energy."""
    return [
        Equality("edge", lambda u, p: u[:, -1] - u[:, -2]),
        Equality("first", lambda u, p: u[:, 0] - p["u0"]),
        Equality("energy", lambda u, p: (u**2).sum(1) - 9.0),
    ]


CASES = {
    "explicit, linear": (explicit(False), (5, 7), 4),
    "explicit, nonlinear": (explicit(True), (5, 7), 4),
    "march": (crank_nicolson(), (12, 31), 31),
    "rotated": (tied(), (4, 6), 4),
    "aggregates": (
        [
            Equality("initial", lambda u, p: u[0] - p["u0"]),
            Equality("mass", lambda u, p: u[1:].sum(1) - p["u0"].sum()),
            Equality("energy", lambda u, p: (u[1:] ** 2).sum(1) - (p["u0"] ** 2).sum()),
        ],
        (4, 9),
        9,
    ),
}


def tangents(name: str, linear: Solver | None = None) -> tuple[Tangents, np.ndarray, dict[str, torch.Tensor]]:
    laws, shape, width = CASES[name]
    random = torch.Generator().manual_seed(0)
    params = {"u0": torch.randn(2, width, generator=random, dtype=torch.float64)}
    project = Projector(laws, shape, {"u0": params["u0"][:1]}, linear=linear)
    return (
        project.linearized,
        torch.randn(2, shape[0] * shape[1], generator=random, dtype=torch.float64).numpy(),
        params,
    )


@pytest.mark.parametrize("linear", [None, Lanes(), Counting()], ids=["default", "Lanes", "counting"])
@pytest.mark.parametrize("name", CASES)
def test_solves_are_those_of_the_dense_matrix(name: str, linear: Solver | None) -> None:
    system, u, params = tangents(name, linear)
    random = np.random.default_rng(1)
    diagonal, right = random.uniform(0.5, 2.0, u.shape[1]), random.standard_normal((5, len(system.rows)))
    for jacobian in system.jacobians(u, params):
        dense = (jacobian * diagonal) @ jacobian.T
        dense = dense.toarray()
        found = system.factor(jacobian, diagonal, np.ones(len(system.rows), bool))
        allowed = 1e-14 * np.linalg.cond(dense)
        solved = found.solve(right)
        np.testing.assert_allclose(solved, np.linalg.solve(dense, right.T).T, atol=allowed * np.abs(solved).max())
        np.testing.assert_allclose(found.log_determinant, np.linalg.slogdet(dense)[1], atol=1e-9)
        assert np.array_equal(found.solve(right[2:3])[0], solved[2])


def test_only_what_is_open_is_factorized() -> None:
    system, _, _ = tangents("explicit, linear")
    assert len(system.rows) == 4 + 16 + 5
    assert system._gram.diagonal  # totals of five slices are all that is left
    marched, _, _ = tangents("march")
    assert marched._gram.diagonal  # nothing is left


def test_rows_that_are_not_active_take_no_part() -> None:
    laws = [
        Equality("sum", lambda u, p: u.sum().reshape(1) - 1.0),
        Inequality("squares", lambda u, p: u[1:] ** 2 - 0.5),
        Bounds(lower=-3.0),
    ]
    system = Projector(laws, (4,)).linearized
    (jacobian,) = system.jacobians(np.array([[0.3, -0.2, 0.9, 1.1]]), {})
    active = np.array([True, False, True, True])
    dense = (jacobian @ jacobian.T).toarray()[np.ix_(active, active)]
    found = system.factor(jacobian, np.ones(4), active)
    right = np.array([[1.0, 0.0, -2.0, 0.5]])
    np.testing.assert_allclose(found.solve(right)[:, active], np.linalg.solve(dense, right[:, active].T).T, rtol=1e-10)
    np.testing.assert_allclose(found.log_determinant, np.linalg.slogdet(dense)[1], rtol=1e-10)
