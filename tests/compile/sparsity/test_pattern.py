"""Pattern: built from pairs in any order, rows taken out, values joined. Sets: every move equals that on Python sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from snapfm.compile.sparsity.pattern import NONE, Pattern, Sets, stacked, union
from snapfm.errors import ShapeError

PATTERN = Pattern.from_coordinates([2, 0, 0, 2, 2], [1, 3, 0, 1, 2], (3, 4))


def test_pairs_are_sorted_and_merged() -> None:
    assert (PATTERN.rows, PATTERN.columns, PATTERN.nnz) == (3, 4, 4)
    assert PATTERN.indptr.tolist() == [0, 2, 2, 4]
    assert PATTERN.indices.tolist() == [0, 3, 1, 2]
    assert PATTERN.counts.tolist() == [2, 0, 2]
    assert PATTERN.row_of().tolist() == [0, 0, 2, 2]


def test_rows_taken_out_in_any_order() -> None:
    part = PATTERN.take(np.array([2, 1, 0]))
    assert part.indptr.tolist() == [0, 2, 2, 4]
    assert part.indices.tolist() == [1, 2, 0, 3]
    assert PATTERN.entries(np.array([2, 1, 0])).tolist() == [2, 3, 0, 1]
    assert PATTERN.entries(np.zeros(0, np.int64)).tolist() == []


def test_values_stand_where_the_pattern_says() -> None:
    dense = PATTERN.csr(np.array([1.0, 2.0, 3.0, 4.0])).toarray()
    np.testing.assert_array_equal(dense, [[1, 0, 0, 2], [0, 0, 0, 0], [0, 3, 4, 0]])


def test_from_sets() -> None:
    pattern = Pattern.from_sets(Sets.identity(3), 5)
    assert (pattern.rows, pattern.columns, pattern.nnz) == (3, 5, 3)


def test_empty() -> None:
    pattern = Pattern.from_coordinates([], [], (0, 3))
    assert (pattern.rows, pattern.columns, pattern.nnz) == (0, 3, 0)


@pytest.mark.parametrize(
    ("row", "column", "came"),
    [
        ([1, 3], [0, 0], "2 from 1 to 3 and 2 from 0 to 0"),
        ([0], [4], "1 from 0 to 0 and 1 from 4 to 4"),
        ([-1], [0], "1 from -1 to -1 and 1 from 0 to 0"),
        ([0, 1], [0], "2 from 0 to 1 and 1 from 0 to 0"),
        ([0], [], "1 from 0 to 0 and none"),
    ],
)
def test_pairs_outside_are_refused(row: list[int], column: list[int], came: str) -> None:
    with pytest.raises(ShapeError) as caught:
        Pattern.from_coordinates(row, column, (3, 4))
    assert str(caught.value) == (
        f"pattern=(rows, columns) expects two equally long lists of indices within (3, 4); got {came}. Index the flattened "
        "residual and the flattened field, from 0."
    )


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
many = settings(max_examples=80, deadline=None, derandomize=True, database=None)


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


def test_sets_over_the_rows_of_a_matrix() -> None:
    sets = sets_of([{1, 4}, set(), {0, 4}])
    matrix = csr_array(np.array([[2.0, 0.0, -1.0], [0.0, 3.0, 0.0]]))
    assert plain_of(sets.over(matrix)) == [{0, 1, 4}, set()]
