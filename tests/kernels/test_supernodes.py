"""Panels of the factor: every entry has its place, and every update a target."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, diags_array, eye_array, kron

from snapfm.kernels.factor.ordering import best
from snapfm.kernels.factor.supernodes import WIDEST, supernodes
from snapfm.kernels.numba.packs import WIDTH


def lower(matrix):
    rows, columns = np.nonzero(np.tril(matrix))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(matrix)))])
    return indptr.astype(np.int64), columns.astype(np.int64)


def grid(points):
    line = diags_array([np.ones(points - 1), np.ones(points), np.ones(points - 1)], offsets=[-1, 0, 1])
    return csr_array(kron(line, eye_array(points)) + kron(eye_array(points), line)).toarray() != 0


def scattered(size, seed):
    pattern = np.random.default_rng(seed).random((size, size)) < 3 / size
    return pattern | pattern.T | np.eye(size, dtype=bool)


def apart(size):
    """Blocks that share nothing: a forest, with a root per block."""
    return np.kron(np.eye(size // 5), np.ones((5, 5))) != 0


PATTERNS = {
    "one": np.ones((1, 1), bool),
    "diagonal": np.eye(9, dtype=bool),
    "forest": apart(40),
    "grid": grid(13),
    "scattered": scattered(90, 1),
    "full": np.ones((WIDEST + 37, WIDEST + 37), bool),  # cut into two panels, the second of an odd width
}
every_pattern = pytest.mark.parametrize("name", PATTERNS)


def eliminated(pattern):
    """Entries of the factor, by the rules of elimination."""
    fill = np.tril(pattern)
    for k in range(len(fill)):
        below = np.flatnonzero(fill[k + 1 :, k]) + k + 1
        fill[np.ix_(below, below)] |= np.tri(len(below), dtype=bool)
    return fill


def arranged(name):
    pattern = PATTERNS[name]
    indptr, indices = lower(pattern)
    order = best(indptr, indices)
    return pattern, order, supernodes(indptr, indices, order.perm)


@every_pattern
def test_panels_hold_the_factor_of_an_order_with_the_same_fill(name):
    pattern, order, plan = arranged(name)
    assert sorted(plan.perm.tolist()) == list(range(len(pattern)))
    fill = eliminated(pattern[np.ix_(plan.perm, plan.perm)])
    assert fill.sum() == order.fill
    held = np.zeros_like(fill)
    for panel, (first, end) in enumerate(zip(plan.first[:-1], plan.first[1:])):
        rows = plan.rows[plan.row_ptr[panel] : plan.row_ptr[panel + 1]]
        assert 0 < end - first <= WIDEST
        assert (np.diff(rows) > 0).all()
        assert (rows >= end).all()
        assert (plan.owner[first:end] == panel).all()
        held[first:end, first:end] = np.tri(end - first, dtype=bool)
        held[rows[:, None], np.arange(first, end)] = True
        groups = -(-(end - first) // WIDTH) + -(-len(rows) // WIDTH)
        assert plan.base[panel + 1] - plan.base[panel] == groups * (end - first)
    assert not (fill & ~held).any()


@every_pattern
def test_every_row_of_a_panel_is_found_in_the_panels_it_is_added_to(name):
    """Rows behind a pivot in another panel are pivots or rows of that panel: its products have somewhere to go."""
    _, _, plan = arranged(name)
    for panel in range(len(plan.first) - 1):
        rows = plan.rows[plan.row_ptr[panel] : plan.row_ptr[panel + 1]]
        for target in np.unique(plan.owner[rows]):
            later = rows[rows >= plan.first[target]]
            there = plan.rows[plan.row_ptr[target] : plan.row_ptr[target + 1]]
            assert np.isin(later[later >= plan.first[target + 1]], there).all()


@every_pattern
def test_no_two_entries_share_a_place(name):
    pattern, _, plan = arranged(name)
    assert len(np.unique(plan.entry_to)) == len(plan.entry_to) == np.tril(pattern).sum()
    assert (plan.entry_to < plan.packs * WIDTH).all()
    assert (plan.entry_row >= plan.entry_column).all()


def test_neighbors_share_panels_where_it_saves_time():
    """A grid has hundreds of chains of one or two columns; a panel costs more than the zeros that joining them stores."""
    indptr, indices = lower(grid(40))
    order = best(indptr, indices)
    plan = supernodes(indptr, indices, order.perm)
    assert len(plan.first) - 1 < 1600 / 8
    assert plan.packs * WIDTH < 4 * order.fill


def test_a_wide_supernode_is_cut():
    _, _, plan = arranged("full")
    assert np.diff(plan.first).tolist() == [WIDEST, 37]
    assert plan.rows.tolist() == list(range(WIDEST, WIDEST + 37))
