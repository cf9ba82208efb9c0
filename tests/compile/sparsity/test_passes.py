"""Passes: the side that costs less, wide rows apart, and every entry served exactly once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.conflicts import conflicts

from snapfm.compile import Pattern
from snapfm.compile.sparsity.passes import Passes, plan_passes


def pattern_of(matrix: npt.ArrayLike) -> Pattern:
    dense = np.asarray(matrix, bool)
    return Pattern.from_coordinates(*np.nonzero(dense), dense.shape)


def planned(matrix: npt.ArrayLike, forward: bool = True) -> tuple[Passes, ...]:
    pattern = pattern_of(matrix)
    return plan_passes(pattern, np.arange(pattern.rows), forward)


def read_out(matrix: npt.NDArray[np.float64], groups: tuple[Passes, ...]) -> npt.NDArray[np.float64]:
    """Do with a known matrix what the derivatives do with an unknown one: few products, then look the entries up."""
    pattern = pattern_of(matrix != 0)
    values = np.full(pattern.nnz, np.nan)
    for group in groups:
        part = matrix[group.rows]
        row, column = group.pattern.row_of(), group.pattern.indices
        if group.side == "columns":
            products = part @ (group.colors[:, None] == np.arange(group.count))
            values[group.entries] = products[row, group.colors[column]]
        else:
            products = (group.colors[:, None] == np.arange(group.count)).T @ part
            values[group.entries] = products[group.colors[row], column]
    return pattern.csr(values).toarray()


@st.composite
def matrices(draw: st.DrawFn) -> npt.NDArray[np.float64]:
    rows, columns = draw(st.integers(0, 9)), draw(st.integers(0, 11))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    matrix = rng.integers(1, 9, (rows, columns)) * (
        rng.random((rows, columns)) < draw(st.sampled_from([0.1, 0.3, 0.9]))
    )
    if rows and draw(st.booleans()):
        matrix[rng.integers(rows)] = 1  # one wide row
    return matrix.astype(float)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(matrices(), st.booleans())
def test_every_entry_is_read_back(matrix: npt.NDArray[np.float64], forward: bool) -> None:
    groups = planned(matrix != 0, forward)
    np.testing.assert_array_equal(read_out(matrix, groups), matrix)
    served = np.concatenate([np.zeros(0, np.int64), *(group.entries for group in groups)])
    assert sorted(served) == list(range(np.count_nonzero(matrix)))
    assert forward or all(group.side == "rows" for group in groups)
    for group in groups:
        if group.side == "columns":
            assert conflicts(group.pattern.indptr, group.pattern.indices, group.colors) == 0


def test_totals_are_served_by_rows() -> None:
    """Each row sums a slice of its own: one VJP with all rows at once."""
    (passes,) = planned(np.kron(np.eye(4), np.ones((1, 10))))
    assert (passes.side, passes.count) == ("rows", 1)


def test_columns_win_where_rows_share_unknowns() -> None:
    """Ten rows read the same unknown each beside one of their own: ten VJPs, but two JVPs."""
    matrix = np.concatenate([np.ones((10, 1)), np.eye(10)], 1)
    (passes,) = planned(matrix)
    assert (passes.side, passes.count) == ("columns", 2)
    (passes,) = planned(matrix, forward=False)
    assert (passes.side, passes.count) == ("rows", 10)


def test_the_other_side_is_tried_where_the_bound_is_missed() -> None:
    """Four rows, each pair sharing an unknown of its own: no unknown is in three rows, yet no two rows go together."""
    pairs = [(i, j) for i in range(4) for j in range(i)]
    matrix = np.zeros((4, len(pairs)))
    for column, pair in enumerate(pairs):
        matrix[list(pair), column] = 1
    (passes,) = planned(matrix)
    assert (passes.side, passes.count) == ("columns", 3)
    (passes,) = planned(matrix.T)
    assert (passes.side, passes.count) == ("rows", 3)


def test_arrow_is_split_in_two() -> None:
    """A full row on a diagonal: together as many passes as unknowns, apart one and one."""
    matrix = np.concatenate([np.eye(20), np.ones((1, 20))])
    matrix[:-1, 0] = 1  # and a full column, so that no side alone does it
    groups = planned(matrix)
    assert len(groups) == 2
    assert sum(group.count for group in groups) == 3
    narrow, wide = groups
    assert narrow.rows.tolist() == list(range(20))
    assert (narrow.side, narrow.count) == ("columns", 2)
    assert wide.rows.tolist() == [20]
    assert (wide.side, wide.count) == ("rows", 1)


def test_wide_rows_stay_where_splitting_saves_nothing() -> None:
    matrix = np.concatenate([np.eye(20), np.ones((1, 20))])
    (passes,) = planned(matrix)
    assert (passes.side, passes.count) == ("rows", 2)


def test_one_full_row() -> None:
    (passes,) = planned(np.ones((1, 9)))
    assert (passes.side, passes.count) == ("rows", 1)


def test_some_rows_only() -> None:
    pattern = pattern_of(np.tri(5))
    (passes,) = plan_passes(pattern, np.array([1, 3]))
    assert passes.pattern.counts.tolist() == [2, 4]
    assert passes.entries.tolist() == [1, 2, 6, 7, 8, 9]


def test_no_rows_need_no_pass() -> None:
    assert plan_passes(pattern_of(np.eye(3)), np.zeros(0, np.int64)) == ()


def test_rows_without_entries_need_no_product() -> None:
    (passes,) = planned(np.zeros((3, 4)))
    assert passes.count == 0
