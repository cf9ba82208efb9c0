"""Pattern: built from pairs in any order, rows taken out, values joined."""

from __future__ import annotations

import numpy as np
import pytest

from snapfm.errors import ShapeError
from snapfm.structure import Pattern
from snapfm.structure.pattern import Sets

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
