"""Index sets: every move on all sets at once equals the same move on Python sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from snapfm.structure.pattern import NONE, Sets, cross, stacked, union

WIDTH = 6
Plain = list[set[int]]


def sets_of(plain: Plain, width: int = WIDTH) -> Sets:
    indptr = np.cumsum([0, *map(len, plain)])
    indices = [index for one in plain for index in sorted(one)]
    return Sets(indptr.astype(np.int64), np.array(indices, np.int64), width)


def plain_of(sets: Sets) -> Plain:
    return [set(sets.indices[a:b].tolist()) for a, b in zip(sets.indptr, sets.indptr[1:])]


def assert_sorted(sets: Sets) -> None:
    """Indices are strictly increasing within each set, and int64 throughout."""
    for a, b in zip(sets.indptr, sets.indptr[1:]):
        assert (np.diff(sets.indices[a:b]) > 0).all()
    assert sets.indices.dtype == sets.indptr.dtype == np.int64


one_set = st.sets(st.integers(0, WIDTH - 1))
many = settings(max_examples=200, deadline=None, derandomize=True, database=None)


@many
@given(st.lists(one_set, min_size=1, max_size=7), st.data())
def test_gather(plain: Plain, data: st.DataObject) -> None:
    source = data.draw(st.lists(st.integers(NONE, len(plain) - 1), max_size=9))
    result = sets_of(plain).gather(np.array(source, np.int64))
    assert plain_of(result) == [plain[i] if i != NONE else set() for i in source]
    assert_sorted(result)


@many
@given(st.lists(one_set, max_size=7), st.data())
def test_keep(plain: Plain, data: st.DataObject) -> None:
    present = np.array(data.draw(st.lists(st.booleans(), min_size=len(plain), max_size=len(plain))), bool)
    assert plain_of(sets_of(plain).keep(present)) == [one if keep else set() for one, keep in zip(plain, present)]


@many
@given(st.lists(one_set, min_size=1, max_size=7), st.integers(0, 5), st.data())
def test_group(plain: Plain, size: int, data: st.DataObject) -> None:
    pair = st.tuples(st.integers(0, max(size - 1, 0)), st.integers(0, len(plain) - 1))
    pairs = data.draw(st.lists(pair, max_size=12)) if size else []
    label, source = (np.array([p[k] for p in pairs], np.int64) for k in (0, 1))
    result = sets_of(plain).group(label, source, size)
    expected: Plain = [set() for _ in range(size)]
    for to, frm in pairs:
        expected[to] |= plain[frm]
    assert plain_of(result) == expected
    assert_sorted(result)


@many
@given(st.integers(0, 6).flatmap(lambda n: st.lists(st.lists(one_set, min_size=n, max_size=n), min_size=1, max_size=4)))
def test_union(parts: list[Plain]) -> None:
    result = union([sets_of(plain, WIDTH + i) for i, plain in enumerate(parts)])
    assert plain_of(result) == [set().union(*together) for together in zip(*parts)]
    assert result.width == WIDTH + len(parts) - 1
    assert_sorted(result)


@many
@given(st.lists(st.lists(one_set, max_size=4), min_size=1, max_size=4))
def test_stacked(parts: list[Plain]) -> None:
    result = stacked([sets_of(plain) for plain in parts])
    assert plain_of(result) == [one for plain in parts for one in plain]


@many
@given(st.integers(0, 5).flatmap(lambda n: st.tuples(*[st.lists(one_set, min_size=n, max_size=n)] * 2)))
def test_cross(both: tuple[Plain, Plain]) -> None:
    left, right = both
    element, one, other = cross(sets_of(left), sets_of(right))
    found = sorted(zip(element.tolist(), one.tolist(), other.tolist()))
    assert found == sorted((e, i, j) for e in range(len(left)) for i in left[e] for j in right[e])


def test_makers() -> None:
    assert plain_of(Sets.identity(3)) == [{0}, {1}, {2}]
    assert Sets.identity(3).width == 3
    assert plain_of(Sets.empty(2)) == [set(), set()]
    assert Sets.empty(2, 5).width == 5


def test_counts_and_rows() -> None:
    sets = sets_of([{1, 4}, set(), {0}])
    assert (sets.size, sets.nnz) == (3, 3)
    assert sets.counts.tolist() == [2, 0, 1]
    assert sets.rows().tolist() == [0, 0, 2]
