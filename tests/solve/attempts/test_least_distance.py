"""The vector of least norm under linear rows: optimality with dependent rows, and contradictions."""

from __future__ import annotations

import numpy as np
import pytest

from snapfm.solve.attempts.least_distance import balance, least_distance


@pytest.mark.parametrize("seed", range(8))
def test_answers_meet_their_optimality_conditions_also_with_repeated_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, z = rng.standard_normal((9, 5)), rng.standard_normal(5)
    equal = np.arange(9) < 2
    limits = rows @ z + np.where(equal, 0.0, rng.uniform(0.0, 1.0, 9) * (rng.uniform(size=9) < 0.5))
    rows, limits, equal = np.tile(rows, (2, 1)), np.tile(limits, 2), np.tile(equal, 2)
    found = least_distance(rows, limits, equal)
    assert found is not None
    near, y = found
    off = rows @ near - limits
    assert np.abs(off[equal]).max() < 1e-12
    assert off.max() < 1e-12
    assert np.abs(near + rows.T @ y).max() < 1e-12
    assert (y[~equal] >= 0.0).all()
    assert np.abs(y[~equal] * off[~equal]).max() < 1e-12


def test_a_vertex_with_more_active_rows_than_unknowns() -> None:
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])  # all of them meet in (-1, -2)
    found = least_distance(rows, rows @ np.array([-1.0, -2.0]), np.zeros(4, bool))
    assert found is not None
    np.testing.assert_allclose(found[0], [-1.0, -2.0], atol=1e-14)


@pytest.mark.parametrize("rows", [[[1.0, 0.0], [-1.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]])
def test_rows_that_contradict_each_other_have_no_answer(rows: list[list[float]]) -> None:
    assert least_distance(np.array(rows), np.array([-1.0, -1.0]), np.zeros(2, bool)) is None


def test_zero_is_the_answer_where_it_obeys() -> None:
    found = least_distance(np.eye(2), np.array([1.0, 0.0]), np.zeros(2, bool))
    assert found is not None
    assert not found[0].any()
    assert not found[1].any()


def test_balance_respects_signs() -> None:
    rows = np.array([[1.0, 0.0], [0.0, 1.0]])
    y = balance(rows, np.array([False, True]), np.array([-1.0, -2.0]))
    assert y is not None
    np.testing.assert_allclose(y, [0.0, -2.0], atol=1e-14)
