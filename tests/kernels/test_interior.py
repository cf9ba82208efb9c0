"""The barrier: it ends where the active set is plain, and Newton's loop finishes from there."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.small import (
    CIRCLE,
    DISC,
    HYPERBOLA,
    LENS,
    PLANE,
    TOLERANCE,
    Example,
    Small,
    interior,
    lanes_near,
    newton,
)

from snapfm import Inequality
from snapfm.kernels import layout
from snapfm.kernels.interior import _FIRST, _HARD, _SOFTNESS, ARRIVED, BROKEN, LIMIT
from snapfm.kernels.newton import CONVERGED
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import choose_sets, derivatives_at, residual_at

# Slack times multiplier is at most a hundredth of this where Newton takes over; an answer is off by that over the larger.
NEAR = 100 * _FIRST * _HARD / _SOFTNESS[0]
CLOSE = 100 * TOLERANCE
forms = pytest.mark.parametrize("augmented", [False, True], ids=["schur", "augmented"])
POSITIVE = ([0.0] * 3, [np.inf] * 3)
GAP = Example(  # u ≤ −1 and u ≥ 1
    "gap",
    1,
    (Inequality("low", lambda u, p: u + 1.0), Inequality("high", lambda u, p: 1.0 - u)),
    lambda u: [u[0] + 1.0, 1.0 - u[0]],
    lambda u: [[1.0], [-1.0]],
    lambda u, lam: [[0.0]],
)


def simplex(target: np.ndarray) -> np.ndarray:
    """The nearest point with x ≥ 0 and Σx = 1, by bisection on the multiplier."""
    low, high = target.min() - 1.0, target.max()
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.maximum(target - middle, 0.0).sum() > 1.0 else (low, middle)
    return np.maximum(target - high, 0.0)


def chosen(small: Small) -> np.ndarray:
    """Which rows Newton's loop would take for active where the barrier ended."""
    residual_at(small.code, small.frame, small.tile)
    derivatives_at(small.code, small.frame, small.tile)
    choose_sets(small.frame, small.tile)
    return small.section(layout.ACTIVE) == 1.0


def lens(augmented: bool = False, seed: int = 0) -> Small:
    target = lanes_near([0.6, 0.4, 0.3], 0.9, seed)
    return Small(LENS, augmented).start(target, target)


@forms
def test_the_barrier_ends_at_the_nearest_point_of_a_disc(augmented: bool):
    target = np.array([[2.0, 0.5, 0.1, -3.0, 0.1, 1.0, -0.2, 0.9], [0.0, 0.5, 0.0, 4.0, -0.1, 1.0, 0.3, 0.9]])
    small = Small(DISC, augmented).start(target, target)
    done = interior(small)
    length = np.hypot(*target)
    assert done.status.tolist() == [ARRIVED] * LANES
    np.testing.assert_allclose(done.x, target / np.maximum(length, 1.0), rtol=0.0, atol=NEAR)
    np.testing.assert_allclose(done.multipliers[0], np.maximum(length - 1.0, 0.0) / 2.0, rtol=0.0, atol=NEAR)
    assert (done.multipliers > 0.0).all()
    assert (small.section(layout.SLACK) > 0.0).all()
    assert chosen(small)[0].tolist() == (length > 1.0).tolist()


@forms
def test_newton_finishes_from_there_in_a_few_steps(augmented: bool):
    small = lens(augmented)
    done = interior(small)
    assert done.status.tolist() == [ARRIVED] * LANES
    active = chosen(small)[1]
    assert 0 < active.sum() < LANES  # both kinds are there
    finished = newton(small)
    assert finished.status.tolist() == [CONVERGED] * LANES
    assert finished.iterations.max() <= 3
    np.testing.assert_allclose(finished.x, done.x, rtol=0.0, atol=NEAR)
    assert (finished.multipliers[1] > 0.0).tolist() == active.tolist()
    for lane in range(LANES):
        u = small.point(lane)
        slope = u - small.target[:, lane] + np.array(LENS.jacobian(u), float).T @ finished.multipliers[:, lane]
        assert np.abs(slope).max() <= CLOSE


@forms
def test_bounds_are_kept_and_the_right_ones_are_met(augmented: bool):
    target = lanes_near([0.4, 0.2, -0.3], 0.9)
    target[:, 0] = [-0.5, -0.7, -0.4]  # all held at first, where Newton alone stalls
    small = Small(PLANE, augmented, bounds=POSITIVE).start(target, target)
    done = interior(small)
    expected = np.array([simplex(target[:, lane]) for lane in range(LANES)]).T
    assert done.status.tolist() == [ARRIVED] * LANES
    assert (done.x > 0.0).all()
    np.testing.assert_allclose(done.x, expected, rtol=0.0, atol=NEAR)
    finished = newton(small)
    assert finished.status.tolist() == [CONVERGED] * LANES
    np.testing.assert_allclose(finished.x, expected, rtol=0.0, atol=CLOSE)
    assert ((finished.x == 0.0) == (expected == 0.0)).all()


def test_bounds_above_and_below_beside_curvature_that_couples_unknowns():
    small = Small(HYPERBOLA, bounds=([0.1, 0.1], [0.5, 9.0])).start([1.5, 1.0], lanes_near([1.5, 1.0], 0.2))
    done = interior(small)
    assert done.status.tolist() == [ARRIVED] * LANES
    assert (done.x[0] < 0.5).all()
    np.testing.assert_allclose(done.x, np.array([[0.5], [2.0]]) * np.ones(LANES), rtol=0.0, atol=NEAR)


