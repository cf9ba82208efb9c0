"""What Fronts adds to the seam: lanes that are skipped, a stop, and many right-hand sides of one factor."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from snapfm.compile.sparsity.pattern import Pattern
from snapfm.errors import ShapeError
from snapfm.kernels.factor import front_solves
from snapfm.linear import Fronts, Outcome

SIZE, LANES = 150, 5


def made(seed=0):
    """A band of dense columns: pattern, values (nnz, lanes) and dense matrices."""
    row, column = np.nonzero(np.tri(SIZE, dtype=bool) & ~np.tri(SIZE, k=-20, dtype=bool))
    pattern = Pattern.from_coordinates(row, column, (SIZE, SIZE))
    values = np.random.default_rng(seed).standard_normal((pattern.nnz, LANES))
    values[row == column] += 60.0
    dense = np.zeros((LANES, SIZE, SIZE))
    dense[:, row, column] = dense[:, column, row] = values.T
    return pattern, values, dense


def test_lanes_that_are_not_live_are_skipped_and_change_nothing():
    pattern, values, _ = made()
    rhs = np.random.default_rng(1).standard_normal((SIZE, LANES))
    work = Fronts().prepare(pattern).workspace()
    every = work.factorize(values)
    whole, logs = work.solve(rhs.copy()), work.log_determinant()
    live = np.array([False, True, False, True, True])
    spoiled = np.where(live, values, np.nan)
    some = work.factorize(spoiled, live)
    assert some.status[live].tolist() == [Outcome.FACTORED] * 3
    assert np.array_equal(some.smallest[live], every.smallest[live])
    x = work.solve(rhs.copy())
    assert np.array_equal(x[:, live], whole[:, live])
    assert not x[:, ~live].any()
    assert np.array_equal(work.log_determinant()[live], logs[live])
    work.factorize(values)
    assert np.array_equal(work.solve(rhs.copy()), whole)


def test_memory_is_that_of_the_live_lanes():
    pattern, values, _ = made()
    work = Fronts().prepare(pattern).workspace()
    for lane in range(LANES):
        work.factorize(values, np.arange(LANES) == lane)
    assert len(work._lanes) == 1
    work.factorize(values)
    assert len(work._lanes) == LANES


def test_live_lanes_are_checked():
    pattern, values, _ = made()
    with pytest.raises(
        ShapeError, match=r"factorize\(live\) expects \(5,\), a mark per lane of values; got \(4,\)\. Omit"
    ):
        Fronts().prepare(pattern).workspace().factorize(values, np.ones(4, bool))


def test_a_stop_ends_it_without_factors():
    pattern, values, _ = made()
    work = Fronts().prepare(pattern).workspace()
    stopped = work.factorize(values, stop=np.ones(1, np.int64))
    assert stopped.status.tolist() == [Outcome.NONFINITE] * LANES
    assert work.factorize(values, stop=np.zeros(1, np.int64)).status.tolist() == [Outcome.FACTORED] * LANES


def test_many_right_hand_sides_of_one_factor():
    pattern, values, dense = made()
    factor = Fronts().prepare(pattern).factor(np.ascontiguousarray(values[:, 2]))
    right = np.random.default_rng(1).standard_normal((19, SIZE))
    x = factor.solve(right)
    np.testing.assert_allclose(x @ dense[2], right, atol=1e-12)
    assert np.array_equal(factor.solve(right[4:17]), x[4:17])
    assert np.array_equal(factor.solve(right[[11]]), x[[11]])
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(one, x) for one in pool.map(factor.solve, [right] * 8))


def test_no_right_hand_side():
    pattern, values, _ = made()
    assert Fronts().prepare(pattern).factor(values[:, 0].copy()).solve(np.ones((0, SIZE))).shape == (0, SIZE)


def test_right_hand_sides_of_zeros_are_not_solved(monkeypatch):
    pattern, values, _ = made()
    rhs = np.random.default_rng(1).standard_normal((SIZE, LANES))
    work = Fronts().prepare(pattern).workspace()
    work.factorize(values)
    whole = work.solve(rhs.copy())
    zero = np.array([True, False, True, False, False])
    solved = []

    def counted(plan, factor, inverse, right, lane, room, out):
        solved.append(lane)
        return front_solves.solve(plan, factor, inverse, right, lane, room, out)

    monkeypatch.setattr("snapfm.linear.fronts.solve", counted)
    x = work.solve(np.where(zero, 0.0, rhs), np.full_like(rhs, np.nan))
    assert solved == [1, 3, 4]
    assert not x[:, zero].any()
    assert np.array_equal(x[:, ~zero], whole[:, ~zero])
