"""Orders: valid permutations, the cheapest candidate wins, and known patterns get the fill the theory gives."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import bmat, csr_array, diags_array, eye_array, kron, tril
from scipy.sparse.csgraph import connected_components

from snapfm.kernels.factor.ordering import CANDIDATES, bandwidth, best, degree, postponed, symmetric
from snapfm.kernels.factor.symbolic import permuted, tree


def arrays(matrix):
    lower = csr_array(tril(matrix))
    lower.sort_indices()
    return lower.indptr.astype(np.int64), lower.indices.astype(np.int64)


def band(size, width):
    return diags_array([np.ones(size - abs(k)) for k in range(-width, width + 1)], offsets=range(-width, width + 1))


def grid(rows, columns):
    return kron(band(rows, 1), eye_array(columns)) + kron(eye_array(rows), band(columns, 1))


def arrow(size):
    dense = np.eye(size)
    dense[0] = dense[:, 0] = 1
    return csr_array(dense)


@pytest.mark.parametrize("name", CANDIDATES)
@pytest.mark.parametrize("matrix", [eye_array(1), eye_array(5), band(9, 1), grid(3, 5), arrow(20)], ids=str)
def test_candidates_are_permutations(name, matrix):
    perm = CANDIDATES[name](symmetric(*arrays(matrix)))
    assert sorted(perm.tolist()) == list(range(matrix.shape[0]))


def test_bands_and_arrows_fill_nothing():
    assert best(*arrays(band(40, 3))).fill == 40 + 39 + 38 + 37
    assert best(*arrays(arrow(40))).fill == 40 + 39  # the natural order would fill everything
    assert tree(*arrays(arrow(40))).fill == 40 * 41 // 2


def test_the_cheapest_candidate_wins():
    matrix = grid(12, 17)
    indptr, indices = arrays(matrix)
    found = best(indptr, indices)
    tried = [rule for name, rule in CANDIDATES.items() if name != "dissection"]  # which is for large ones
    costs = [tree(*permuted(indptr, indices, rule(symmetric(indptr, indices)))[:2]).flops for rule in tried]
    assert found.flops == min(costs) < tree(indptr, indices).flops
    again = tree(*permuted(indptr, indices, found.perm)[:2])
    assert (again.fill, again.flops) == (found.fill, found.flops)


def test_dense_rows_go_last_where_that_helps():
    """A long band and two rows that touch everything: bandwidth alone sees no band."""
    size = 300
    matrix = csr_array(band(size, 2)).tolil()
    for row in (10, 150):
        matrix[row, :] = 1
        matrix[:, row] = 1
    indptr, indices = arrays(matrix.tocsr())
    found = best(indptr, indices)
    assert found.fill <= 5 * size
    assert tree(*permuted(indptr, indices, bandwidth(symmetric(indptr, indices)))[:2]).fill > 6 * size


def test_signs_put_rows_of_j_behind_all_they_touch():
    rng = np.random.default_rng(0)
    j = csr_array((rng.random((6, 15)) < 0.3) * 1.0)
    matrix = np.block([[np.eye(15), j.toarray().T], [j.toarray(), np.eye(6)]])
    signs = np.repeat([1, -1], [15, 6])
    indptr, indices = arrays(csr_array(matrix))
    for perm in (best(indptr, indices, signs).perm, postponed(symmetric(indptr, indices), np.arange(21)[::-1], signs)):
        assert sorted(perm.tolist()) == list(range(21))
        place = np.argsort(perm)
        rows, columns = j.nonzero()
        assert (place[15 + rows] > place[columns]).all()


def cube(side):
    return kron(grid(side, side), eye_array(side)) + kron(eye_array(side * side), band(side, 1))


def test_dissection_wins_in_three_dimensions():
    indptr, indices = arrays(cube(14))
    found = best(indptr, indices)
    assert found.name == "dissection"
    assert found.flops < tree(*permuted(indptr, indices, degree(symmetric(indptr, indices)))[:2]).flops / 1.3


def test_dense_rows_of_a_large_matrix_are_bordered():
    """One row that touches everything beside a cube: it adds its own entries to the factor and nothing else."""
    inner = csr_array(cube(28))
    size = inner.shape[0]
    border = csr_array(np.ones((1, size)))
    whole = csr_array(bmat([[csr_array([[1.0]]), border], [border.T, inner]]))
    alone, bordered = best(*arrays(inner)), best(*arrays(whole))
    assert bordered.name.endswith("dense rows last")
    assert bordered.perm[-1] == 0
    assert bordered.fill == alone.fill + size + 1


@pytest.mark.parametrize(
    "matrix",
    [
        csr_array(np.ones((70, 70))), csr_array(eye_array(200)), kron(eye_array(3), grid(9, 11)), band(300, 1), grid(2, 400),
    ],
    ids=["full", "apart", "three grids", "line", "strip"],
)  # fmt: skip
def test_dissection_orders_every_graph(matrix):
    perm = CANDIDATES["dissection"](symmetric(*arrays(matrix)))
    assert sorted(perm.tolist()) == list(range(matrix.shape[0]))


def test_many_separate_parts_cost_no_more_than_one():
    """A search per part over all that is left would visit 10¹¹ unknowns here."""
    size = 400_000
    perm = best(np.arange(size + 1), np.arange(size)).perm
    assert len(perm) == size
    perm = best(*arrays(kron(eye_array(30_000), csr_array(np.ones((3, 3)))))).perm
    assert np.array_equal(np.sort(perm), np.arange(90_000))


def test_a_separator_comes_after_both_sides():
    """A strip of 9 × 60: the last unknowns cut it in two."""
    matrix = symmetric(*arrays(grid(60, 9)))
    perm = CANDIDATES["dissection"](matrix)
    cut = perm[-9:]
    assert len(np.unique(cut // 9)) <= 9
    rest = np.setdiff1d(perm, cut)
    assert connected_components(csr_array(matrix[rest][:, rest]))[0] >= 2


def test_degree_beats_bandwidth_on_a_grid():
    indptr, indices = arrays(grid(30, 30))
    cost = [
        tree(*permuted(indptr, indices, rule(symmetric(indptr, indices)))[:2]).flops for rule in (degree, bandwidth)
    ]
    assert cost[0] < cost[1] / 2
