"""Symbolic elimination against the slow obvious way: eliminate on a dense Boolean matrix and look."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from snapfm.kernels.factor.symbolic import columns, permuted, postorder, tree


def lower(dense):
    matrix = csr_array(np.tril(dense) + np.eye(len(dense)))
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)


def eliminated(dense):
    """Pattern of the factor, by elimination."""
    full = (dense + dense.T + np.eye(len(dense))) > 0
    for j in range(len(full)):
        below = np.flatnonzero(full[j + 1 :, j]) + j + 1
        full[np.ix_(below, below)] = True
    return np.tril(full)


def random_pattern(seed, size=17, density=0.12):
    return np.tril(np.random.default_rng(seed).random((size, size)) < density, -1)


@pytest.mark.parametrize("seed", range(8))
def test_counts_rows_and_parents_are_those_of_elimination(seed):
    dense = random_pattern(seed)
    full = eliminated(dense)
    found = tree(*lower(dense))
    strict = np.tril(full, -1)
    assert found.counts.tolist() == strict.sum(0).tolist()
    assert found.fill == full.sum()
    assert found.flops == sum(c * (c + 1) // 2 for c in strict.sum(0))
    first = [int(np.flatnonzero(strict[:, j])[0]) if strict[:, j].any() else -1 for j in range(len(dense))]
    assert found.parent.tolist() == first
    pointers, rows = columns(*lower(dense), found)
    for j in range(len(dense)):
        assert rows[pointers[j] : pointers[j + 1]].tolist() == np.flatnonzero(strict[:, j]).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_postorder_keeps_the_fill_and_puts_children_first(seed):
    dense = random_pattern(seed, density=0.08)
    found = tree(*lower(dense))
    post = postorder(found)
    assert sorted(post.tolist()) == list(range(len(dense)))
    place = np.argsort(post)
    inner = found.parent >= 0
    assert (place[inner] < place[found.parent[inner]]).all()
    again = tree(*permuted(*lower(dense), post)[:2])
    assert (again.fill, again.flops) == (found.fill, found.flops)
    # neighbours in a postorder: each column's parent follows it at once, or the next column is a leaf
    leaf = np.ones(len(post), bool)
    leaf[again.parent[again.parent >= 0]] = False
    assert all(again.parent[j] == j + 1 or leaf[j + 1] for j in range(len(post) - 1))


def test_counting_does_not_enumerate_the_factor():
    """An arrow that points the wrong way fills everything: 2·10¹⁰ entries, which nobody could visit one by one."""
    size = 200_000
    rows = np.concatenate([np.arange(size), np.arange(1, size)])
    columns = np.concatenate([np.arange(size), np.zeros(size - 1, np.int64)])
    matrix = csr_array((np.ones(len(rows)), (rows, columns)), shape=(size, size))
    matrix.sort_indices()
    found = tree(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64))
    assert found.fill == size * (size + 1) // 2
    assert (found.parent[:-1] == np.arange(1, size)).all()


def test_permuted_moves_every_entry_into_the_lower_triangle():
    dense = random_pattern(3)
    indptr, indices = lower(dense)
    perm = np.random.default_rng(0).permutation(len(dense))
    values = np.arange(1.0, len(indices) + 1)
    moved_ptr, moved, source = permuted(indptr, indices, perm)
    full = csr_array((values, indices, indptr)).toarray()
    full = full + np.tril(full, -1).T
    got = csr_array((values[source], moved, moved_ptr)).toarray()
    assert np.array_equal(got, np.tril(full[np.ix_(perm, perm)]))
    assert sorted(source.tolist()) == list(range(len(indices)))
