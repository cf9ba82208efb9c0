"""Blocks: the determined part of a pattern, its strongly connected components and their order, on patterns known by hand."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from snapfm.compile.sparsity.pattern import Sets
from snapfm.reduce.blocks import find_steps


def _sets(rows, width):
    return Sets(
        np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64),
        np.array([unknown for row in rows for unknown in sorted(row)], np.int64),
        width,
    )


def _steps(rows, width, usable=None, free=None, limit=100):
    usable = np.ones(len(rows), bool) if usable is None else np.array(usable)
    free = np.ones(width, bool) if free is None else np.array(free)
    return find_steps(_sets(rows, width), usable, free, limit)


def _lists(steps):
    return [
        [(step.rows[a:b].tolist(), step.unknowns[a:b].tolist()) for a, b in zip(step.starts[:-1], step.starts[1:])]
        for step in steps
    ]


def test_a_triangular_chain_of_blocks_in_order():
    # Rows 0, 1 determine 2, 3; row 2 then 0; rows 3, 4 then 1, 4.
    rows = [{2, 3}, {2, 3}, {0, 3}, {0, 1, 4}, {1, 4}]
    assert _lists(_steps(rows, 5)) == [[([0, 1], [2, 3])], [([2], [0])], [([3, 4], [1, 4])]]


def test_independent_blocks_share_a_step():
    rows = [{0, 1}, {0, 1}, {2, 3}, {2, 3}, {1, 3, 4}]
    assert _lists(_steps(rows, 5)) == [[([0, 1], [0, 1]), ([2, 3], [2, 3])], [([4], [4])]]


def test_what_an_undetermined_unknown_reaches_is_left():
    # 0 and 1 are determined; 2 and 3 share one row, and row 3 reads 3.
    rows = [{0, 1}, {0, 1}, {1, 2, 3}, {3, 4}]
    assert _lists(_steps(rows, 5)) == [[([0, 1], [0, 1])]]


def test_rows_that_may_not_be_used_and_unknowns_that_are_known():
    rows = [{0, 1}, {0, 1}, {0}]
    assert _steps(rows, 2, usable=[True, False, False]) == ()
    assert _lists(_steps(rows, 2, usable=[True, False, False], free=[True, False])) == [[([0], [0])]]


def test_an_overdetermined_part_uses_as_many_rows_as_unknowns():
    rows = [{0, 1}, {0, 1}, {0, 1}]
    (step,) = _steps(rows, 2)
    assert len(step.rows) == 2
    assert step.unknowns.tolist() == [0, 1]


def test_a_long_row_is_the_one_left_over():
    size = 40
    local = [{i, (i + 1) % size} for i in range(size)]
    rows = [set(range(size)), *local]
    (step,) = _steps(rows, size)
    assert step.rows.tolist() == list(range(1, size + 1))
    # Where it is needed it is used.
    (step,) = _steps([set(range(size)), *local[1:]], size)
    assert step.rows.tolist() == list(range(size))


def test_more_steps_than_the_limit_are_none():
    rows = [{0}] + [{i, i + 1} for i in range(9)]
    assert len(_steps(rows, 10, limit=10)) == 10
    assert _steps(rows, 10, limit=9) == ()


def test_nothing_to_find():
    assert _steps([], 3) == ()
    assert _steps([set(), set()], 3) == ()


@pytest.mark.parametrize("seed", range(20))
def test_random_patterns_are_block_triangular_and_complete(seed):
    """Every unknown that is found is read with found ones only, and its step's matrix is regular for random values."""
    random = np.random.default_rng(seed)
    m, n = random.integers(4, 14, 2)
    dense = random.random((m, n)) < 0.25
    rows = [set(np.flatnonzero(line).tolist()) for line in dense]
    known = set()
    steps = _steps(rows, n)
    for step in steps:
        assert len(step.rows) == len(step.unknowns)
        for a, b in zip(step.starts[:-1], step.starts[1:]):
            unknowns = set(step.unknowns[a:b].tolist())
            assert all(rows[row] <= known | unknowns for row in step.rows[a:b])
            block = dense[np.ix_(step.rows[a:b], step.unknowns[a:b])] * random.standard_normal((b - a, b - a))
            assert np.linalg.matrix_rank(block) == b - a
        known |= set(step.unknowns.tolist())
    # An unknown is determined if and only if no null vector of a random matrix on the pattern moves it.
    values = dense * random.standard_normal(dense.shape)
    _, sizes, basis = np.linalg.svd(values)
    rank = int((sizes > 1e-10).sum())
    moves = np.abs(basis[rank:]).max(axis=0, initial=0.0) > 1e-8
    assert known == set(np.flatnonzero(~moves).tolist())


def test_a_large_space_time_grid_is_one_march_step_a_time_step():
    steps, size = 30, 100
    place = np.arange(steps * size).reshape(steps, size)
    now = place[1:].ravel()
    reads = [now, place[:-1].ravel(), np.roll(place[1:], 1, 1).ravel(), np.roll(place[1:], -1, 1).ravel()]
    matrix = csr_array(
        (np.ones(4 * len(now), bool), (np.tile(np.arange(len(now)), 4), np.concatenate(reads))),
        shape=(len(now), steps * size),
    )
    matrix.sort_indices()
    sets = Sets(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), steps * size)
    free = np.arange(steps * size) >= size
    steps = find_steps(sets, np.ones(len(now), bool), free, 100)
    assert [step.unknowns.tolist() for step in steps] == place[1:].tolist()
