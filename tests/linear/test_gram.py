"""AAᵀ by every solver, against dense numpy: any number of right-hand sides and threads, zero rows, bits of one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse import random_array as random_sparse

from snapfm.compile.sparsity.pattern import TooLarge
from snapfm.linear import Automatic, Fronts, Lanes, Solver
from snapfm.linear.gram import Gram

SOLVERS: list[Solver | None] = [None, Automatic(), Fronts(), Lanes()]
every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=lambda one: type(one).__name__)


def sparse(rows: int = 9, columns: int = 30, seed: int = 0) -> csr_array:
    matrix = csr_array(random_sparse((rows, columns), density=0.3, rng=np.random.default_rng(seed)))
    return csr_array(matrix + csr_array((np.ones(rows), (np.arange(rows), np.arange(rows))), shape=matrix.shape))


@every_solver
def test_solves_and_log_determinant_are_those_of_dense_matrices(solver: Solver | None) -> None:
    like, right = sparse(), np.random.default_rng(1).standard_normal((11, 9))
    gram = Gram(like, solver)
    for factor in (1.0, -3.0):  # the pattern is analyzed once, for any values
        matrix = factor * like
        dense = (matrix @ matrix.T).toarray()
        found = gram.factor(matrix)
        np.testing.assert_allclose(found.solve(right), np.linalg.solve(dense, right.T).T, rtol=1e-11)
        np.testing.assert_allclose(found.log_determinant, np.linalg.slogdet(dense)[1], rtol=1e-12)


@every_solver
def test_a_right_side_has_the_same_bits_beside_others_and_in_threads(solver: Solver | None) -> None:
    factor, right = Gram(sparse(), solver).factor(sparse()), np.random.default_rng(2).standard_normal((19, 9))
    whole = factor.solve(right)
    for i in range(len(right)):
        assert np.array_equal(factor.solve(right[i : i + 1])[0], whole[i])
    with ThreadPoolExecutor(4) as pool:
        assert all(np.array_equal(found, whole) for found in pool.map(factor.solve, [right] * 16))


@every_solver
def test_a_zero_row_is_one_of_the_identity(solver: Solver | None) -> None:
    matrix = sparse()
    like = matrix.copy()
    matrix.data[matrix.indptr[3] : matrix.indptr[4]] = 0.0
    others = np.arange(9) != 3
    dense = (matrix @ matrix.T).toarray()[np.ix_(others, others)]
    right = np.ones((2, 9))
    found = Gram(like, solver).factor(matrix)
    np.testing.assert_allclose(found.solve(right)[:, 3], 1.0)
    np.testing.assert_allclose(found.solve(right)[:, others], np.linalg.solve(dense, right[:, others].T).T, rtol=1e-11)
    np.testing.assert_allclose(found.log_determinant, np.linalg.slogdet(dense)[1], rtol=1e-12)


def test_disjoint_rows_take_a_division_and_rows_that_repeat_each_other_a_soft_diagonal() -> None:
    totals = csr_array(np.kron(np.eye(3), np.ones((1, 4))))
    gram = Gram(totals, Lanes())
    assert gram.diagonal
    assert np.array_equal(gram.factor(totals).solve(np.full((1, 3), 8.0)), np.full((1, 3), 2.0))
    twice = csr_array(np.ones((2, 5)))
    step = Gram(twice).factor(twice, soft=1e-13).solve(np.full((1, 2), 5.0))
    np.testing.assert_allclose(step.sum(), 1.0, rtol=1e-6)


def test_a_factor_that_is_too_large_is_refused_before_it_is_made() -> None:
    with pytest.raises(TooLarge, match="factors of"):
        Gram(sparse(), None, largest=10.0)
