"""Merged sets: unions in rising order, and every entry's terms, against plain Python sets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from snapfm.kernels.merging import followed, merged


def compressed(lists):
    return np.cumsum([0, *map(len, lists)]), np.array([i for one in lists for i in one], np.int64)


def random_case(seed):
    rng = np.random.default_rng(seed)
    width = 9
    sets = [sorted(rng.choice(width, rng.integers(0, 5), replace=False).tolist()) for _ in range(12)]
    rows = [rng.choice(12, rng.integers(0, 6), replace=False).tolist() for _ in range(7)]  # in any order
    return sets, rows, width


@pytest.mark.parametrize("seed", range(5))
def test_merged_is_the_union_in_rising_order(seed):
    sets, rows, width = random_case(seed)
    pointers, indices = merged(*compressed(rows), *compressed(sets), width)
    assert [indices[a:b].tolist() for a, b in pairwise(pointers)] == [
        sorted(set().union(*(sets[cell] for cell in row))) for row in rows
    ]


@pytest.mark.parametrize("seed", range(5))
def test_followed_lists_the_terms_of_every_entry_in_the_order_of_the_cells(seed):
    sets, rows, width = random_case(seed)
    row_ptr, cells = compressed(rows)
    ptr, indices = compressed(sets)
    weights = np.arange(1.0, len(cells) + 1)
    kept = [
        sorted(set().union(*(sets[cell] for cell in row)) - {3}) for row in rows
    ]  # what is not asked for is left out
    counts, source, weight = followed(row_ptr, cells, weights, ptr, indices, *compressed(kept), width)
    expected = [
        [(ptr[c] + sets[c].index(i), weights[row_ptr[r] + k]) for k, c in enumerate(row) if i in sets[c]]
        for r, row in enumerate(rows)
        for i in kept[r]
    ]
    assert counts.tolist() == [len(terms) for terms in expected]
    assert list(zip(source.tolist(), weight.tolist())) == [term for terms in expected for term in terms]
