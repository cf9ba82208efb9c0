"""Newton's loop on systems whose nearest point is known, and on those that are hard: each lane for itself."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.small import (
    CIRCLE,
    CONE,
    DISC,
    ELLIPSE,
    EPS,
    EXAMPLES,
    HYPERBOLA,
    LENS,
    NEVER,
    PARABOLA,
    PLANE,
    ROOT,
    TOLERANCE,
    TWICE,
    WAVE,
    Example,
    Small,
    lanes_near,
    newton,
)

from snapfm.kernels import layout
from snapfm.kernels.lanes import enter_units, leave_units
from snapfm.kernels.layout import FAILS, HOLDS
from snapfm.kernels.newton import BROKEN, CONVERGED, LIMIT, STALLED
from snapfm.kernels.operations import LANES

CENTER, AIM = [1.2, 0.9, 0.7], [1.0, 0.8, 0.5]
# An answer is exact to its tolerance times the condition of these small systems, which is below a hundred.
CLOSE = 100 * TOLERANCE
# Iterations from the far side of a curve: the penalty that a first wild multiplier asked for is kept, and steps are short.
FAR = 200
forms = pytest.mark.parametrize("augmented", [False, True], ids=["schur", "augmented"])
every_example = pytest.mark.parametrize("example", [*EXAMPLES, DISC, TWICE], ids=lambda example: example.name)


def begun(example: Example, augmented: bool = False, tiles: int = 1, bounds=None) -> Small:
    small = Small(example, augmented, bounds, tiles=tiles)
    for k in range(tiles):
        target = lanes_near(AIM[: example.n], 0.5, seed=2 * k)
        small.start(lanes_near(CENTER[: example.n], 0.3, seed=2 * k + 1), target, tile=k)
    return small


def assert_stationary(small: Small) -> None:
    """u − û + Jᵀλ = 0 and the rows hold, for all unknowns and by hand."""
    for lane in range(LANES):
        u, lam = small.point(lane), small.section(layout.MULTIPLIER)[:, lane]
        h = np.array(small.example.rows(u), float)
        assert np.where(small.system.equality, np.abs(h), np.maximum(h, 0.0)).max() <= 2 * TOLERANCE
        slope = u - small.target[:, lane] + np.array(small.example.jacobian(u), float).T @ lam
        assert np.abs(slope).max() <= CLOSE


@every_example
@forms
def test_every_example_ends_where_the_conditions_hold_by_hand(example: Example, augmented: bool):
    small = begun(example, augmented)
    done = newton(small)
    assert done.status.tolist() == [CONVERGED] * LANES
    assert done.second.tolist() == [HOLDS] * LANES
    assert_stationary(small)


@forms
def test_the_nearest_point_of_a_circle(augmented: bool):
    target = lanes_near([1.0, -0.5], 0.9)
    done = newton(Small(CIRCLE, augmented).start(target, target))
    length = np.hypot(*target)
    assert done.status.tolist() == [CONVERGED] * LANES
    np.testing.assert_allclose(done.x, target / length, rtol=0.0, atol=CLOSE)
    np.testing.assert_allclose(done.multipliers[0], (length - 1.0) / 2.0, rtol=0.0, atol=CLOSE)


@forms
def test_the_nearest_point_of_an_ellipse(augmented: bool):
    angle, lam = np.linspace(0.1, 1.4, LANES), np.linspace(-0.2, 2.0, LANES)
    answer = np.array([2.0 * np.cos(angle), np.sin(angle)])
    target = answer + lam * np.array([answer[0] / 2.0, 2.0 * answer[1]])  # from the answer along its normal
    done = newton(Small(ELLIPSE, augmented).start(target, target))
    assert done.status.tolist() == [CONVERGED] * LANES
    np.testing.assert_allclose(done.x, answer, rtol=0.0, atol=CLOSE)
    np.testing.assert_allclose(done.multipliers[0], lam, rtol=0.0, atol=CLOSE)


@forms
def test_one_unknown_and_one_row(augmented: bool):
    target = np.array([[3.0, -3.0, 0.1, -0.1, 1.0, 1e3, -1e-3, 1.5]])
    done = newton(Small(ROOT, augmented).start(target, target))
    assert done.status.tolist() == [CONVERGED] * LANES
    np.testing.assert_allclose(done.x[0], np.sqrt(2.0) * np.sign(target[0]), rtol=0.0, atol=TOLERANCE)


@forms
def test_a_plane_takes_one_step_and_one_look(augmented: bool):
    target = lanes_near(AIM, 0.9)
    done = newton(Small(PLANE, augmented).start(target, target))
    assert done.iterations.max() <= 2
    # the augmented matrix has −1e-11 on its diagonal
    np.testing.assert_allclose(done.x, target - (target.sum(0) - 1.0) / 3.0, rtol=0.0, atol=TOLERANCE)


@forms
def test_eliminated_unknowns_are_as_near_as_if_they_were_iterated_on(augmented: bool):
    whole = Example(
        "parabola", 3, PARABOLA.laws, PARABOLA.rows, PARABOLA.jacobian, PARABOLA.curvature
    )  # fmt: skip
    small, every = begun(PARABOLA, augmented), Small(whole, augmented)
    every.start(small.target, small.target)
    few, all_of_them = newton(small), newton(every)
    assert few.status.tolist() == all_of_them.status.tolist() == [CONVERGED] * LANES
    points = np.array([small.point(lane) for lane in range(LANES)]).T
    np.testing.assert_allclose(points, all_of_them.x, rtol=0.0, atol=CLOSE)
    np.testing.assert_allclose(few.multipliers, all_of_them.multipliers, rtol=0.0, atol=CLOSE)


# Pathologies


@forms
def test_a_saddle_is_left_for_the_nearest_point(augmented: bool):
    # (2, 0) of the ellipse is where the distance to the centre is largest; first-order conditions hold there with λ = −2.
    start = np.tile([[2.0], [0.0]], LANES)
    done = newton(Small(ELLIPSE, augmented).start(start, [0.0, 0.0], [-2.0]))
    assert done.status.tolist() == [CONVERGED] * LANES
    assert done.second.tolist() == [HOLDS] * LANES
    np.testing.assert_allclose(np.abs(done.x[:, 0]), [0.0, 1.0], rtol=0.0, atol=CLOSE)


@forms
def test_a_saddle_without_iterations_left_is_known_to_be_none(augmented: bool):
    small = Small(ELLIPSE, augmented).start([2.0, 0.0], [0.0, 0.0], [-2.0])
    done = newton(small, limits=0)
    assert done.status.tolist() == [LIMIT] * LANES
    assert HOLDS not in done.second.tolist()
    assert done.x.tolist() == [[2.0] * LANES, [0.0] * LANES]


@forms
def test_the_centre_of_a_circle_is_no_trap(augmented: bool):
    done = newton(Small(CIRCLE, augmented).start([0.0, 0.0], [0.3, 0.4]), limits=FAR)
    assert done.status.tolist() == [CONVERGED] * LANES
    np.testing.assert_allclose(done.x[:, 0], [0.6, 0.8], rtol=0.0, atol=CLOSE)


@forms
def test_rows_that_repeat_each_other_share_one_multiplier(augmented: bool):
    target = lanes_near([1.0, -0.5], 0.9)
    done = newton(Small(TWICE, augmented).start(target, target))
    once = newton(Small(CIRCLE, augmented).start(target, target))
    assert done.status.tolist() == [CONVERGED] * LANES
    np.testing.assert_allclose(done.x, once.x, rtol=0.0, atol=CLOSE)
    shared = done.multipliers[0] + 2.0 * done.multipliers[1]
    np.testing.assert_allclose(shared, once.multipliers[0], rtol=0.0, atol=CLOSE)


@forms
def test_what_cannot_hold_never_converges(augmented: bool):
    done = newton(Small(NEVER, augmented).start(lanes_near([1.2, 0.9], 0.3), [1.0, 0.5]))
    assert set(done.status.tolist()) <= {STALLED, LIMIT}
    assert np.isfinite(done.x).all()


@forms
def test_a_far_start_of_wrong_inertia_converges_on_the_nearest_point(augmented: bool):
    target = lanes_near([1.0, -0.5], 0.9)
    far, wrong = -8.0 * lanes_near([1.0, 0.5], 0.4, seed=1), np.linspace(-9.0, -1.0, LANES)
    done = newton(Small(CIRCLE, augmented).start(far, target, wrong[None]), limits=FAR)
    assert done.status.tolist() == [CONVERGED] * LANES
    np.testing.assert_allclose(done.x, target / np.hypot(*target), rtol=0.0, atol=CLOSE)


# Inequalities and bounds


@forms
def test_an_inequality_is_active_only_where_the_target_breaks_it(augmented: bool):
    target = np.array([[2.0, 0.5, 0.0, -3.0, 0.1, 1.0, -0.2, 0.9], [0.0, 0.5, 0.0, 4.0, -0.1, 1.0, 0.3, 0.9]])
    done = newton(Small(DISC, augmented).start(target, target))
    length = np.hypot(*target)
    assert done.status.tolist() == [CONVERGED] * LANES
    np.testing.assert_allclose(done.x, target / np.maximum(length, 1.0), rtol=0.0, atol=CLOSE)
    np.testing.assert_allclose(done.multipliers[0], np.maximum(length - 1.0, 0.0) / 2.0, rtol=0.0, atol=CLOSE)
    inside = length < 1.0
    assert done.x[:, inside].tobytes() == target[:, inside].tobytes()
    assert not done.multipliers[0, inside].any()
    assert not done.iterations[inside].any()


@forms
def test_a_wrong_multiplier_of_an_inactive_row_is_given_up(augmented: bool):
    target = lanes_near([0.2, 0.1], 0.3)
    done = newton(Small(DISC, augmented).start(0.5 * target, target, [0.01]))
    assert done.status.tolist() == [CONVERGED] * LANES
    np.testing.assert_allclose(done.x, target, rtol=0.0, atol=CLOSE)
    assert not done.multipliers.any()


def simplex(target: np.ndarray) -> np.ndarray:
    """The nearest point with x ≥ 0 and Σx = 1 (Held, Wolfe and Crowder 1974)."""
    falling = np.sort(target)[::-1]
    shift = (np.cumsum(falling) - 1.0) / np.arange(1, len(target) + 1)
    return np.maximum(target - shift[falling > shift][-1], 0.0)


@forms
def test_bounds_hold_exactly_where_they_are_met(augmented: bool):
    target = lanes_near([0.8, 0.3, -0.3], 0.5)
    target[:, 0] = [2.0, -1.0, -1.0]  # a corner
    target[:, 1] = [0.3, 0.4, 0.3]  # no bound is met
    small = Small(PLANE, augmented, bounds=([0.0] * 3, [np.inf] * 3)).start(target, target)
    done = newton(small)
    expected = np.array([simplex(target[:, lane]) for lane in range(LANES)]).T
    assert done.status.tolist() == [CONVERGED] * LANES
    np.testing.assert_allclose(done.x, expected, rtol=0.0, atol=TOLERANCE)
    assert ((done.x == 0.0) == (expected == 0.0)).all()
    assert (expected == 0.0).any()


def test_a_row_whose_unknowns_are_all_held_stalls_and_is_not_called_solved():
    # all would be negative, so all are held, and none is left to make the sum 1: the barrier is for such lanes
    done = newton(Small(PLANE, bounds=([0.0] * 3, [np.inf] * 3)).start([-0.5] * 3, [-0.5, -0.7, -0.4]))
    assert done.status.tolist() == [STALLED] * LANES
    assert not done.x.any()


def test_bounds_beside_curvature_that_couples_unknowns():
    # u₀u₁ = 1 with u₀ ≤ 1/2 and a target with a larger u₀: the answer is the corner (1/2, 2)
    small = Small(HYPERBOLA, bounds=([-np.inf, -np.inf], [0.5, np.inf]))
    done = newton(small.start([0.4, 2.2], lanes_near([1.5, 1.0], 0.2)))
    assert done.status.tolist() == [CONVERGED] * LANES
    assert (done.x[0] == 0.5).all()
    np.testing.assert_allclose(done.x[1], 2.0, rtol=0.0, atol=CLOSE)


def test_a_bound_reached_in_one_step_costs_no_convergence():
    # tanh(u₀) sin(u₁) = u₂ with u₀ held at its bound: from there on the steps are Newton's own
    target = lanes_near([1.5, 0.8, 0.2], 0.1)
    small = Small(WAVE, bounds=([-np.inf] * 3, [0.9, np.inf, np.inf])).start(target, target)
    done = newton(small)
    assert done.status.tolist() == [CONVERGED] * LANES
    assert (done.x[0] == 0.9).all()
    assert done.iterations.max() <= 6
    for lane in range(LANES):
        u = small.point(lane)
        slope = u - target[:, lane] + np.array(WAVE.jacobian(u))[0] * done.multipliers[0, lane]
        assert np.abs(slope[1:]).max() <= CLOSE
        assert slope[0] < 0.0  # it would rise if it could


# Each lane for itself


@pytest.mark.parametrize("bounds", [None, ([-9.0] * 3, [9.0] * 3)], ids=["free", "bounded"])
@pytest.mark.parametrize("example", [CIRCLE, LENS, WAVE, PLANE], ids=lambda example: example.name)
@forms
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_lane_that_is_not_finite_is_broken_and_leaves_the_other_seven_bit_identical(
    example: Example, augmented: bool, value: float, bounds
):
    if bounds is not None:
        bounds = (bounds[0][: example.n], bounds[1][: example.n])
    clean, spoilt = begun(example, augmented, bounds=bounds), begun(example, augmented, bounds=bounds)
    spoilt.section(layout.X)[0, 3] = value
    spoilt.section(layout.TARGET)[0, 3] = value
    others = np.flatnonzero(np.arange(LANES) != 3)
    right, found = newton(clean), newton(spoilt)
    assert found.status[3] == BROKEN
    assert found.lanes(others) == right.lanes(others)


@forms
def test_a_law_that_overflows_on_the_way_is_broken_or_stalls_but_leaves_the_others(augmented: bool):
    clean, spoilt = begun(CIRCLE, augmented), begun(CIRCLE, augmented)
    spoilt.section(layout.X)[0, 5] = 1e200  # its square is infinite
    right, found = newton(clean), newton(spoilt)
    others = np.flatnonzero(np.arange(LANES) != 5)
    assert found.status[5] == BROKEN
    assert found.lanes(others) == right.lanes(others)


@every_example
@forms
def test_a_lane_has_the_same_bits_wherever_it_is(example: Example, augmented: bool):
    small, again = begun(example, augmented), begun(example, augmented)
    order = np.array([5, 2, 7, 0, 0, 3, 1, 6])
    for number in (layout.X, layout.TARGET, layout.SHIFT):
        again.section(number)[:] = small.section(number)[:, order]
    assert newton(again).lanes(slice(None)) == newton(small).lanes(order)


@forms
def test_tiles_are_solved_as_if_alone(augmented: bool):
    three = newton(begun(LENS, augmented, tiles=3))
    for k in range(3):
        alone = Small(LENS, augmented)
        alone.start(lanes_near(CENTER, 0.3, seed=2 * k + 1), lanes_near(AIM, 0.5, seed=2 * k))
        assert newton(alone).lanes(slice(None)) == three.lanes(slice(k * LANES, (k + 1) * LANES))


@every_example
@forms
def test_calling_twice_gives_the_same_bits_whatever_the_memory_held(example: Example, augmented: bool):
    small = begun(example, augmented)
    x, target = small.section(layout.X).copy(), small.section(layout.TARGET).copy()
    once = newton(small)
    # as a part does: memory of the call before, with a new start
    small.section(layout.X)[:], small.section(layout.TARGET)[:] = x, target
    small.section(layout.MULTIPLIER)[:] = 0.0
    assert newton(small).lanes(slice(None)) == once.lanes(slice(None))


@pytest.mark.parametrize("power", [-20, 20, 200])
def test_a_field_in_larger_units_takes_the_same_steps_to_the_last_bit(power: int):
    target = lanes_near([1.0, 0.7, 0.4], 0.2)
    scale = np.where(np.arange(LANES) % 2 == 0, 2.0**-10, 2.0**power)
    target[:, 1::2] = target[:, ::2]
    small = Small(CONE).start(scale * target, scale * target)
    enter_units(small.space, small.part.at)
    done = newton(small, limits=3, tolerance=0.0)
    leave_units(small.space, small.part.at)
    x = small.section(layout.X) / scale
    assert done.iterations.min() >= 2
    assert done.iterations[::2].tolist() == done.iterations[1::2].tolist()
    assert x[:, ::2].tobytes() == x[:, 1::2].tobytes()


def test_lanes_of_different_units_each_meet_the_tolerance_in_the_laws_own_unit():
    size = np.array([1e-6, 1e6, 1.0, 1e-3, 1e3, 1e-6, 1e6, 1.0])
    target = size * lanes_near([1.0, 0.7, 0.4], 0.2)
    small = Small(CONE).start(target, target)
    enter_units(small.space, small.part.at)
    tolerance = 1e-8  # rows of size 1e6 round near 1e-10
    done = newton(small, tolerance=tolerance)
    leave_units(small.space, small.part.at)
    x, radius = small.section(layout.X), np.hypot(target[0], target[1])
    middle = (radius + target[2]) / 2.0  # the foot of the perpendicular to a line at 45 degrees
    expected = np.array([*(target[:2] * middle / radius), middle])
    assert done.status.tolist() == [CONVERGED] * LANES
    np.testing.assert_allclose(x, expected, rtol=0.0, atol=tolerance)
    assert (np.abs(np.hypot(x[0], x[1]) - x[2]) <= tolerance).all()


# Limits


@forms
def test_a_lane_that_is_not_live_keeps_its_numbers(augmented: bool):
    small, live = begun(LENS, augmented), np.arange(LANES) % 3 != 1
    before = small.section(layout.X).copy()
    done, whole = newton(small, live=live), newton(begun(LENS, augmented))
    assert done.x[:, ~live].tobytes() == before[:, ~live].tobytes()
    assert not done.multipliers[:, ~live].any()
    assert not done.iterations[~live].any()
    assert done.status[~live].tolist() == [CONVERGED] * int((~live).sum())
    assert done.lanes(np.flatnonzero(live)) == whole.lanes(np.flatnonzero(live))


@forms
def test_every_lane_has_a_limit_of_its_own(augmented: bool):
    limits = np.array([0, 1, 2, 3, 4, 20, 20, 20])
    target = np.tile([[1.9], [-0.4]], LANES)
    start = np.tile([[-1.0], [3.0]], LANES)
    done = newton(Small(CIRCLE, augmented).start(start, target), limits=limits)
    needed = int(done.iterations[7])
    assert needed > 4
    assert done.iterations.tolist() == np.minimum(limits, needed).tolist()
    assert done.status.tolist() == [LIMIT] * 5 + [CONVERGED] * 3
    assert len({done.x[:, lane].tobytes() for lane in range(6)}) == 6  # each step moved
    for lane in range(5):  # what a lane has after its steps, all lanes have
        all_lanes = newton(Small(CIRCLE, augmented).start(start, target), limits=int(limits[lane]))
        assert all_lanes.x[:, 0].tobytes() == done.x[:, lane].tobytes()


@forms
def test_a_stop_ends_all_lanes_where_they_are(augmented: bool):
    small = begun(CIRCLE, augmented)
    before = small.section(layout.X).copy()
    done = newton(small, stop=1)
    assert done.status.tolist() == [LIMIT] * LANES
    assert not done.iterations.any()
    assert done.x.tobytes() == before.tobytes()


@forms
def test_a_start_that_is_the_answer_is_left_as_it_is(augmented: bool):
    target = np.array([[0.6], [0.8]]) * np.ones(LANES)
    done = newton(Small(CIRCLE, augmented).start(target, target))
    assert done.status.tolist() == [CONVERGED] * LANES
    assert not done.iterations.any()
    assert done.x.tobytes() == target.tobytes()


def test_without_trials_full_steps_are_taken_unseen():
    target = np.tile([[1.9], [-0.4]], LANES)
    done = newton(Small(CIRCLE).start(target, target), trials=0)
    x, lam = target[:, 0].copy(), 0.0  # Newton's method, written out
    for _ in range(int(done.iterations[0])):
        matrix = np.block([[np.eye(2) * (1.0 + 2.0 * lam), 2.0 * x[:, None]], [2.0 * x[None], np.zeros((1, 1))]])
        step = np.linalg.solve(matrix, -np.concatenate([x - target[:, 0] + 2.0 * lam * x, [x @ x - 1.0]]))
        x, lam = x + step[:2], lam + step[2]
    assert done.status.tolist() == [CONVERGED] * LANES
    np.testing.assert_allclose(done.x[:, 0], x, rtol=0.0, atol=64 * EPS)
    assert done.second.tolist() != [FAILS] * LANES


@forms
def test_a_lane_that_crawls_is_left_early_and_one_that_converges_is_not(augmented: bool):
    never, patience = Small(NEVER, augmented), 4
    begin = lanes_near([1.0, 0.5], 0.4)
    endless = newton(never.start(begin, begin), limits=FAR)
    left = newton(never.start(begin, begin), limits=FAR, patience=patience)
    assert (endless.status != CONVERGED).all()
    assert (left.status == LIMIT).all()
    assert (left.iterations >= patience).all()
    assert (left.iterations < endless.iterations).all()
    circle, target = Small(CIRCLE, augmented), lanes_near([1.0, 0.8], 0.3)
    plain = newton(circle.start(begin, target))
    patient = newton(circle.start(begin, target), patience=patience)
    assert (plain.status == CONVERGED).all()
    assert plain.lanes(slice(None)) == patient.lanes(slice(None))
