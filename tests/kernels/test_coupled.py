"""Steps and curvature where the Hessian couples unknowns: conjugate gradients against dense arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.small import HYPERBOLA, TOLERANCE, Example, Small, lanes_near, newton
from tests.kernels.test_direction import dense_step, factored, looked

from snapfm import Equality, Inequality
from snapfm.kernels import layout
from snapfm.kernels.coupled import _STEP_ERROR, check_curvature, newton_direction
from snapfm.kernels.direction import RUNNING
from snapfm.kernels.layout import FAILS, HOLDS, UNKNOWN
from snapfm.kernels.operations import LANES
from snapfm.linear import Fronts, Lanes

# Σ c_ij u_i u_j over four unknowns and a plane: along the plane the curvature is λ times that of the form.
FORM = np.array([[0.0, 1.0, -2.0, 0.5], [1.0, 0.0, 0.7, 0.0], [-2.0, 0.7, 0.0, 1.5], [0.5, 0.0, 1.5, 0.0]])
NORMAL = np.array([1.0, -1.0, 2.0, 0.5])


def _bilinear(u, p):
    return sum(FORM[i, j] * u[i] * u[j] for i in range(4) for j in range(i)) - 1.0


COUPLED = Example(
    "bilinear form, and a plane",
    4,
    (Equality("form", _bilinear), Equality("plane", lambda u, p: (u * u.new_tensor(NORMAL)).sum())),
    lambda u: [0.5 * u @ FORM @ u - 1.0, NORMAL @ u],
    lambda u: [FORM @ u, NORMAL],
    lambda u, lam: lam[0] * FORM,
)
IDLE = Example(
    "bilinear form, and a half space",
    4,
    (Equality("form", _bilinear), Inequality("half space", lambda u, p: (u * u.new_tensor(NORMAL)).sum() - 50.0)),
    lambda u: [0.5 * u @ FORM @ u - 1.0, NORMAL @ u - 50.0],
    lambda u: [FORM @ u, NORMAL],
    lambda u, lam: lam[0] * FORM,
)
solvers = pytest.mark.parametrize("solver", [Lanes(), Fronts()], ids=["fused", "called back"])


def started(example: Example, multiplier: float, bounds=None, solver=None) -> Small:
    small = Small(example, coupled=True, bounds=bounds, solver=solver)
    assert small.frame.coupled == 1
    assert small.frame.augmented == 0
    rows = small.system.rows.shape[1]
    x = lanes_near([0.9, -0.7, 0.4, 1.1][: example.n], 0.3)
    return small.start(x, lanes_near([1.5, 0.5, -0.5, 0.2][: example.n], 0.5, seed=1), [multiplier, 0.0][:rows])


def stepped(small: Small) -> np.ndarray:
    """Take the direction; return where curvature was negative."""
    convex, status = np.zeros(LANES), np.full(LANES, RUNNING, np.int64)
    newton_direction(small.frame, small.plan, small.tile, np.zeros(LANES), status, convex, np.zeros(1, np.int64))
    return convex


def judged(small: Small) -> np.ndarray:
    second = np.full(LANES, -7)
    wanted, stop = np.arange(LANES) != 3, np.zeros(1, np.int64)
    check_curvature(small.frame, small.plan, small.tile, np.zeros(LANES), wanted, second, stop)
    assert second[3] == -7
    return second[wanted]


def reduced_curvature(small: Small, lane: int) -> float:
    """Smallest eigenvalue of W along the active rows."""
    u, lam = small.point(lane), small.section(layout.MULTIPLIER)[:, lane]
    rows = np.array(small.example.jacobian(u), float)[small.section(layout.ACTIVE)[:, lane] > 0.0]
    basis = np.linalg.svd(rows)[2][len(rows) :].T
    weight = np.eye(small.example.n) + np.array(small.example.curvature(u, lam), float)
    return float(np.linalg.eigvalsh(basis.T @ weight @ basis).min())


@solvers
@pytest.mark.parametrize("example", [COUPLED, IDLE, HYPERBOLA], ids=lambda example: example.name)
@pytest.mark.parametrize("multiplier", [0.0, 0.05, 0.2])
def test_a_step_solves_the_kkt_system_to_the_error_it_may_have(example: Example, multiplier: float, solver):
    small = looked(started(example, multiplier, solver=solver))
    factored(small)
    assert not stepped(small).any()
    for lane in range(LANES):
        dx, dlam, _ = dense_step(small, lane)
        off = np.abs(small.section(layout.STEP)[:, lane] - dx).max()
        assert off <= 10 * _STEP_ERROR * np.abs(dx).max()
        assert np.abs(small.section(layout.DIRECTION)[:, lane] - dlam).max() <= 100 * _STEP_ERROR * np.abs(dx).max()


@solvers
def test_linearized_rows_hold_exactly_whatever_the_error_of_the_step(solver):
    small = looked(started(COUPLED, 0.2, solver=solver))
    factored(small)
    stepped(small)
    for lane in range(LANES):
        jacobian = np.array(COUPLED.jacobian(small.point(lane)))
        left = jacobian @ small.section(layout.STEP)[:, lane] + small.section(layout.RESIDUAL)[:, lane]
        np.testing.assert_allclose(left, 0.0, atol=1e-13)


def test_a_held_unknown_goes_to_its_bound_and_moves_the_others():
    small = looked(started(COUPLED, 0.1, bounds=([-9.0] * 4, [0.5, 9.0, 9.0, 9.0])))
    factored(small)
    stepped(small)
    held = ~np.isnan(small.section(layout.TO_BOUND)[0])
    assert held.any()
    for lane in np.flatnonzero(held):
        dx, _, _ = dense_step(small, int(lane))
        assert small.section(layout.STEP)[0, lane] == small.section(layout.TO_BOUND)[0, lane]
        np.testing.assert_allclose(small.section(layout.STEP)[:, lane], dx, atol=10 * _STEP_ERROR * np.abs(dx).max())


@pytest.mark.parametrize("multiplier", [0.1, 0.3, 0.9, 3.0, -3.0])
def test_curvature_along_the_laws_is_judged_as_dense_eigenvalues_do(multiplier: float):
    small = looked(started(COUPLED, multiplier))
    factored(small)
    found = judged(small)
    true = [reduced_curvature(small, lane) for lane in range(LANES) if lane != 3]
    assert all(abs(one) > 1e-6 for one in true)
    np.testing.assert_array_equal(found, [HOLDS if one > 0.0 else FAILS for one in true])


def test_negative_curvature_is_found_with_its_direction():
    small = looked(started(COUPLED, 6.0))
    factored(small)
    assert FAILS in judged(small)
    for lane in (lane for lane in range(LANES) if lane != 3):
        along = small.section(layout.CONJUGATE)[:, lane]
        u, lam = small.point(lane), small.section(layout.MULTIPLIER)[:, lane]
        if reduced_curvature(small, lane) < 0.0:
            assert along @ (np.eye(4) + COUPLED.curvature(u, lam)) @ along < 0.0
            np.testing.assert_allclose(np.array(COUPLED.jacobian(u)) @ along, 0.0, atol=1e-10 * np.abs(along).max())


def test_without_time_the_curvature_stays_unknown():
    small = looked(started(COUPLED, 3.0))
    factored(small)
    second = np.full(LANES, HOLDS)
    every, stop = np.ones(LANES, bool), np.ones(1, np.int64)
    check_curvature(small.frame, small.plan, small.tile, np.zeros(LANES), every, second, stop)
    assert (second == UNKNOWN).all()


@solvers
def test_newton_reaches_the_answer_of_the_augmented_matrix(solver):
    coupled, direct = (
        Small(COUPLED, coupled=one, augmented=not one, solver=solver if one else None) for one in (True, False)
    )
    for small in (coupled, direct):
        small.start(lanes_near([0.9, -0.7, 0.4, 1.1], 0.2), lanes_near([0.9, -0.7, 0.4, 1.1], 0.2))
    ours, theirs = newton(coupled), newton(direct)
    np.testing.assert_array_equal(ours.status, theirs.status)
    assert (ours.status == 0).all()
    assert (ours.second == HOLDS).all()
    np.testing.assert_allclose(ours.x, theirs.x, atol=100 * TOLERANCE)


def test_one_lane_without_numbers_leaves_the_others_as_they_are():
    small = Small(COUPLED, coupled=True)
    x = lanes_near([0.9, -0.7, 0.4, 1.1], 0.2)
    alone = newton(small.start(x, x))
    broken = x.copy()
    broken[:, 2] = np.nan
    among = newton(small.start(broken, broken))
    others = np.arange(LANES) != 2
    assert among.lanes(others) == alone.lanes(others)
