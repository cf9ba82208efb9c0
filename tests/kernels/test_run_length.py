"""Runs: products with a joined matrix equal those with the matrix, whatever order its entries have."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array, random_array

from snapfm.kernels.run_length import add_batch, join, products, products_to_tiles, tiles_to_field


def _slices(nx: int = 5, nt: int = 7) -> coo_array:
    """Row t sums slice t of an (nx, nt) field: neighbours in memory belong to neighbouring rows."""
    place = np.arange(nx * nt)
    return coo_array((np.full(nx * nt, 0.5), (place % nt, place)), shape=(nt, nx * nt))


def _lines(nx: int = 5, nt: int = 7) -> coo_array:
    """Row x sums line x: neighbours belong to one row."""
    place = np.arange(nx * nt)
    return coo_array((np.ones(nx * nt), (place // nt, place)), shape=(nx, nx * nt))


def _strided() -> coo_array:
    """Neighbours are three rows apart."""
    return coo_array((np.ones(6), (3 * np.arange(6), 4 + np.arange(6))), shape=(18, 12))


def _any(seed: int) -> coo_array:
    return random_array((9, 23), density=0.3, rng=np.random.default_rng(seed)).tocoo()


MATRICES = {
    "slices": (_slices(), 5),
    "lines": (_lines(), 5),
    "strided": (_strided(), 1),
    "long": (_slices(3, 40), 3),
    "empty": (coo_array((3, 4)), 0),
    "any": (_any(0), None),
    "other": (_any(1), None),
}


def _joined(matrix: coo_array):
    shuffled = np.random.default_rng(2).permutation(matrix.nnz)
    return join(matrix.col[shuffled].astype(np.int64), matrix.row[shuffled].astype(np.int64), matrix.data[shuffled])


@pytest.mark.parametrize("name", MATRICES)
def test_products_equal_those_with_the_matrix(name: str):
    matrix, count = MATRICES[name]
    runs = _joined(matrix)
    if count is not None:
        assert len(runs.place) == count
    assert int(runs.length.sum()) == matrix.nnz
    random = np.random.default_rng(3)
    field, weight = random.standard_normal((3, matrix.shape[1])), random.standard_normal((3, matrix.shape[0]))
    out, back = np.ones((3, matrix.shape[0])), field.copy()
    products(runs, field, out)
    add_batch(runs, weight, back)
    assert np.allclose(out, 1.0 + field @ matrix.toarray().T, rtol=0.0, atol=1e-13)
    assert np.allclose(back, field + weight @ matrix.toarray(), rtol=0.0, atol=1e-13)


@pytest.mark.parametrize("samples", [1, 3, 9])
def test_tiles_hold_one_lane_per_part_and_the_last_is_repeated(samples: int):
    parts, rows = 2, 4
    matrix = random_array((parts * rows, 11), density=0.5, rng=np.random.default_rng(4)).tocoo()
    runs = _joined(matrix)
    field = np.random.default_rng(5).standard_normal((samples, 11))
    lanes = samples * parts
    tiles = np.full((-(-lanes // 8), (1 + rows) * 8), np.nan)
    products_to_tiles(runs, parts, rows, field, 1, tiles)
    seen = tiles.reshape(len(tiles), 1 + rows, 8).transpose(0, 2, 1).reshape(-1, 1 + rows)
    wanted = (field @ matrix.toarray().T).reshape(lanes, rows)
    assert np.isnan(seen[:, 0]).all()  # what lies before is not touched
    assert np.allclose(seen[:lanes, 1:], wanted, rtol=0.0, atol=1e-13)
    assert np.array_equal(seen[lanes:, 1:], np.repeat(seen[lanes - 1 : lanes, 1:], len(seen) - lanes, axis=0))
    back = np.zeros((samples, 11))
    tiles_to_field(runs, parts, rows, tiles, 1, -1.0, back)
    assert np.allclose(back, -wanted.reshape(samples, -1) @ matrix.toarray(), rtol=0.0, atol=1e-12)


def test_a_nan_sample_stays_alone():
    matrix = _slices()
    field = np.random.default_rng(6).standard_normal((3, matrix.shape[1]))
    clean, spoilt = np.zeros((3, matrix.shape[0])), np.zeros((3, matrix.shape[0]))
    products(_joined(matrix), field, clean)
    field[1] = np.nan
    products(_joined(matrix), field, spoilt)
    assert np.array_equal(clean[[0, 2]], spoilt[[0, 2]])
    assert np.isnan(spoilt[1]).all()
