"""Gram matrices per lane against dense products."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from snapfm.kernels.gram import gram, plan


def jacobian(seed=0):
    """Local rows, a row that spans everything, an empty row; 7 x 12."""
    rng = np.random.default_rng(seed)
    used = np.zeros((7, 12), bool)
    for i in range(5):
        used[i, 2 * i : 2 * i + 3] = True
    used[5] = True
    pattern = csr_array(used)
    return pattern.indptr.astype(np.int64), pattern.indices.astype(np.int64), rng


def filled(indptr, indices, values):
    return csr_array((values, indices, indptr), shape=(7, 12)).toarray()


@pytest.mark.parametrize("lanes", [1, 8, 13])
def test_lower_triangle_of_j_w_jt(lanes):
    indptr, indices, rng = jacobian()
    values, weights = rng.standard_normal((len(indices), lanes)), rng.uniform(0.5, 2, (12, lanes))
    found = plan(indptr, indices, 12)
    out = np.full((len(found.indices), lanes), np.nan)
    gram(found, values.reshape(-1), weights.reshape(-1), lanes, out.reshape(-1))
    for lane in range(lanes):
        j = filled(indptr, indices, values[:, lane])
        got = csr_array((out[:, lane], found.indices, found.indptr), shape=(7, 7)).toarray()
        np.testing.assert_allclose(got, np.tril(j * weights[:, lane] @ j.T), atol=1e-13)
    assert (found.indices[found.indptr[1:] - 1] == np.arange(7)).all()  # the diagonal is there, and last


def test_known_products_are_added_up_once():
    indptr, indices, rng = jacobian(1)
    values, weights = rng.standard_normal((len(indices), 3)), rng.uniform(0.5, 2, (12, 3))
    row = np.repeat(np.arange(7), np.diff(indptr))
    constant = row == 5
    values[constant] = 0.5
    unit = np.arange(12) >= 6
    weights[unit] = 1.0
    whole, less = plan(indptr, indices, 12), plan(indptr, indices, 12, np.where(constant, 0.5, np.nan), unit)
    assert len(whole.left) - len(less.left) == 6  # the long row with itself, in six columns of weight 1
    outs = [np.empty((len(whole.indices), 3)) for _ in range(2)]
    for found, out in zip((whole, less), outs):
        gram(found, values.reshape(-1), weights.reshape(-1), 3, out.reshape(-1))
    np.testing.assert_allclose(*outs, rtol=1e-14, atol=1e-15)


def test_lanes_are_apart():
    indptr, indices, rng = jacobian(2)
    values, weights = rng.standard_normal((len(indices), 11)), rng.uniform(0.5, 2, (12, 11))
    found = plan(indptr, indices, 12)

    def run(lanes):
        out = np.empty((len(found.indices), len(lanes)))
        parts = [np.ascontiguousarray(a[:, lanes]).reshape(-1) for a in (values, weights)]
        gram(found, *parts, len(lanes), out.reshape(-1))
        return out

    whole = run(range(11))
    assert np.array_equal(run(range(11)), whole)
    order = rng.permutation(11)
    assert np.array_equal(run(order), whole[:, order])
    assert np.array_equal(run([10]), whole[:, [10]])
    values[3, 4] = np.nan
    others = np.arange(11) != 4
    assert np.array_equal(run(range(11))[:, others], whole[:, others])
