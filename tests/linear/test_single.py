"""Factors in float32: used where they serve, done again in float64 where they do not, and never without saying so."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from snapfm.errors import SettingError
from snapfm.kernels.packs import SINGLE_WIDTH, WIDTH, full_like, load, narrow, store, take_as, widen_high, widen_low
from snapfm.linear import Lanes, Outcome, PivotRule
from snapfm.structure.pattern import Pattern

EPS = np.finfo(np.float64).eps
SINGLE = Lanes(precision="float32")
LONG = 20_000


def chain(diagonals):
    """Tridiagonal matrices with -1 beside these diagonals: condition 1.6e8 at 2, 9 at 2.5, and no pivot is weak."""
    row, column = (
        np.concatenate([np.arange(LONG), np.arange(1, LONG)]),
        np.concatenate([np.arange(LONG), np.arange(LONG - 1)]),
    )
    pattern = Pattern.from_coordinates(row, column, (LONG, LONG))
    below = pattern.row_of() != pattern.indices
    return pattern, np.where(below[:, None], -1.0, np.array(diagonals))


def backward_error(diagonal, x, b):
    left = b - diagonal * x
    left[1:] += x[:-1]
    left[:-1] += x[1:]
    return np.abs(left).max() / ((diagonal + 2) * np.abs(x).max() + np.abs(b).max())


def pairs(gaps):
    """[[1, 1], [1, 1 + d]]: the second pivot is d in any order."""
    pattern = Pattern.from_coordinates([0, 1, 1], [0, 0, 1], (2, 2))
    return pattern, np.array([np.ones(len(gaps)), np.ones(len(gaps)), 1.0 + np.array(gaps)])


def both(pattern, values, rhs, solver=SINGLE):
    """Pivots and answer with factors in float32, and with the same settings in float64."""
    double = Lanes(solver.pivots, solver.refinements).prepare(pattern).workspace()
    wanted = double.factorize(values)
    work = solver.prepare(pattern).workspace()
    return work, work.factorize(values), work.solve(rhs.copy()), wanted, double.solve(rhs.copy())


@pytest.mark.parametrize("lanes", [1, WIDTH, WIDTH + 3, SINGLE_WIDTH, SINGLE_WIDTH + 1])
def test_good_matrices_stay_in_float32_and_answers_are_as_good_as_in_float64(lanes):
    pattern, values = chain(np.linspace(2.5, 4.0, lanes))
    rhs = np.random.default_rng(0).standard_normal((LONG, lanes))
    work, pivots, x, wanted, exact = both(pattern, values, rhs)
    assert work.doubled.tolist() == []
    assert pivots.status.tolist() == [Outcome.FACTORED] * lanes
    assert not np.array_equal(x, exact)  # or float32 was never in it
    np.testing.assert_allclose(pivots.smallest, wanted.smallest, rtol=64 * np.finfo(np.float32).eps)
    for lane, diagonal in enumerate(np.linspace(2.5, 4.0, lanes)):
        assert backward_error(diagonal, x[:, lane], rhs[:, lane]) <= 4 * EPS


def test_an_ill_conditioned_lane_is_solved_in_float64_and_spares_the_others():
    pattern, values = chain([2.5, 2.0, 3.0])
    rhs = np.random.default_rng(0).standard_normal((LONG, 3))
    work, pivots, x, wanted, exact = both(pattern, values, rhs)
    assert work.doubled.tolist() == [1]
    assert pivots.status.tolist() == [Outcome.FACTORED] * 3
    assert np.array_equal(x[:, 1], exact[:, 1])
    assert pivots.smallest[1] == wanted.smallest[1]
    alone = SINGLE.prepare(pattern).workspace()
    alone.factorize(np.ascontiguousarray(values[:, [0, 2]]))
    assert np.array_equal(x[:, [0, 2]], alone.solve(np.ascontiguousarray(rhs[:, [0, 2]])))


def test_one_ill_conditioned_factor_serves_many_lanes_and_sides():
    pattern, values = chain([2.0])
    rhs = np.random.default_rng(0).standard_normal((LONG, 2, SINGLE_WIDTH + 1))
    rhs[:, 1, 3] = 0.0  # solved at once: nothing to refine
    work, _, x, _, exact = both(pattern, values, rhs)
    assert work.doubled.tolist() == [0]
    assert np.array_equal(x, exact)


def test_a_pivot_that_is_weak_in_float32_alone_is_found_in_float64():
    pattern, values = pairs([0.5, 1e-7, -1e-7, 1e-12])
    rhs = np.random.default_rng(0).standard_normal((2, 4))
    work, pivots, x, wanted, exact = both(pattern, values, rhs)
    assert work.doubled.tolist() == [1, 2, 3]
    assert pivots.status.tolist() == [Outcome.FACTORED] * 4
    assert pivots.negative.tolist() == [0, 0, 1, 0]
    assert pivots.weak.tolist() == [0] * 4
    assert pivots.smallest.tolist() == wanted.smallest.tolist()
    assert np.array_equal(x[:, 1:], exact[:, 1:])


@pytest.mark.parametrize("size", [1e60, 1e-60])
def test_values_beyond_the_range_of_float32(size):
    pattern, values = pairs([0.5, 0.5])
    values[:, 1] *= size
    rhs = np.ones((2, 2)) * [1.0, size]
    work, pivots, x, _, exact = both(pattern, values, rhs)
    assert work.doubled.tolist() == [1]
    assert pivots.status.tolist() == [Outcome.FACTORED] * 2
    assert np.array_equal(x[:, 1], exact[:, 1])


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_right_hand_sides_may_be_of_any_size(size):
    pattern, values = pairs([0.5])
    work, _, x, _, exact = both(pattern, values, np.array([[1.0], [2.0]]) * size)
    assert work.doubled.tolist() == []
    np.testing.assert_allclose(x, exact, rtol=32 * EPS)


def test_a_matrix_that_solve_finds_singular_is_reported():
    """An arrow whose last pivot is exactly zero, and in float32 well above what rounding a single number explains."""
    points, side = 3000, 1 + 3 / 2**16  # the square of it needs 33 bits: rounding of float32 adds up, float64 is exact
    row = np.concatenate([np.arange(points), np.full(points + 1, points)])
    column = np.concatenate([np.arange(points), np.arange(points + 1)])
    pattern = Pattern.from_coordinates(row, column, (points + 1, points + 1))
    values = np.concatenate([np.ones(points), np.full(points, side), [points * side**2]])[:, None]
    assert Lanes().prepare(pattern).workspace().factorize(values).status.tolist() == [Outcome.SINGULAR]
    work = SINGLE.prepare(pattern).workspace()
    pivots = work.factorize(values)
    assert pivots.status.tolist() == [Outcome.FACTORED]  # as far as float32 can tell
    work.solve(np.ones((points + 1, 1)))
    assert pivots.status.tolist() == [Outcome.SINGULAR]
    assert pivots.weak.tolist() == [1]
    assert pivots.smallest.tolist() == [0.0]


def test_bits_do_not_depend_on_lanes_doubled_before():
    pattern, values = pairs([0.5, 0.25])
    work = SINGLE.prepare(pattern).workspace()
    work.factorize(values)
    rhs = np.random.default_rng(0).standard_normal((2, 2))
    before = work.solve(rhs.copy())
    assert work.doubled.tolist() == []
    broken = rhs.copy()
    broken[0, 1] = np.nan
    after = work.solve(broken)
    assert np.isnan(after[:, 1]).any()
    assert np.array_equal(after[:, 0], before[:, 0])
    assert work.doubled.tolist() == [1]
    assert np.array_equal(work.solve(rhs.copy()), before)


def test_the_pivot_rule_is_that_of_float64():
    pattern, values = pairs([0.5, 1e-7, 0.0])
    rhs = np.ones((2, 3))
    solver = Lanes(PivotRule(tiny=1e-9, repair=1e-3), refinements=2, precision="float32")
    work, pivots, x, wanted, exact = both(pattern, values, rhs, solver)
    assert work.doubled.tolist() == [1, 2]
    assert pivots.weak.tolist() == wanted.weak.tolist() == [0, 0, 1]
    assert np.array_equal(x[:, 1:], exact[:, 1:])


def test_a_wrong_precision_is_named():
    with pytest.raises(SettingError, match=r"Lanes\(precision\) expects 'float64' or 'float32'; got 'float16'\. It is"):
        Lanes(precision="float16")


@njit
def _convert(x, single, back):
    store(single, 0, narrow(load(x, 0), load(x, 1)))
    store(single, 1, full_like(single, 0.1))
    store(back, 0, widen_low(load(single, 0)))
    store(back, 1, widen_high(load(single, 0)))


def test_packs_are_converted_lane_by_lane():
    x, single, back = np.random.default_rng(0).standard_normal(SINGLE_WIDTH), *_rooms()
    _convert(x, single, back)
    assert single[:SINGLE_WIDTH].tolist() == x.astype(np.float32).tolist()
    assert single[SINGLE_WIDTH:].tolist() == [np.float32(0.1)] * SINGLE_WIDTH
    assert back.tolist() == x.astype(np.float32).tolist()


@njit
def _taken(x, offset, count, single):
    store(single, 0, take_as(single, x, offset, count))


@pytest.mark.parametrize("count", range(1, SINGLE_WIDTH + 1))
def test_incomplete_tiles_repeat_their_last_lane(count):
    x, single = np.arange(3.0 + count), _rooms()[0]
    _taken(x, 3, count, single)
    assert single[:SINGLE_WIDTH].tolist() == [x[3 + min(k, count - 1)] for k in range(SINGLE_WIDTH)]


def _rooms():
    return np.empty(2 * SINGLE_WIDTH, np.float32), np.empty(SINGLE_WIDTH)
