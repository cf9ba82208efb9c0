"""Terms of a Hessian against a plain listing, sorted by entry."""

import numpy as np
import pytest

from snapfm.kernels.merging import MIXED, count_pairs, list_pairs, sort_terms

WIDTH = 5
LEFT = [[0, 3], [2], []]
RIGHT = [[1, 3, 4], [2, 4], [0]]


def _sets(rows):
    return np.cumsum([0, *map(len, rows)]), np.array([i for row in rows for i in row], np.int64)


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
    read = (*_sets(LEFT), *_sets(right), kind)
    counts = np.zeros(WIDTH, np.int64)
    count_pairs(*read, counts)
    ptr = np.concatenate([[0], np.cumsum(counts)])
    columns, terms = np.empty(ptr[-1], np.int64), np.empty((4, ptr[-1]), np.int32)
    list_pairs(*read, *_sets(out), 7, 20, np.zeros(WIDTH, np.int64), ptr[:-1].copy(), columns, terms)
    indptr, several = np.zeros(WIDTH + 1, np.int64), np.empty(ptr[-1], np.int32)
    entries = sort_terms(ptr, columns, terms, indptr, several)
    expected = _plain(LEFT, right, kind, out, 7, 20)
    row = np.repeat(np.repeat(np.arange(WIDTH), np.diff(indptr)), several[:entries])
    column = np.repeat(columns[:entries], several[:entries])
    assert list(zip(row.tolist(), column.tolist(), *terms.tolist())) == expected
    assert entries == len({term[:2] for term in expected})
