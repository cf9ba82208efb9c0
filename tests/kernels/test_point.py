"""What Newton's kernel sees of a point, against the same written out by hand; NaN is never forgotten behind a finite row."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.small import (
    ALL,
    CIRCLE,
    DISC,
    EPS,
    EXAMPLES,
    LENS,
    PARABOLA,
    PLANE,
    TWICE,
    Example,
    Small,
    lanes_near,
)

from snapfm.kernels import layout
from snapfm.kernels.lanes import enter_units
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import (
    choose_sets,
    derivatives_at,
    merit_parts,
    nudge,
    residual_at,
    size_rows,
    snap_to_bounds,
    stationarity_of,
)

CENTER, AIM = [1.2, 0.9, 0.7], [1.0, 0.8, 0.5]
BOX = ([-9.0, -9.0, -9.0], [9.0, 9.0, 9.0])
ROUNDING = 64 * EPS  # of sums of some ten products of order one
every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
units = pytest.mark.parametrize("size", [1.0, 1e-6, 1e6], ids=["of order one", "small", "large"])


def started(example: Example, bounds=None, augmented: bool = False, size: float = 1.0) -> Small:
    small = Small(example, bounds=bounds, augmented=augmented)
    rows = small.system.rows.shape[1]
    x, target = lanes_near(CENTER[: example.n], 0.3), lanes_near(AIM[: example.n], 0.5, seed=1)
    return small.start(size * x, size * target, lanes_near([0.3, -0.2][:rows], 0.5, seed=2))


def looked(small: Small, ordinary: float = ALL) -> Small:
    residual_at(small.code, small.frame, small.tile)
    derivatives_at(small.code, small.frame, small.tile)
    size_rows(small.tile, ordinary)
    choose_sets(small.frame, small.tile)
    return small


def merit(small: Small) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    theta, objective, violation = (np.empty(LANES) for _ in range(3))
    merit_parts(small.frame, small.tile, theta, objective, violation)
    return theta, objective, violation


def gap(small: Small) -> np.ndarray:
    found = np.empty(LANES)
    stationarity_of(small.frame, small.tile, found)
    return found


@every_example
@units
def test_the_residual_is_that_of_the_rows_where_eliminated_unknowns_follow_the_multipliers(
    example: Example, size: float
):
    small = started(example, size=size)
    expected = np.array([example.rows(small.point(lane)) for lane in range(LANES)]).T
    enter_units(small.space, small.part.at)
    residual_at(small.code, small.frame, small.tile)
    found = small.section(layout.UNIT)[0] * small.section(layout.RESIDUAL)
    scale = np.abs(expected).max() + 1.0
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=ROUNDING * scale)


@every_example
def test_regularized_rows_give_way_by_their_multiplier(example: Example):
    small = started(example)
    residual_at(small.code, small.frame, small.tile)
    firm = small.section(layout.RESIDUAL).copy()
    delta = 0.25 + np.arange(LANES)
    small.section(layout.REGULARIZATION)[0] = delta
    residual_at(small.code, small.frame, small.tile)
    given = delta * small.section(layout.MULTIPLIER)
    np.testing.assert_allclose(small.section(layout.RESIDUAL), firm - given, rtol=0.0, atol=ROUNDING * LANES)


@every_example
@units
def test_derivatives_are_those_by_hand(example: Example, size: float):
    small = started(example, size=size)
    points, target = [small.point(lane) for lane in range(LANES)], small.target
    multipliers, moving = small.section(layout.MULTIPLIER).copy(), example.moving
    enter_units(small.space, small.part.at)
    residual_at(small.code, small.frame, small.tile)
    derivatives_at(small.code, small.frame, small.tile)
    pattern, hessian = small.system.program.pattern, small.system.program.hessian
    unit = small.section(layout.UNIT)[0]
    for lane, u in enumerate(points):
        jacobian = np.array(example.jacobian(u), float)
        curvature = np.array(example.curvature(u, multipliers[:, lane]), float)[np.ix_(moving, moving)]
        scale = 1.0 + np.abs(jacobian).max() + np.abs(curvature).max() + size
        found = pattern.csr(np.ascontiguousarray(small.section(layout.JACOBIAN)[:, lane])).toarray()
        np.testing.assert_allclose(found, jacobian[:, moving], rtol=0.0, atol=ROUNDING * scale)
        lower = hessian.csr(np.ascontiguousarray(small.section(layout.HESSIAN)[:, lane])).toarray()
        np.testing.assert_allclose(lower, np.tril(curvature), rtol=0.0, atol=ROUNDING * scale)
        gradient = (u - target[:, lane] + jacobian.T @ multipliers[:, lane])[moving]
        found = unit[lane] * small.section(layout.GRADIENT)[:, lane]
        np.testing.assert_allclose(found, gradient, rtol=0.0, atol=ROUNDING * scale)
        diagonal = small.section(layout.DIAGONAL)[:, lane]
        np.testing.assert_allclose(diagonal, 1.0 + np.diag(curvature), rtol=0.0, atol=ROUNDING * scale)
        norm = small.section(layout.ROW_NORM)[:, lane]
        np.testing.assert_allclose(norm, (jacobian**2).sum(1), rtol=ROUNDING, atol=0.0)


def test_entries_of_the_hessian_are_only_those_that_exist():
    assert [Small(example).system.program.hessian.nnz for example in (CIRCLE, PLANE, PARABOLA, LENS)] == [2, 0, 1, 3]


def test_rows_are_measured_by_slope_or_residual_whichever_is_larger():
    small = Small(LENS).start(CENTER, AIM)
    small.section(layout.ROW_NORM)[:] = np.array([[16.0], [0.01]])
    small.section(layout.RESIDUAL)[:] = np.array([[3.0], [-7.0]])
    size_rows(small.tile, ALL)
    assert small.section(layout.ROW_SIZE).tolist() == [[4.0] * LANES, [7.0] * LANES]
    assert small.section(layout.ROW_WEIGHT).tolist() == [[0.25] * LANES, [1.0 / 7.0] * LANES]


def test_ordinary_rows_are_left_as_they_are():
    small = Small(CIRCLE).start([1.0, 0.0], [1.0, 0.0])
    small.section(layout.RESIDUAL)[:] = 0.0
    sizes = np.array([1e-9, 1e-4, 1e-2, 1.0, 1e2, 1e4, 0.0, np.nan])
    small.section(layout.ROW_NORM)[0] = sizes**2
    size_rows(small.tile, 1e-3)
    expected = np.array([1e-9, 1e-4, 1.0, 1.0, 1.0, 1e4, 1.0, 1.0])
    np.testing.assert_allclose(small.section(layout.ROW_SIZE)[0], expected, rtol=2 * EPS)
    np.testing.assert_allclose(small.section(layout.ROW_WEIGHT)[0], 1.0 / expected, rtol=2 * EPS)


@pytest.mark.parametrize("example", [CIRCLE, TWICE], ids=["once", "twice"])
def test_a_broken_row_without_slope_is_pushed_off_its_centre_in_its_lane_alone(example: Example):
    x = lanes_near(CENTER[:2], 0.3)
    x[:, 3] = 0.0
    small = Small(example).start(x, AIM[:2])
    looked(small)
    assert nudge(small.frame, small.tile, np.full(LANES, 1e-8))
    found, others = small.section(layout.X), np.arange(LANES) != 3
    assert found[:, others].tobytes() == x[:, others].tobytes()
    assert (found[:, 3] != 0.0).all()
    assert abs(found[0, 3]) != abs(found[1, 3])  # no symmetry
    assert np.abs(found[:, 3]).max() <= 1e-2  # once, though two rows see it


def test_only_broken_rows_are_pushed():
    flat = np.zeros((2, LANES))
    inside = looked(Small(DISC).start(flat, AIM[:2]))  # the disc holds at its centre
    assert not nudge(inside.frame, inside.tile, np.full(LANES, 1e-8))
    circle = looked(Small(CIRCLE).start(flat, AIM[:2]))
    assert not nudge(circle.frame, circle.tile, np.full(LANES, 2.0))  # broken by less than the tolerance
    assert not circle.section(layout.X).any()


def test_rows_take_part_if_holding_them_gives_a_multiplier_of_the_right_sign():
    small = Small(DISC).start([1.0, 0.0], [1.0, 0.0])
    small.section(layout.ROW_NORM)[:] = 4.0
    small.section(layout.RESIDUAL)[0] = [1.0, -1.0, -1.0, 1.0, 0.0, 0.0, 0.0, np.nan]
    small.section(layout.MULTIPLIER)[0] = lam = np.array([0.0, 0.0, 0.3, -0.3, 0.1, -0.1, 0.0, 0.0])
    choose_sets(small.frame, small.tile)
    active = np.array([1, 0, 1, 0, 1, 0, 0, 0], float)  # λ + h/4 > 0
    assert small.section(layout.ACTIVE)[0].tolist() == active.tolist()
    assert small.section(layout.IDLE)[0].tolist() == np.where(active == 1.0, 0.0, lam).tolist()


def test_equalities_always_take_part():
    small = looked(started(LENS))
    assert small.section(layout.ACTIVE)[0].tolist() == [1.0] * LANES
    assert small.section(layout.IDLE)[0].tolist() == [0.0] * LANES


def test_bounds_hold_what_a_step_along_the_slope_would_take_beyond_them():
    small = Small(PLANE, bounds=([0.0, -np.inf, 0.0], [1.0, np.inf, np.inf])).start([0.5, 0.5, 0.25], AIM)
    small.section(layout.RESIDUAL)[:], small.section(layout.ROW_NORM)[:] = 0.0, 3.0
    small.section(layout.GRADIENT)[:] = np.array([[-2.0], [9.0], [0.25]])
    small.section(layout.GRADIENT)[:, 1] = [2.0, -9.0, 0.5]
    choose_sets(small.frame, small.tile)
    to_bound = small.section(layout.TO_BOUND)
    np.testing.assert_array_equal(to_bound[:, 0], [0.5, np.nan, np.nan])  # just at a bound is free
    np.testing.assert_array_equal(to_bound[:, 1], [-0.5, np.nan, -0.25])


def test_what_is_held_is_set_to_its_bound_in_lanes_that_arrived():
    small = Small(PLANE, bounds=([0.0] * 3, [1.0] * 3)).start([EPS, 1.0 - EPS, 0.5], AIM)
    small.section(layout.GRADIENT)[:] = np.array([[2.0], [-2.0], [0.0]])
    small.section(layout.TO_BOUND)[:] = np.array([[-EPS], [EPS], [np.nan]])
    arrived = np.arange(LANES) == 5
    assert snap_to_bounds(small.tile, arrived)
    x = small.section(layout.X)
    assert x[:, 5].tolist() == [0.0, 1.0, 0.5]
    assert (x[:, ~arrived] == np.array([[EPS], [1.0 - EPS], [0.5]])).all()
    assert not snap_to_bounds(small.tile, arrived)  # they are there now
    assert not snap_to_bounds(small.tile, np.zeros(LANES, bool))


@every_example
def test_merit_adds_up_violations_and_half_the_squared_distance(example: Example):
    small = looked(started(example))
    theta, objective, violation = merit(small)
    equality, weight = small.system.equality, small.section(layout.ROW_WEIGHT)
    for lane in range(LANES):
        u = small.point(lane)
        broken = np.array(example.rows(u), float)
        broken = np.where(equality, np.abs(broken), np.maximum(broken, 0.0))
        away = u - small.target[:, lane]  # Aᵀλ, where unknowns were eliminated
        scale = 1.0 + np.abs(broken).max() + away @ away
        assert theta[lane] == pytest.approx(weight[:, lane] @ broken, rel=0.0, abs=ROUNDING * scale)
        assert violation[lane] == pytest.approx(broken.max(), rel=0.0, abs=ROUNDING * scale)
        assert objective[lane] == pytest.approx(0.5 * away @ away, rel=0.0, abs=ROUNDING * scale)


def test_merit_counts_what_is_beyond_a_bound_and_what_rows_give_way():
    small = Small(PLANE, bounds=([0.0, 0.0, 0.0], [1.0, np.inf, 1.0])).start([-0.5, 0.25, 3.25], AIM, [2.0])
    small.section(layout.REGULARIZATION)[:] = 0.5
    theta, objective, violation = merit(looked(small, ordinary=1e-3))
    # the row: 3 − 1 − δλ = 1; the bounds: 0.5 below and 2.25 above
    assert theta.tolist() == [1.0 + 0.5 + 2.25] * LANES
    assert violation.tolist() == [2.25] * LANES
    away = np.array([-0.5, 0.25, 3.25]) - AIM
    np.testing.assert_allclose(objective, 0.5 * (away @ away + 2.0 * 0.5 * 2.0), rtol=ROUNDING)


@every_example
def test_without_limits_the_gap_is_the_largest_slope(example: Example):
    small = looked(started(example))
    largest = np.abs(small.section(layout.GRADIENT)).max(0)
    if example is not LENS:
        assert gap(small).tolist() == largest.tolist()
        return
    norm = np.sqrt(small.section(layout.ROW_NORM)[1])
    active, idle = small.section(layout.ACTIVE)[1], small.section(layout.IDLE)[1]
    off = np.where(active == 1.0, np.abs(small.section(layout.RESIDUAL)[1]) / norm, np.abs(idle) * norm)
    np.testing.assert_allclose(gap(small), np.maximum(largest, off), rtol=ROUNDING)


def test_the_gap_of_a_held_unknown_is_its_way_to_the_bound():
    small = Small(PLANE, bounds=([0.0] * 3, [9.0] * 3)).start([0.125, 0.5, 0.375], [-3.0, 0.5, 0.375])
    looked(small)
    assert gap(small).tolist() == [0.125] * LANES


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("bounds", [None, BOX], ids=["no limits", "bounds"])
@pytest.mark.parametrize("example", [LENS, PLANE], ids=lambda example: example.name)
def test_nan_of_one_unknown_reaches_violation_and_gap_of_its_lane_alone(example: Example, bounds, place: int):
    clean = looked(started(example, bounds=bounds))
    small = started(example, bounds=bounds)
    small.section(layout.X)[place, 3] = np.nan
    looked(small)
    others = np.arange(LANES) != 3
    for seen, right in zip((*merit(small), gap(small)), (*merit(clean), gap(clean))):
        assert np.isnan(seen[3])
        assert seen[others].tobytes() == right[others].tobytes()
