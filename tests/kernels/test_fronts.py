"""Dense panels: the factor of matrices with fronts narrower and wider than a block, against dense arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.test_supernodes import PATTERNS, lower

from snapfm.kernels.factor.front_solves import solve, solve_eight
from snapfm.kernels.factor.fronts import factorize as factorize_lane
from snapfm.kernels.factor.fronts import scratch
from snapfm.kernels.factor.ldl import FACTORED, NONFINITE, SINGULAR
from snapfm.kernels.factor.ordering import best
from snapfm.kernels.factor.supernodes import WIDEST, supernodes
from snapfm.kernels.numba.packs import WIDTH
from snapfm.linear.base import aligned

EPS = np.finfo(np.float64).eps
TINY = 64 * EPS


class Made:
    """A dense symmetric matrix, factorized."""

    def __init__(self, matrix, signed=False, stop=0):
        indptr, indices = lower(matrix != 0)
        self.matrix, size = matrix, len(matrix)
        self.plan = supernodes(indptr, indices, best(indptr, indices).perm)
        self.factor, self.inverse = aligned(self.plan.packs * WIDTH), aligned(size)
        self.room = scratch(self.plan, aligned)
        rows = np.repeat(np.arange(size), np.diff(indptr))
        self.status = factorize_lane(
            self.plan, matrix[rows, indices][:, None].copy(), 0, signed, TINY, self.factor, self.inverse, self.room,
            np.array([stop]),
        )  # fmt: skip

    def solve(self, rhs):
        out = np.empty((len(rhs), 1))
        solve(self.plan, self.factor, self.inverse, rhs[:, None].copy(), 0, self.room, out)
        return out[:, 0]


def dominant(pattern, seed=0):
    rng = np.random.default_rng(seed)
    matrix = np.where(pattern, rng.standard_normal(pattern.shape), 0.0)
    matrix = np.tril(matrix, -1) + np.tril(matrix, -1).T
    return matrix + np.diag(1.0 + np.abs(matrix).sum(1))


def full(size):
    return np.ones((size, size), bool)


def bordered(size, border):
    """A band of cliques and some last rows that reach all of them: fronts with rows in many later panels."""
    pattern = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) <= 5
    pattern[-border:] = pattern[:, -border:] = True
    return pattern


SIZES = [1, 7, 8, 9, 16, 17, 33, WIDEST, WIDEST + 1, 2 * WIDEST + 21]
CASES = (
    PATTERNS
    | {f"full {k}": full(k) for k in SIZES}
    | {"bordered": bordered(240, 30), "wide border": bordered(420, 200)}
)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("negative", [False, True], ids=["definite", "either sign"])
def test_solves_to_rounding_with_the_inertia_of_the_eigenvalues(name, negative):
    matrix = dominant(CASES[name])
    if negative:  # still dominant, so that every order is stable
        flip = np.random.default_rng(3).random(len(matrix)) < 0.4
        matrix[flip, flip] *= -1.0
    made = Made(matrix)
    assert made.status == FACTORED
    assert made.room.tally[0] == (np.linalg.eigvalsh(matrix) < 0).sum()
    assert made.room.tally[1] == 0
    rhs = np.random.default_rng(1).standard_normal(len(matrix))
    x, exact = made.solve(rhs), np.linalg.solve(matrix, rhs)
    bound = 8 * len(x) * EPS * np.linalg.cond(matrix)
    assert np.abs(x - exact).max() <= bound * np.abs(exact).max()
    logs = -np.log(np.abs(made.inverse)).sum()
    assert logs == pytest.approx(np.linalg.slogdet(matrix)[1], rel=len(x) * EPS, abs=2 * bound)


@pytest.mark.parametrize("size", [20, WIDEST + 30])
def test_weak_pivots_within_and_across_panels_are_left_out(size):
    """Every third row repeats the one before: as many weak pivots, and the others solve a consistent system."""
    rng = np.random.default_rng(2)
    j = rng.standard_normal((size, 2 * size))
    j[2::3] = j[1::3][: len(j[2::3])]
    made = Made(j @ j.T)
    weak = len(j[2::3])
    assert made.status == SINGULAR
    assert made.room.tally[:2].tolist() == [0, weak]
    rhs = made.matrix @ np.ones(size)
    x = made.solve(rhs)
    assert (x == 0.0).sum() == weak
    kept = np.delete(np.arange(size), np.arange(2, size, 3))
    condition = np.linalg.cond(made.matrix[np.ix_(kept, kept)])
    assert np.abs(made.matrix @ x - rhs).max() <= 8 * size * EPS * condition * np.abs(rhs).max()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("at", [3, WIDEST + 20])
def test_what_is_not_finite_is_reported(value, at):
    matrix = dominant(full(WIDEST + 30))
    matrix[at, at] = value
    assert Made(matrix).status == NONFINITE


def test_ends_early_once_told_to():
    matrix = dominant(full(20))
    stopped = Made(matrix, stop=1)
    assert stopped.status == NONFINITE
    assert stopped.room.tally[:2].tolist() == [0, 0]  # no pivot was seen
    assert stopped.room.tally[2] == np.inf


@pytest.mark.parametrize("name", ["one", "grid", "full 17", "full 277", "wide border"])
def test_right_hand_sides_do_not_know_each_other(name):
    """Eight at a time: the bits are the same alone, at another place, and beside what is not finite."""
    made = Made(dominant(CASES[name]))
    rhs = np.random.default_rng(4).standard_normal((11, len(made.matrix)))
    x, out = aligned(len(made.matrix) * WIDTH), np.empty_like(rhs)
    for start in (0, 8):
        solve_eight(made.plan, made.factor, made.inverse, rhs, start, x, out)
    exact = np.linalg.solve(made.matrix, rhs.T).T
    bound = 8 * rhs.shape[1] * EPS * np.linalg.cond(made.matrix)
    assert np.abs(out - exact).max() <= bound * np.abs(exact).max()
    alone = np.empty((1, rhs.shape[1]))
    for k in (0, 5, 10):
        solve_eight(made.plan, made.factor, made.inverse, rhs[[k]], 0, x, alone)
        assert np.array_equal(alone[0], out[k])
    rhs[3], again = np.nan, np.empty_like(rhs)
    solve_eight(made.plan, made.factor, made.inverse, rhs, 0, x, again)
    assert np.array_equal(again[[0, 1, 2, 4, 5, 6, 7]], out[[0, 1, 2, 4, 5, 6, 7]])
