"""A constant matrix with a few rows that vary, against dense arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from snapfm.compile.sparsity.pattern import Pattern
from snapfm.linear import Outcome
from snapfm.linear.bordered import PreparedBordered

LANES, SIZE = 8, 9


def bordered(border: list[int], seed: int = 0, vary: float = 1.0) -> tuple[PreparedBordered, np.ndarray, np.ndarray]:
    """Return a prepared matrix, its values (nnz, LANES), and the dense matrices."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((LANES, SIZE, 2 * SIZE))
    rows[:, [r for r in range(SIZE) if r not in border]] = rows[0, [r for r in range(SIZE) if r not in border]]
    rows[:, border] *= vary
    dense = rows @ rows.transpose(0, 2, 1)
    row, column = np.tril_indices(SIZE)
    pattern = Pattern.from_coordinates(row, column, (SIZE, SIZE))
    values = np.ascontiguousarray(dense[:, row, column].T)
    return PreparedBordered.of(pattern, values[:, 0], np.array(border)), values, dense


every_border = pytest.mark.parametrize("border", [[8], [0], [3, 5], [0, 4, 8], [1, 2, 3, 6]], ids=str)


@every_border
def test_solutions_and_determinants_are_those_of_the_dense_matrix(border: list[int]):
    prepared, values, dense = bordered(border)
    work = prepared.workspace()
    found = work.factorize(values)
    assert (found.status == Outcome.FACTORED).all()
    assert not found.negative.any()
    right = np.random.default_rng(1).standard_normal((SIZE, LANES))
    out = work.solve(right.copy())
    for lane in range(LANES):
        np.testing.assert_allclose(out[:, lane], np.linalg.solve(dense[lane], right[:, lane]), rtol=1e-10)
    np.testing.assert_allclose(work.log_determinant(), np.linalg.slogdet(dense)[1], rtol=1e-12)


@every_border
def test_the_same_factors_serve_the_next_matrix(border: list[int]):
    prepared, values, _ = bordered(border)
    work, fresh = prepared.workspace(), prepared.workspace()
    work.factorize(bordered(border, seed=0, vary=3.0)[1])
    work.factorize(values)
    fresh.factorize(values)
    right = np.random.default_rng(2).standard_normal((SIZE, LANES))
    np.testing.assert_array_equal(work.solve(right.copy()), fresh.solve(right.copy()))


def test_a_lane_does_not_depend_on_the_others():
    prepared, values, _ = bordered([2, 7])
    right = np.random.default_rng(3).standard_normal((SIZE, LANES))
    work = prepared.workspace()
    work.factorize(values)
    whole = work.solve(right.copy())
    broken = values.copy()
    broken[prepared.entry, 4] = np.nan
    work.factorize(broken)
    others = np.arange(LANES) != 4
    np.testing.assert_array_equal(work.solve(right.copy())[:, others], whole[:, others])


def test_a_border_row_that_repeats_another_row_is_left_out():
    _, values, dense = bordered([8])
    dense[:, 8, :] = dense[:, 3, :]
    dense[:, :, 8] = dense[:, :, 3]
    dense[:, 8, 8] = dense[:, 3, 3]
    row, column = np.tril_indices(SIZE)
    prepared = PreparedBordered.of(Pattern.from_coordinates(row, column, (SIZE, SIZE)), values[:, 0], np.array([8]))
    work = prepared.workspace()
    found = work.factorize(np.ascontiguousarray(dense[:, row, column].T))
    assert (found.weak == 1).all()
    assert (found.status == Outcome.SINGULAR).all()
    right = dense[:, :, 3].T.copy()  # the image of the third unit vector
    np.testing.assert_allclose(work.solve(right), np.eye(SIZE)[:, [3] * LANES], atol=1e-9)


def test_negative_pivots_of_the_border_are_counted():
    prepared, values, _ = bordered([8])
    values[-1] -= 1e3
    assert (prepared.workspace().factorize(values).negative == 1).all()


def test_a_zero_needs_no_solve():
    prepared, values, _ = bordered([8])
    work = prepared.workspace()
    work.factorize(values)
    assert not work.solve(np.zeros((SIZE, LANES))).any()
