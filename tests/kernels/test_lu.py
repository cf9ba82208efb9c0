"""LU on tiles: against dense solves, on symmetric, unsymmetric and saddle-point patterns; lanes are independent."""

import numpy as np
import pytest
from scipy.sparse.csgraph import maximum_bipartite_matching

from snapfm.kernels.factor.lu import blend, eliminate, factorize, solve, solve_transposed
from snapfm.kernels.operations import LANES


def _grid(size):
    """Upwind convection and diffusion on a square: an unsymmetric pattern of 9 unknowns a side."""
    place = np.arange(size * size).reshape(size, size)
    row = np.concatenate([place.ravel()] * 4)
    shifts = [(0, 0), (1, 0), (0, 1), (0, -1)]
    return row, np.concatenate([np.roll(place, shift, (0, 1)).ravel() for shift in shifts]), size * size


def _saddle(size):
    """[[A, G], [Gᵀ, 0]] with a diagonal A: half of the diagonal is missing."""
    each = np.arange(size)
    row = np.concatenate([each, each, each, size + each, size + each])
    column = np.concatenate([each, size + each, size + (each + 1) % size, each, (each + 1) % size])
    return row, column, 2 * size


def _one(size):
    return np.zeros(1, np.int64), np.zeros(1, np.int64), 1


@pytest.fixture(params=[_grid, _saddle, _one], ids=["grid", "saddle", "1×1"])
def case(request):
    row, column, size = request.param(5)
    order = np.unique(row * size + column)
    row, column = order // size, order % size
    values = np.random.default_rng(0).uniform(0.5, 1.5, (len(row), LANES)) + 2.0 * (row == column)[:, None]
    dense = np.zeros((LANES, size, size))
    dense[:, row, column] = values.T
    from scipy.sparse import csr_array

    matched = maximum_bipartite_matching(csr_array((np.ones(len(row)), (row, column)), shape=(size, size)), "row")
    plan = eliminate(row, column, matched.astype(np.int64)).elimination
    assert plan is not None
    return plan, values, dense


def _factor(plan, values):
    factor, work = np.empty(plan.packs * LANES), np.empty(2 * len(plan.row) * LANES)
    factorize(plan, np.ascontiguousarray(values).ravel(), factor, work)
    return factor


def test_solves_as_dense_elimination_does(case):
    plan, values, dense = case
    right = np.random.default_rng(1).standard_normal((len(plan.row), LANES))
    factor = _factor(plan, values)
    for solver, matrix, enter, leave in (
        (solve, dense, plan.row, plan.column),
        (solve_transposed, dense.transpose(0, 2, 1), plan.column, plan.row),
    ):
        x = np.ascontiguousarray(right[enter]).ravel()
        solver(plan, factor, x)
        found = np.empty_like(right)
        found[leave] = x.reshape(-1, LANES)
        wanted = np.linalg.solve(matrix, right.T[:, :, None])[:, :, 0].T
        condition = np.linalg.cond(matrix).max()
        assert np.abs(found - wanted).max() <= 1e3 * condition * np.finfo(float).eps * np.abs(wanted).max()


def test_a_singular_lane_leaves_the_others_bit_identical(case):
    plan, values, _ = case
    clean = _factor(plan, values).reshape(-1, LANES)
    for fault in (0.0, np.nan):
        spoilt = values.copy()
        spoilt[:, 3] = fault
        other = np.delete(_factor(plan, spoilt).reshape(-1, LANES), 3, axis=1)
        assert np.array_equal(other, np.delete(clean, 3, axis=1))


def test_blend_copies_the_marked_lanes():
    source, target = np.arange(2.0 * LANES), -np.ones(2 * LANES)
    which = np.arange(LANES) % 3 == 0
    blend(which, source, target)
    assert np.array_equal(target.reshape(2, LANES), np.where(which, source.reshape(2, LANES), -1.0))


def test_a_tridiagonal_matrix_has_no_fill():
    size = 12
    each = np.arange(size)
    row, column = np.concatenate([each, each[1:], each[:-1]]), np.concatenate([each, each[:-1], each[1:]])
    plan = eliminate(row, column, each).elimination
    assert plan is not None
    assert plan.packs == size + 2 * (size - 1)
