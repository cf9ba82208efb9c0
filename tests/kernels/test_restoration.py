"""Restoration: the violation falls to nothing, or to where nothing lowers it further."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.small import (
    CIRCLE,
    DISC,
    EPS,
    EXAMPLES,
    LENS,
    NEVER,
    PARABOLA,
    PLANE,
    ROOT,
    TOLERANCE,
    TWICE,
    Example,
    Small,
    lanes_near,
    restore,
)

from snapfm import Equality, Inequality
from snapfm.kernels import layout
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import derivatives_at, residual_at, size_rows
from snapfm.kernels.restoration import _FAR, _STATIONARY, BROKEN, FEASIBLE, INFEASIBLE, LIMIT, mark_broken, pull_of

AIM = [1.0, 0.8, 0.5]
ROUNDING = 64 * EPS  # of sums of some ten products of order one
forms = pytest.mark.parametrize("augmented", [False, True], ids=["schur", "augmented"])
BESIDE = Example(  # the unit circle does not reach the line u₀ = 3
    "circle and a line beside it",
    2,
    (Equality("circle", lambda u, p: u[0] ** 2 + u[1] ** 2 - 1.0), Equality("line", lambda u, p: u[0] - 3.0)),
    lambda u: [u @ u - 1.0, u[0] - 3.0],
    lambda u: [2.0 * u, [1.0, 0.0]],
    lambda u, lam: 2.0 * lam[0] * np.eye(2),
)
GAP = Example(
    "gap",
    1,
    (Inequality("low", lambda u, p: u + 1.0), Inequality("high", lambda u, p: 1.0 - u)),
    lambda u: [u[0] + 1.0, 1.0 - u[0]],
    lambda u: [[1.0], [-1.0]],
    lambda u, lam: [[0.0]],
)


def begun(example: Example, augmented: bool = False, bounds=None) -> Small:
    small = Small(example, augmented, bounds)
    x = lanes_near([1.2, 0.9, 0.7][: example.n], 0.6)
    return small.start(x, x)


def broken(small: Small, lane: int) -> np.ndarray:
    h = np.array(small.example.rows(small.point(lane)), float)
    return np.where(small.system.equality | (h > 0.0), h, 0.0)


@pytest.mark.parametrize("example", [*EXAMPLES, TWICE, DISC], ids=lambda example: example.name)
@forms
def test_what_can_hold_ends_feasible(example: Example, augmented: bool):
    small = begun(example, augmented)
    done = restore(small)
    assert done.status.tolist() == [FEASIBLE] * LANES
    for lane in range(LANES):
        assert np.abs(broken(small, lane)).max() <= TOLERANCE


@pytest.mark.parametrize("example", [NEVER, BESIDE, GAP], ids=lambda example: example.name)
@forms
def test_what_cannot_hold_ends_where_nothing_lowers_the_violation(example: Example, augmented: bool):
    small = begun(example, augmented)
    done = restore(small)
    assert done.status.tolist() == [INFEASIBLE] * LANES
    for lane in range(LANES):
        weight = small.section(layout.ROW_WEIGHT)[:, lane]
        h = weight * broken(small, lane)
        jacobian = weight[:, None] * np.array(example.jacobian(small.point(lane)), float)
        least = max(_STATIONARY * np.linalg.norm(jacobian, axis=1).max(), _FAR * np.linalg.norm(h))
        assert np.linalg.norm(jacobian.T @ h) <= 1.01 * least * np.linalg.norm(h)
        assert np.linalg.norm(h) > TOLERANCE


@forms
def test_slopes_that_vanish_end_no_restoration_early(augmented: bool):
    # Near the least violation of u·u + 1 a step has to be damped by 1/‖J‖² of ‖J‖², which is beyond all bounds.
    for seed in range(4):
        x = lanes_near([1.2, 0.9], 3.0, seed=seed)
        done = restore(Small(NEVER, augmented).start(x, x), limits=1000)
        assert done.status.tolist() == [INFEASIBLE] * LANES


@forms
def test_the_least_violation_is_the_known_one(augmented: bool):
    done = restore(begun(NEVER, augmented))
    np.testing.assert_allclose(done.x, 0.0, atol=_FAR)  # u·u + 1 is least at zero
    small = begun(GAP, augmented)
    gap = restore(small)
    low, high = small.section(layout.ROW_WEIGHT) ** 2
    np.testing.assert_allclose(gap.x[0], (high - low) / (high + low), rtol=0.0, atol=10 * _STATIONARY)


@forms
def test_eliminated_unknowns_move_with_their_multipliers(augmented: bool):
    small = begun(PARABOLA, augmented)
    before = small.section(layout.MULTIPLIER).copy()
    done = restore(small)
    assert done.status.tolist() == [FEASIBLE] * LANES
    assert (done.multipliers != before).any()


@forms
def test_an_inequality_that_holds_takes_no_part(augmented: bool):
    x = lanes_near([-0.9, -0.5, 0.4], 0.1)  # the half space holds, the sphere does not
    small, sphere = (
        Small(LENS, augmented),
        Example("sphere", 3, LENS.laws[:1], LENS.rows, LENS.jacobian, LENS.curvature),
    )
    done, alone = restore(small.start(x, x)), restore(Small(sphere, augmented).start(x, x))
    assert done.status.tolist() == [FEASIBLE] * LANES
    np.testing.assert_allclose(done.x, alone.x, rtol=0.0, atol=TOLERANCE)


def test_a_point_that_obeys_is_left_as_it_is():
    x = lanes_near([0.1, -0.2], 0.3)
    done = restore(Small(DISC).start(x, x))
    assert done.status.tolist() == [FEASIBLE] * LANES
    assert done.x.tobytes() == x.tobytes()
    assert not done.iterations.any()


@forms
def test_a_bound_that_keeps_a_law_from_holding_is_where_it_ends(augmented: bool):
    small = Small(PLANE, augmented, bounds=([1.0, 2.0, 3.0], [9.0] * 3))  # their sum is 6 at least
    done = restore(small.start([4.0, 4.0, 4.0], [4.0, 4.0, 4.0]))
    assert done.status.tolist() == [INFEASIBLE] * LANES
    assert done.x.tolist() == [[1.0] * LANES, [2.0] * LANES, [3.0] * LANES]


@forms
def test_bounds_are_kept_where_a_law_holds_inside_them(augmented: bool):
    small = Small(PLANE, augmented, bounds=([0.5, -9.0, 0.0], [9.0, 0.25, 9.0]))
    done = restore(small.start([-3.0, 4.0, -1.0], [-3.0, 4.0, -1.0]))
    assert done.status.tolist() == [FEASIBLE] * LANES
    assert (done.x[0] >= 0.5).all()
    assert (done.x[1] <= 0.25).all()
    assert (done.x[2] >= 0.0).all()
    np.testing.assert_allclose(done.x.sum(0), 1.0, rtol=0.0, atol=TOLERANCE)


@forms
@pytest.mark.parametrize("example", [CIRCLE, LENS], ids=lambda example: example.name)
def test_nan_in_one_lane_leaves_the_other_seven_bit_identical(augmented: bool, example: Example):
    clean, spoilt = begun(example, augmented), begun(example, augmented)
    spoilt.section(layout.X)[0, 3] = np.nan
    right, found = restore(clean), restore(spoilt)
    others = np.flatnonzero(np.arange(LANES) != 3)
    assert found.status[3] == BROKEN
    assert found.lanes(others) == right.lanes(others)


@forms
def test_lanes_end_each_in_their_own_way(augmented: bool):
    limits, live = np.array([200, 0, 1, 200, 200, 200, 200, 200]), np.arange(LANES) != 5
    x = lanes_near([5.0], 1.0)
    x[0, 7] = np.nan
    done = restore(Small(ROOT, augmented).start(x, x), limits=limits, live=live)
    assert done.status.tolist() == [FEASIBLE, LIMIT, LIMIT, FEASIBLE, FEASIBLE, FEASIBLE, FEASIBLE, BROKEN]
    assert done.iterations[[1, 2, 5, 7]].tolist() == [0, 1, 0, 0]
    for lane in (1, 5):
        assert done.x[0, lane] == x[0, lane]


@forms
def test_a_stop_ends_all_lanes_where_they_are(augmented: bool):
    small = begun(CIRCLE, augmented)
    before = small.section(layout.X).copy()
    done = restore(small, stop=1)
    assert done.status.tolist() == [LIMIT] * LANES
    assert done.x.tobytes() == before.tobytes()


@forms
def test_nothing_of_the_damping_is_left_behind_and_a_second_call_gives_the_same_bits(augmented: bool):
    small, again = begun(BESIDE, augmented), begun(BESIDE, augmented)
    done = restore(small)
    assert not small.section(layout.BARRIER).any()
    assert restore(again).lanes(slice(None)) == done.lanes(slice(None))


def test_rows_in_small_units_count_as_much_as_those_in_large_ones():
    tiny = Example(
        "circle of tiny rows and a line beside it",
        2,
        (
            Equality("circle", lambda u, p: 1e-6 * (u[0] ** 2 + u[1] ** 2 - 1.0)),
            Equality("line", lambda u, p: u[0] - 3.0),
        ),
        lambda u: [1e-6 * (u @ u - 1.0), u[0] - 3.0],
        lambda u: [2e-6 * u, [1.0, 0.0]],
        lambda u, lam: 2e-6 * lam[0] * np.eye(2),
    )
    small, large = begun(tiny), begun(BESIDE)
    done, right = restore(small), restore(large)
    assert done.status.tolist() == right.status.tolist() == [INFEASIBLE] * LANES
    np.testing.assert_allclose(done.x, right.x, rtol=0.0, atol=100 * _STATIONARY)


def marked(small: Small, ordinary: float) -> Small:
    """Evaluate, and mark the rows that are broken."""
    residual_at(small.code, small.frame, small.tile)
    derivatives_at(small.code, small.frame, small.tile)
    size_rows(small.tile, ordinary)
    mark_broken(small.frame, small.tile, np.empty(LANES), np.empty(LANES))
    return small


@pytest.mark.parametrize("example", [CIRCLE, LENS, PARABOLA, TWICE], ids=lambda example: example.name)
def test_the_pull_is_the_slope_of_the_squared_violation(example: Example):
    small = marked(begun(example), 1.0)
    for lane in range(LANES):
        pull, norms = pull_of(small.frame, small.tile, lane)
        u, weight = small.point(lane), small.section(layout.ROW_WEIGHT)[:, lane]
        jacobian, h = np.array(example.jacobian(u), float), np.array(example.rows(u), float)
        broken = np.where(small.system.equality | (h > 0.0), h, 0.0)
        slope = jacobian.T @ (weight**2 * broken)
        assert pull == pytest.approx(slope @ slope, rel=ROUNDING, abs=ROUNDING**2)
        assert norms == pytest.approx((weight**2 * (jacobian**2).sum(1)).max(), rel=ROUNDING)


def test_a_pull_outwards_at_a_bound_is_none():
    bounds = ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    full = marked(Small(PLANE, bounds=bounds).start([1.0, 1.0, 0.5], AIM), 1e-3)
    assert pull_of(full.frame, full.tile, 0) == (3 * 1.5**2, 3.0)  # too large: all may fall
    bare = marked(Small(PLANE, bounds=bounds).start([0.0, 0.5, 0.0], AIM), 1e-3)
    assert pull_of(bare.frame, bare.tile, 0) == (3 * 0.5**2, 3.0)  # too small: all may rise
    over = Small(PLANE, bounds=([0.0, 0.0, 0.5], [1.0, 1.0, 2.0])).start([0.0, 1.0, 0.5], AIM)
    assert pull_of(over.frame, marked(over, 1e-3).tile, 0) == (0.5**2, 3.0)  # two of three cannot fall
