"""Merged sets against plain Python sets; terms of a Hessian against a plain listing, sorted by entry."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from snapfm.kernels.merging import MIXED, count_pairs, followed, list_pairs, merged, sort_terms

WIDTH = 5
LEFT = [[0, 3], [2], []]
RIGHT = [[1, 3, 4], [2, 4], [0]]


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


def _plain(left, right, kind, out, operation, slot):
    """List (row, column, operation, kind, left slot, right slot), those on the diagonal of a mixed kind once more at the end."""
    found, twice = [], []
    for e, (ours, theirs) in enumerate(zip(left, right)):
        start = slot + sum(map(len, out[:e]))
        for i in ours:
            for j in theirs:
                term = max(i, j), min(i, j), operation + e, kind, start + out[e].index(i), start + out[e].index(j)
                if kind == MIXED or i >= j:
                    found.append(term)
                if kind == MIXED and i == j:
                    twice.append(term)
    return sorted(found + twice, key=lambda term: term[:2])  # stable: in the order of listing for each entry


@pytest.mark.parametrize("kind", [0, MIXED, 2])
def test_terms_are_those_of_a_plain_listing(kind):
    right = RIGHT if kind == MIXED else LEFT
    out = [sorted({*ours, *theirs}) for ours, theirs in zip(LEFT, right)]
    read = (*compressed(LEFT), *compressed(right), kind)
    counts = np.zeros(WIDTH, np.int64)
    count_pairs(*read, counts)
    ptr = np.concatenate([[0], np.cumsum(counts)])
    columns, terms = np.empty(ptr[-1], np.int64), np.empty((4, ptr[-1]), np.int32)
    list_pairs(*read, *compressed(out), 7, 20, np.zeros(WIDTH, np.int64), ptr[:-1].copy(), columns, terms)
    indptr, several = np.zeros(WIDTH + 1, np.int64), np.empty(ptr[-1], np.int32)
    entries = sort_terms(ptr, columns, terms, indptr, several)
    expected = _plain(LEFT, right, kind, out, 7, 20)
    row = np.repeat(np.repeat(np.arange(WIDTH), np.diff(indptr)), several[:entries])
    column = np.repeat(columns[:entries], several[:entries])
    assert list(zip(row.tolist(), column.tolist(), *terms.tolist())) == expected
    assert entries == len({term[:2] for term in expected})
