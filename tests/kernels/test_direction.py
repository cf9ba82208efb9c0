"""Steps of Newton's kernel, both forms of the matrix, against dense linear algebra over all unknowns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tests.kernels.small import (
    CIRCLE,
    EPS,
    EXAMPLES,
    HYPERBOLA,
    LENS,
    PARABOLA,
    PLANE,
    ROOT,
    TWICE,
    WAVE,
    Example,
    Small,
    lanes_near,
)

from snapfm.kernels import layout
from snapfm.kernels.direction import RUNNING, augmented_direction, correct, factorize, least_diagonal, schur_direction
from snapfm.kernels.newton import CONVERGED
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import choose_sets, derivatives_at, residual_at, size_rows
from snapfm.linear import Fronts

CENTER, AIM = [1.2, 0.9, 0.7], [1.0, 0.8, 0.5]
forms = pytest.mark.parametrize("augmented", [False, True], ids=["schur", "augmented"])
solvers = pytest.mark.parametrize("solver", [None, Fronts()], ids=["fused", "fronts"])
every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)


@dataclass(frozen=True)
class Factored:
    convex: np.ndarray
    negative: np.ndarray
    tally: np.ndarray  # negative and weak pivots (2, LANES)


def started(example: Example, augmented: bool = False, bounds=None, solver=None) -> Small:
    """At eight points with multipliers so small that the curvature is positive."""
    small = Small(example, augmented, bounds, solver)
    rows = small.system.rows.shape[1]
    x, target = lanes_near(CENTER[: example.n], 0.3), lanes_near(AIM[: example.n], 0.5, seed=1)
    return small.start(x, target, lanes_near([0.05, 0.02][:rows], 0.02, seed=2))


def looked(small: Small) -> Small:
    residual_at(small.code, small.frame, small.tile)
    derivatives_at(small.code, small.frame, small.tile)
    size_rows(small.tile, 1.0)
    choose_sets(small.frame, small.tile)
    return small


def factored(small: Small, damping: float = 0.0, status=RUNNING) -> Factored:
    convex, negative = np.empty(LANES), np.empty(LANES, np.int64)
    status = np.array(np.broadcast_to(np.asarray(status, np.int64), LANES))
    stop = np.zeros(1, np.int64)
    factorize(small.frame, small.plan, small.tile, np.full(LANES, damping), status, convex, negative, stop)
    return Factored(convex, negative, small.section(layout.TALLY)[:2].copy())


def stepped(small: Small) -> tuple[np.ndarray, np.ndarray]:
    """Step and direction (…, LANES) from the factors at hand."""
    if small.frame.augmented:
        augmented_direction(small.frame, small.plan, small.tile)
    else:
        schur_direction(small.frame, small.plan, small.tile)
    return small.section(layout.STEP).copy(), small.section(layout.DIRECTION).copy()


def saddle_matrix(small: Small, lane: int) -> np.ndarray:
    """[[W, Jᵀ], [J, −D]] over all unknowns, eliminated ones too; D is what barrier and softening put there."""
    example, u, lam = small.example, small.point(lane), small.section(layout.MULTIPLIER)[:, lane]
    jacobian = np.array(example.jacobian(u), float)
    weight = np.eye(example.n) + np.array(example.curvature(u, lam), float)
    soft = small.section(layout.BARRIER)[:, lane] + (least_diagonal(1.0) if small.frame.augmented else 0.0)
    return np.block([[weight, jacobian.T], [jacobian, -np.diag(soft)]])


def dense_step(small: Small, lane: int, added: np.ndarray | float = 0.0) -> tuple[np.ndarray, np.ndarray, float]:
    """Step of the moving unknowns, direction, and what rounding may change in them.

    Idle rows give up their multiplier, held unknowns go to their bound. `added` is added to the diagonal of W.
    """
    example, n = small.example, small.example.n
    u, lam = small.point(lane), small.section(layout.MULTIPLIER)[:, lane]
    jacobian = np.array(example.jacobian(u), float)
    matrix = saddle_matrix(small, lane)
    matrix[example.moving, example.moving] += added
    gradient = u - small.target[:, lane] + jacobian.T @ lam
    right = -np.concatenate([gradient, small.section(layout.RESIDUAL)[:, lane]])
    for r in np.flatnonzero(small.section(layout.ACTIVE)[:, lane] == 0.0):
        matrix[n + r], right[n + r] = np.eye(len(matrix))[n + r], -small.section(layout.IDLE)[r, lane]
    if small.frame.bounded:
        for j, move in enumerate(small.section(layout.TO_BOUND)[:, lane]):
            if not np.isnan(move):
                matrix[j], right[j] = np.eye(len(matrix))[j], move
    found = np.linalg.solve(matrix, right)
    rounding = 64 * EPS * np.linalg.cond(matrix) * (1.0 + np.abs(found).max())
    return found[example.moving], found[n:], rounding


def assert_dense(small: Small, added: np.ndarray | float = 0.0) -> None:
    step, direction = stepped(small)
    for lane in range(LANES):
        more = added[lane] if isinstance(added, np.ndarray) else added
        dx, dlam, rounding = dense_step(small, lane, more)
        np.testing.assert_allclose(step[:, lane], dx, rtol=0.0, atol=rounding)
        np.testing.assert_allclose(direction[:, lane], dlam, rtol=0.0, atol=rounding)


@every_example
@forms
@solvers
def test_a_step_solves_the_kkt_system(example: Example, augmented: bool, solver):
    small = looked(started(example, augmented, solver=solver))
    found = factored(small)
    assert not found.convex.any()
    assert_dense(small)


@pytest.mark.parametrize("example", [ROOT, PARABOLA, HYPERBOLA], ids=lambda example: example.name)
@forms
def test_damping_and_barrier_are_added_to_the_diagonal(example: Example, augmented: bool):
    small = looked(started(example, augmented))
    small.section(layout.BARRIER)[:] = 0.25
    factored(small, damping=0.5)
    assert_dense(small, added=0.5)


@forms
@pytest.mark.parametrize("idle", [0.0, 0.75], ids=["of no multiplier", "with a multiplier to give up"])
def test_an_idle_row_gives_up_its_multiplier_and_takes_no_part(augmented: bool, idle: float):
    small = started(LENS, augmented)
    small.section(layout.MULTIPLIER)[1] = idle
    looked(small)
    small.section(layout.ACTIVE)[1], small.section(layout.IDLE)[1] = 0.0, idle
    factored(small)
    assert_dense(small)
    assert (small.section(layout.DIRECTION)[1] == -idle).all()
    without = started(CIRCLE_OF_THREE, augmented)
    for number in (layout.X, layout.TARGET):
        small.section(number)[:] = without.section(number)
    small.section(layout.MULTIPLIER)[:] = [[0.05] * LANES, [idle] * LANES]
    without.section(layout.MULTIPLIER)[:] = 0.05
    looked(small), looked(without)
    small.section(layout.ACTIVE)[1], small.section(layout.IDLE)[1] = 0.0, idle
    factored(small), factored(without)
    step, _ = stepped(small)
    np.testing.assert_allclose(step, stepped(without)[0], rtol=0.0, atol=256 * EPS)


CIRCLE_OF_THREE = Example(
    "sphere", 3, LENS.laws[:1], lambda u: LENS.rows(u)[:1], lambda u: LENS.jacobian(u)[:1], LENS.curvature
)


@pytest.mark.parametrize("example", [LENS, PLANE, HYPERBOLA, WAVE], ids=lambda example: example.name)
@forms
def test_a_held_unknown_goes_to_its_bound_and_the_rest_makes_up_for_it(example: Example, augmented: bool):
    small = looked(started(example, augmented, bounds=([0.0] * example.n, [9.0] * example.n)))
    small.section(layout.TO_BOUND)[:] = np.nan
    small.section(layout.TO_BOUND)[0, ::2] = -0.25
    factored(small)
    assert_dense(small)
    assert (small.section(layout.STEP)[0, ::2] == -0.25).all()
    jacobian = [np.array(example.jacobian(small.point(lane)), float) for lane in range(LANES)]
    for lane in range(LANES):  # rows that are equalities hold after the step, as far as they are straight
        left = jacobian[lane][0] @ small.section(layout.STEP)[:, lane] + small.section(layout.RESIDUAL)[0, lane]
        softened = (least_diagonal(1.0) if small.frame.augmented else 0.0) * abs(
            small.section(layout.DIRECTION)[0, lane]
        )
        assert abs(left) <= softened + 64 * EPS * (1.0 + np.abs(jacobian[lane]).max())


@solvers
def test_wrong_inertia_is_repaired_where_it_is_wrong_and_nowhere_else(solver):
    lam = np.full((1, LANES), 0.1)
    clean = looked(started(CIRCLE, solver=solver).start(lanes_near([1.2, 0.9], 0.3), AIM[:2], lam))
    lam[0, 3] = -2.0  # W = 1 + 2λ = −3
    small = looked(started(CIRCLE, solver=solver).start(lanes_near([1.2, 0.9], 0.3), AIM[:2], lam))
    right, wrong = factored(clean), factored(small)
    assert wrong.convex.tolist() == (np.arange(LANES) == 3).astype(float).tolist()
    assert not right.convex.any()
    assert not wrong.negative.any()
    assert_dense(small, added=np.where(np.arange(LANES) == 3, 6.0, 0.0))  # |W|: as steep, but upwards
    stepped(clean)
    others = np.arange(LANES) != 3
    for number in (layout.STEP, layout.DIRECTION):
        assert small.section(number)[:, others].tobytes() == clean.section(number)[:, others].tobytes()


@pytest.mark.parametrize("example", [CIRCLE, HYPERBOLA], ids=lambda example: example.name)
@solvers
def test_the_augmented_matrix_gets_as_much_curvature_as_its_inertia_needs(example: Example, solver):
    small = started(example, augmented=True, solver=solver)
    lam = np.array([0.1, -2.5, -0.4, -30.0, 0.0, -0.6, -5.0, 0.3])
    small.section(layout.MULTIPLIER)[:] = lam if example is CIRCLE else -lam  # along a hyperbola curvature is −2λu₀u₁
    looked(small)
    found = factored(small)
    for lane in range(LANES):
        added, matrix, shift = found.convex[lane], saddle_matrix(small, lane), np.diag([1.0] * example.n + [0.0])

        def negative(more: float, matrix: np.ndarray = matrix, shift: np.ndarray = shift) -> int:
            return int((np.linalg.eigvalsh(matrix + more * shift) < 0.0).sum())

        assert negative(added) == 1
        if added > 0.0:
            assert negative(0.0 if added == 1e-2 else 0.1 * added) != 1  # less would not have done
    assert found.convex[[0, 4, 7]].tolist() == [0.0] * 3
    assert found.convex.max() > 1.0
    assert_dense(small, added=found.convex)


def test_curvature_that_a_row_takes_away_is_not_repaired():
    small = started(ROOT)
    small.section(layout.MULTIPLIER)[:] = -2.0
    found = factored(looked(small))
    assert not found.convex.any()
    assert found.negative.tolist() == found.tally[0].tolist() == [1] * LANES
    assert_dense(small)


def test_lanes_that_are_done_are_not_repaired():
    small = started(CIRCLE)
    small.section(layout.MULTIPLIER)[:] = -2.0
    status = np.where(np.arange(LANES) == 3, CONVERGED, RUNNING)
    assert factored(looked(small), status=status).convex.tolist() == (status == RUNNING).astype(float).tolist()


@forms
@solvers
def test_rows_that_repeat_each_other_are_a_weak_pivot_and_the_step_is_still_right(augmented: bool, solver):
    small, once = looked(started(TWICE, augmented, solver=solver)), started(CIRCLE, augmented, solver=solver)
    lam = small.section(layout.MULTIPLIER)
    once.section(layout.MULTIPLIER)[0] = lam[0] + 2.0 * lam[1]
    looked(once)
    found = factored(small)
    factored(once)
    if not augmented:
        assert found.tally.tolist() == [[0.0] * LANES, [1.0] * LANES]
    assert not found.convex.any()
    step, direction = stepped(small)
    plain, alone = stepped(once)
    softened = least_diagonal(1.0) * np.abs(direction).max() if augmented else 0.0
    # With −δ for a diagonal, the multiplier of the difference of the rows is rounding over δ
    rounding = 64 * EPS / least_diagonal(1.0) * 1e-3 if augmented else 256 * EPS
    np.testing.assert_allclose(step, plain, rtol=0.0, atol=softened + rounding)
    np.testing.assert_allclose(direction[0] + 2.0 * direction[1], alone[0], rtol=0.0, atol=softened + rounding)


@forms
@solvers
def test_nan_in_one_lane_leaves_the_steps_of_the_others_bit_identical(augmented: bool, solver):
    steps = []
    for value in (CENTER[0], np.nan):
        small = started(LENS, augmented, bounds=([-9.0] * 3, [9.0] * 3), solver=solver)
        small.section(layout.X)[0, 3] = value
        factored(looked(small))
        steps.append(stepped(small))
    others = np.arange(LANES) != 3
    for clean, spoilt in zip(*steps):
        assert clean[:, others].tobytes() == spoilt[:, others].tobytes()
        assert np.isfinite(clean).all()


@pytest.mark.parametrize("example", [CIRCLE, LENS, HYPERBOLA, PARABOLA], ids=lambda example: example.name)
@forms
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_a_correction_takes_off_what_curvature_put_on(example: Example, augmented: bool, alpha: float):
    small = looked(started(example, augmented))
    small.section(layout.ACTIVE)[:] = 1.0
    small.section(layout.IDLE)[:] = 0.0
    factored(small)
    step, direction = stepped(small)
    x, lam = small.section(layout.X), small.section(layout.MULTIPLIER)
    matrices = [saddle_matrix(small, lane) for lane in range(LANES)]
    n, moving = example.n, example.moving
    before, before_lam, residual = x.copy(), lam.copy(), small.section(layout.RESIDUAL).copy()
    small.section(layout.PLAIN_STEP)[:], small.section(layout.PLAIN_DIRECTION)[:] = step, direction
    small.section(layout.PREVIOUS_RESIDUAL)[:] = residual
    x[:], lam[:] = before + alpha * step, before_lam + alpha * direction
    residual_at(small.code, small.frame, small.tile)
    trial = small.section(layout.RESIDUAL).copy()
    off = trial - (1.0 - alpha) * residual
    wanted = np.arange(LANES) != 3
    correct(small.frame, small.plan, small.tile, np.full(LANES, alpha), wanted)
    corrected, along = small.section(layout.STEP).copy(), small.section(layout.DIRECTION).copy()
    assert corrected[:, 3].tobytes() == step[:, 3].tobytes()
    assert along[:, 3].tobytes() == direction[:, 3].tobytes()
    for lane in np.flatnonzero(wanted):
        more = np.linalg.solve(matrices[lane], np.concatenate([np.zeros(n), -off[:, lane]]))
        rounding = 64 * EPS * np.linalg.cond(matrices[lane]) * (1.0 + np.abs(more).max())
        np.testing.assert_allclose(corrected[:, lane], alpha * step[:, lane] + more[moving], rtol=0.0, atol=rounding)
        np.testing.assert_allclose(along[:, lane], alpha * direction[:, lane] + more[n:], rtol=0.0, atol=rounding)
    x[:, wanted] = (before + corrected)[:, wanted]
    lam[:, wanted] = (before_lam + along)[:, wanted]
    residual_at(small.code, small.frame, small.tile)
    left = small.section(layout.RESIDUAL) - (1.0 - alpha) * residual
    curved = np.abs(off[0]) > 64 * EPS
    assert curved.all()
    assert (np.abs(left[0]) < np.abs(off[0]))[wanted].all()


def test_a_factorisation_that_is_stopped_ends_at_once():
    small = looked(started(CIRCLE))
    small.section(layout.MULTIPLIER)[:] = -2.0
    convex, negative = np.full(LANES, np.nan), np.empty(LANES, np.int64)
    status, stop = np.full(LANES, RUNNING), np.ones(1, np.int64)
    factorize(small.frame, small.plan, small.tile, np.zeros(LANES), status, convex, negative, stop)
    assert not convex.any()  # wrong inertia was not looked at


@every_example
@forms
def test_calling_twice_gives_the_same_bits(example: Example, augmented: bool):
    small = looked(started(example, augmented))
    factored(small)
    once = stepped(small)
    factored(small)
    for left, right in zip(once, stepped(small)):
        assert left.tobytes() == right.tobytes()