@forms
def test_equalities_alone_have_no_barrier(augmented: bool):
    target = lanes_near([1.0, -0.5], 0.9)
    done = interior(Small(CIRCLE, augmented).start(target, target))
    assert done.status.tolist() == [ARRIVED] * LANES
    np.testing.assert_allclose(done.x, target / np.hypot(*target), rtol=0.0, atol=NEAR)


def test_a_narrow_interval_is_entered_in_its_middle():
    small = Small(PLANE, bounds=([0.2, 0.2, -9.0], [0.2 + 1e-6, 0.3, 9.0]))
    done = interior(small.start([0.0, 1.0, 0.0], [0.0, 1.0, 0.0]))
    assert done.status.tolist() == [ARRIVED] * LANES
    assert ((done.x[0] > 0.2) & (done.x[0] < 0.2 + 1e-6)).all()
    assert ((done.x[1] > 0.2) & (done.x[1] < 0.3)).all()
    np.testing.assert_allclose(done.x.sum(0), 1.0, rtol=0.0, atol=NEAR)


@forms
def test_a_gap_between_inequalities_is_never_called_solved(augmented: bool):
    done = interior(Small(GAP, augmented).start([0.3], [0.3]))
    assert done.status.tolist() == [LIMIT] * LANES
    assert np.isfinite(done.x).all()


@forms
@pytest.mark.parametrize("bounds", [None, ([-9.0] * 3, [9.0] * 3)], ids=["free", "bounded"])
def test_nan_in_one_lane_leaves_the_other_seven_bit_identical(augmented: bool, bounds):
    found = []
    for value in (0.4, np.nan):
        target = lanes_near([0.6, 0.4, 0.3], 0.9)
        target[0, 3] = value
        found.append(interior(Small(LENS, augmented, bounds).start(target, target)))
    clean, spoilt = found
    others = np.flatnonzero(np.arange(LANES) != 3)
    assert spoilt.status[3] == BROKEN
    assert spoilt.lanes(others) == clean.lanes(others)


@forms
def test_every_lane_has_a_limit_of_its_own_and_those_not_live_have_none(augmented: bool):
    limits, live = np.array([0, 2, 4, 6, 100, 100, 100, 100]), np.arange(LANES) != 6
    target = np.tile([[1.4], [0.9], [-0.3]], LANES)
    done = interior(Small(LENS, augmented).start(target, target), limits=limits, live=live)
    needed = int(done.iterations[7])
    assert needed > 6
    assert done.iterations.tolist() == np.where(live, np.minimum(limits, needed), 0).tolist()
    assert done.status.tolist() == [LIMIT] * 4 + [ARRIVED] * 4
    assert done.x[:, 6].tobytes() == target[:, 6].tobytes()
    assert done.x[:, 4].tobytes() == done.x[:, 7].tobytes()


@forms
def test_a_stop_ends_all_lanes_inside_their_bounds(augmented: bool):
    target = lanes_near([0.4, 0.2, -0.3], 0.9)
    done = interior(Small(PLANE, augmented, bounds=POSITIVE).start(target, target), stop=1)
    assert done.status.tolist() == [LIMIT] * LANES
    assert not done.iterations.any()
    assert (done.x > 0.0).all()


@forms
def test_nothing_of_the_barrier_is_left_behind(augmented: bool):
    small = Small(LENS, augmented, bounds=([-9.0] * 3, [9.0] * 3)).start([0.1] * 3, [0.6, 0.4, 0.3])
    interior(small)
    assert not small.section(layout.BARRIER).any()
    assert not small.section(layout.BOUND_WEIGHT).any()


@forms
def test_calling_twice_gives_the_same_bits(augmented: bool):
    assert interior(lens(augmented)).lanes(slice(None)) == interior(lens(augmented)).lanes(slice(None))


def test_tiles_are_solved_as_if_alone():
    small = Small(LENS, tiles=2)
    for k in range(2):
        target = lanes_near([0.6, 0.4, 0.3], 0.9, seed=k)
        small.start(target, target, tile=k)
    both = interior(small)
    for k in range(2):
        assert interior(lens(seed=k)).lanes(slice(None)) == both.lanes(slice(k * LANES, (k + 1) * LANES))


@forms
@pytest.mark.parametrize("example", [PLANE, CIRCLE, HYPERBOLA], ids=lambda one: one.name)
def test_soft_equalities_have_hardened_at_the_end(example: Example, augmented: bool):
    target = lanes_near([1.0] * example.n, 0.5)
    small = Small(example, augmented).start(target, target)
    done = interior(small, soft=True)
    assert done.status.tolist() == [ARRIVED] * LANES
    rows = np.array([example.rows(small.point(lane)) for lane in range(LANES)], float)
    assert np.abs(rows).max() <= NEAR
    assert newton(small).status.tolist() == [CONVERGED] * LANES


def test_a_soft_barrier_ends_where_a_firm_one_does():
    np.testing.assert_allclose(interior(lens(), soft=True).x, interior(lens()).x, rtol=0.0, atol=NEAR)
