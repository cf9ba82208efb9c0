"""Presolve: pinned unknowns, redundant rows with the weights that rebuild them, and rows that must stay."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from snapfm.compile import Pattern, compile_laws
from snapfm.compile.presolve import Presolve, dependent_rows, presolve
from snapfm.laws import Equality, Inequality

Matrix = npt.NDArray[np.float64]


def search(matrix: npt.ArrayLike, constant: npt.ArrayLike | None = None) -> Presolve:
    """Run presolve on a dense matrix; its zeros are no entries."""
    dense = np.asarray(matrix, float)
    pattern = Pattern.from_coordinates(*np.nonzero(dense), dense.shape)
    marks = np.ones(len(dense), bool) if constant is None else np.asarray(constant, bool)
    return presolve(pattern, dense[pattern.row_of(), pattern.indices], marks)


def assert_rebuilt(matrix: npt.ArrayLike, found: Presolve) -> None:
    """Every dropped row is the weighted sum of rows that stay."""
    dense = np.asarray(matrix, float)
    for one in found.redundant:
        assert not set(one.rows) & set(found.dropped)
        assert one.row not in one.rows
        scale = max(1.0, np.abs(dense[one.row]).max())
        np.testing.assert_allclose(one.weights @ dense[one.rows], dense[one.row], atol=1e-9 * scale)
        if len(one.weights):
            assert np.abs(one.weights).min() > 1e-10  # no row is named that has no share


def test_single_unknown_rows_pin() -> None:
    found = search([[0, 2, 0, 0], [1, 1, 1, 0], [0, 0, 0, -3]])
    assert found.fixed.tolist() == [1, 3]
    assert found.pins.tolist() == [0, 2]
    assert found.kept.tolist() == [1]
    assert found.redundant == ()
    assert found.searched


def test_second_pin_of_an_unknown_is_redundant() -> None:
    found = search([[0, 2, 0], [0, 5, 0], [1, 1, 1]])
    assert found.pins.tolist() == [0]
    (one,) = found.redundant
    assert (one.row, one.rows.tolist(), one.weights.tolist()) == (1, [0], [2.5])
    assert found.kept.tolist() == [2]


def test_entries_that_are_zero_do_not_count() -> None:
    """A pattern may name too many entries: what pins is what is not zero."""
    pattern = Pattern.from_coordinates([0, 0, 1, 1], [0, 1, 1, 2], (2, 3))
    found = presolve(pattern, np.array([0.0, 4.0, 1.0, 1.0]), np.ones(2, bool))
    assert found.fixed.tolist() == [1]
    assert found.pins.tolist() == [0]


def test_duplicate_and_multiple() -> None:
    matrix = [[1, 2, 3, 0], [0, 1, 1, 1], [1, 2, 3, 0], [-2, -4, -6, 0]]
    found = search(matrix)
    assert len(found.redundant) == 2
    assert len(found.kept) == 2
    assert 1 in found.kept
    assert_rebuilt(matrix, found)


def test_sum_of_others() -> None:
    matrix = np.array([[1, 2, 0, 0, 1], [0, 1, 3, 0, 0], [0, 0, 1, 4, 1], [0, 0, 0, 0, 0]], float)
    matrix[3] = matrix[0] - 2 * matrix[1] + matrix[2]
    found = search(matrix)
    (one,) = found.redundant
    assert_rebuilt(matrix, found)
    assert len(one.rows) == 3


def test_zero_rows() -> None:
    found = search([[0, 0], [1, 2], [0, 0]])
    assert [(one.row, len(one.rows)) for one in found.redundant] == [(0, 0), (2, 0)]
    assert found.kept.tolist() == [1]


def test_only_zero_rows() -> None:
    found = search([[0, 0, 0]])
    assert found.dropped.tolist() == [0]
    assert found.kept.tolist() == []


def test_cascade_of_dependence() -> None:
    """Row 2 needs rows 0 and 1, row 3 needs row 2, row 4 needs row 3 and a pin: each is expressed in rows that stay."""
    a, b, pin = np.array([1, 1, 0, 0, 2.0]), np.array([0, 1, 1, 1, 0.0]), np.array([0, 0, 0, 0, 1.0])
    c = a + b
    d = c - 3 * a
    matrix = np.stack([a, b, c, d, d + 5 * pin, pin])
    found = search(matrix)
    assert found.pins.tolist() == [5]
    assert len(found.redundant) == 3
    assert len(found.kept) == 2
    assert_rebuilt(matrix, found)


def test_pinned_unknowns_reduce_other_rows() -> None:
    """Apart from what is pinned, rows 2 and 3 say the same; row 4 says nothing new at all."""
    matrix = [[1, 0, 0, 0], [0, 2, 0, 0], [3, 0, 1, 1], [0, 8, 1, 1], [5, 6, 0, 0]]
    found = search(matrix)
    assert found.pins.tolist() == [0, 1]
    assert len(found.redundant) == 2
    assert 4 in found.dropped
    assert_rebuilt(matrix, found)


@pytest.mark.parametrize("gap", [1e-1, 1e-3, 1e-5, 1e-7])
def test_rows_that_differ_a_little_stay(gap: float) -> None:
    matrix = np.array([[1, 2, 3, 4], [1, 2, 3, 4], [2, 4, 6, 8], [0, 1, 0, 1]], float)
    matrix[1, 2] += gap
    found = search(matrix)
    assert len(found.redundant) == 1  # the exact multiple, and no other
    assert found.dropped[0] in (0, 2)
    assert_rebuilt(matrix, found)


def test_rows_that_differ_by_rounding_go() -> None:
    matrix = np.array([[1, 2, 3, 4], [1, 2, 3, 4], [0, 1, 0, 1]], float) / 3
    matrix[1] *= 1 + 2 * np.finfo(float).eps
    assert len(search(matrix).redundant) == 1


def test_rows_of_very_different_size() -> None:
    matrix = np.array([[1, 2, 0], [1e-9, 2e-9, 0], [1e9, 0, 1e9]])
    found = search(matrix)
    assert len(found.redundant) == 1
    assert 2 in found.kept
    (one,) = found.redundant
    np.testing.assert_allclose(one.weights @ matrix[one.rows], matrix[one.row], rtol=1e-9, atol=1e-18)


def test_rows_that_vary_are_left_alone() -> None:
    found = search([[1, 1, 0], [1, 1, 0], [0, 0, 2], [0, 0, 0]], [True, False, False, False])
    assert found.fixed.tolist() == []
    assert found.redundant == ()
    assert found.kept.tolist() == [0, 1, 2, 3]


def test_a_tiny_pivot_does_not_hide_a_dependent_row() -> None:
    """In this order of elimination the vanishing pivot stands after one of 2e-7, which magnifies its rounding."""
    matrix = [
        [-3, 0, 1, -3, 2],
        [-3, -3, -3, -2, -1],
        [0, -2, -3, 3, 3],
        [-2, 3, 2, 0, 2],
        [-2, -2, 1, -3, 0],
        [-2, 2, -1, 2, -1],
    ]
    found = search(matrix)
    assert len(found.redundant) == 1
    assert_rebuilt(matrix, found)


@st.composite
def integer_matrices(draw: st.DrawFn) -> Matrix:
    """Small integers, many zeros, and sums of rows mixed in."""
    rows, columns = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    matrix = rng.integers(-3, 4, (rows, columns)) * (
        rng.random((rows, columns)) < draw(st.sampled_from([0.3, 0.6, 1.0]))
    )
    sums = rng.integers(-2, 3, (draw(st.integers(0, 3)), rows)) @ matrix
    return rng.permutation(np.concatenate([matrix, sums])).astype(float)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(integer_matrices())
def test_rank_of_random_matrices(matrix: Matrix) -> None:
    found = search(matrix)
    assert len(found.pins) + len(found.kept) == np.linalg.matrix_rank(matrix)
    together = [*found.pins, *found.kept, *found.dropped]
    assert sorted(together) == list(range(len(matrix)))
    assert_rebuilt(matrix, found)


def test_contradictory_pins_are_one_pin_and_one_redundant_row() -> None:
    """Values are not looked at here: that the rows contradict each other is found by the weights, at every call."""
    laws = [Equality("start", lambda u, p: u[:2]), Equality("again", lambda u, p: 2 * u[:2] - 1.0)]
    found = compile_laws(laws, (4,)).presolve
    assert (found.fixed.tolist(), found.pins.tolist()) == ([0, 1], [0, 1])
    assert [(one.row, one.rows.tolist(), one.weights.tolist()) for one in found.redundant] == [
        (2, [0], [2.0]),
        (3, [1], [2.0]),
    ]
    assert found.kept.tolist() == []


def test_one_row_of_one_unknown_and_none_at_all() -> None:
    assert search([[3.0]]).fixed.tolist() == [0]
    nothing = search(np.zeros((0, 3)))
    assert (nothing.kept.tolist(), nothing.redundant, nothing.searched) == ([], (), True)
    assert search(np.zeros((2, 0))).dropped.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("matrix", "dependent"),
    [
        ([[1.0, 2.0], [2.0, 4.0], [0.0, 1.0]], 1),
        ([[1.0, 0.0], [0.0, 1.0]], 0),
        ([[0.0, 0.0]], 1),
        ([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 2.0, 1.0], [3.0, 0.0, 1.0]], 1),
    ],
)
def test_dependent_rows_of_a_constant_matrix(matrix: list[list[float]], dependent: int) -> None:
    found = dependent_rows(csr_array(np.array(matrix)))
    rest = np.delete(np.array(matrix), found, axis=0)
    assert len(found) == dependent
    assert np.linalg.matrix_rank(rest) == len(rest) == np.linalg.matrix_rank(np.array(matrix))


def test_laws_without_a_scalar_form_are_left_alone() -> None:
    """Nothing is known of their slopes: they pin nothing and repeat nothing."""
    laws = [Equality("order", lambda u, p: u[:1].sort().values), Equality("again", lambda u, p: u[:1].sort().values)]
    found = compile_laws(laws, (3,)).presolve
    assert (found.fixed.tolist(), found.redundant, found.kept.tolist()) == ([], (), [0, 1])


def test_inequalities_neither_pin_nor_repeat() -> None:
    laws = [
        Equality("initial", lambda u, p: u[0] - p["u0"]),
        Inequality("ceiling", lambda u, p: u[0] - 1.0),
        Inequality("total", lambda u, p: u[0].sum()),
    ]
    found = compile_laws(laws, (2, 4), {"u0": torch.zeros(1, 4, dtype=torch.float64)}).presolve
    assert found.pins.tolist() == [0, 1, 2, 3]
    assert found.redundant == ()
    assert found.kept.tolist() == [4, 5, 6, 7, 8]


def test_coefficients_from_params_neither_pin_nor_repeat() -> None:
    law = Equality("scaled", lambda u, p: p["a"] * u)
    found = compile_laws([law, law], (3,), {"a": torch.ones(1, 3, dtype=torch.float64)}).presolve
    assert found.fixed.tolist() == []
    assert len(found.kept) == 6
