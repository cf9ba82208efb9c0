"""Colorings: valid by the slow checker on random patterns, and as few colors as known optima ask for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, diags_array
from tests.kernels.conflicts import conflicts

from snapfm.kernels import coloring
from snapfm.kernels.coloring import color_columns

Index = npt.NDArray[np.int64]


def colored(matrix: npt.ArrayLike | csr_array) -> tuple[Index, int, csr_array]:
    pattern = csr_array(matrix)
    pattern.sort_indices()
    colors, count = color_columns(pattern.indptr.astype(np.int64), pattern.indices.astype(np.int64), pattern.shape[1])
    return colors, count, pattern


def clashes(pattern: csr_array, colors: Index) -> int:
    return conflicts(pattern.indptr.astype(np.int64), pattern.indices.astype(np.int64), colors)


def tridiagonal(n: int) -> csr_array:
    return csr_array(diags_array([np.ones(n - 1), np.ones(n), np.ones(n - 1)], offsets=[-1, 0, 1]))


def five_point(high: int, wide: int) -> csr_array:
    """The Laplacian's stencil on a plane, without wrap."""
    matrix = np.zeros((high * wide, high * wide), bool)
    for i in range(high):
        for j in range(wide):
            for di, dj in ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)):
                if 0 <= i + di < high and 0 <= j + dj < wide:
                    matrix[i * wide + j, (i + di) * wide + j + dj] = True
    return csr_array(matrix)


@st.composite
def patterns(draw: st.DrawFn) -> npt.NDArray[np.bool_]:
    rows, columns = draw(st.integers(0, 12)), draw(st.integers(0, 15))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.random((rows, columns)) < draw(st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0]))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(patterns())
def test_random_patterns_get_valid_colorings(matrix: npt.NDArray[np.bool_]) -> None:
    colors, count, pattern = colored(matrix)
    assert clashes(pattern, colors) == 0
    # What no kernel says: two columns of one color share no row, empty columns have no color, colors are 0 .. count - 1.
    for color in range(count):
        assert (matrix[:, colors == color].sum(1) <= 1).all()
    assert ((colors < 0) == ~matrix.any(0)).all()
    assert set(colors[colors >= 0]) == set(range(count))
    assert count >= matrix.sum(1).max(initial=0)


@pytest.mark.parametrize("n", [3, 4, 50])
def test_tridiagonal_needs_three(n: int) -> None:
    colors, count, pattern = colored(tridiagonal(n))
    assert count == 3
    assert clashes(pattern, colors) == 0


@pytest.mark.parametrize("shape", [(3, 5), (6, 7), (10, 10)])
def test_five_point_stencil(shape: tuple[int, int]) -> None:
    """Five colors are possible (i + 2j mod 5) and needed; a greedy order may spend a few more, never as many as a row
    has second neighbours."""
    colors, count, pattern = colored(five_point(*shape))
    assert 5 <= count <= 8
    assert clashes(pattern, colors) == 0


def test_disjoint_columns_share_one_color() -> None:
    colors, count, _ = colored(np.eye(6, dtype=bool))
    assert count == 1
    assert colors.tolist() == [0] * 6


def test_full_row_needs_every_color() -> None:
    colors, count, _ = colored(np.concatenate([np.ones((1, 7), bool), np.eye(7, dtype=bool)]))
    assert count == 7
    assert sorted(colors) == list(range(7))


def test_full_row_with_empty_columns() -> None:
    matrix = np.array([[1, 0, 1, 0, 1]], bool)
    colors, count, _ = colored(matrix)
    assert count == 3
    assert colors.tolist() == [0, -1, 1, -1, 2]


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0), (3, 4)])
def test_no_entries_need_no_color(shape: tuple[int, int]) -> None:
    colors, count, _ = colored(np.zeros(shape, bool))
    assert count == 0
    assert colors.tolist() == [-1] * shape[1]


def greedy(matrix: npt.NDArray[np.bool_]) -> int:
    """Color the columns as they come, the first color that fits: the slow way to the first of the orders tried."""
    groups: list[npt.NDArray[np.bool_]] = []
    for column in matrix.T[matrix.any(0)]:
        for i, group in enumerate(groups):
            if not (group & column).any():
                groups[i] = group | column
                break
        else:
            groups.append(column)
    return len(groups)


def test_other_orders_are_tried() -> None:
    rng = np.random.default_rng(0)
    saved = 0
    for _ in range(200):
        matrix = rng.random((8, 12)) < 0.25
        count = colored(matrix)[1]
        assert count <= greedy(matrix)
        saved += greedy(matrix) - count
    assert saved > 20


def test_checker_counts_clashes() -> None:
    pattern = csr_array(np.array([[1, 1, 0], [0, 1, 1]], bool))
    assert clashes(pattern, np.array([0, 1, 0])) == 0
    assert clashes(pattern, np.array([0, 0, 1])) == 1
    assert clashes(pattern, np.array([0, 0, 0])) == 2
    assert clashes(pattern, np.array([0, -1, 0])) == 2  # an entry without color is served by no pass


def test_rows_of_whole_planes_get_the_colors_that_a_scan_finds(monkeypatch):
    random = np.random.default_rng(0)
    matrix = csr_array(random.random((40, 30)) < 0.2)
    matrix.sort_indices()
    pattern = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), 30
    scanned = coloring.color_columns(*pattern)
    monkeypatch.setattr(coloring, "_SCANNED", 0)
    by_table = coloring.color_columns(*pattern)
    assert scanned[1] == by_table[1]
    assert np.array_equal(scanned[0], by_table[0])
