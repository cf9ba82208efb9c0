"""Weak pivots: repaired with the expected sign, left out, or refined away; in every solver that has a PivotRule."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from snapfm.linear import Dense, Lanes, Levels, Outcome, PivotRule
from snapfm.structure.pattern import Pattern

EPS = np.finfo(np.float64).eps
KINDS = {"Lanes": Lanes, "Lanes float32": partial(Lanes, precision="float32"), "Dense": Dense, "Levels": Levels}
repairing = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def from_dense(matrices):
    """Pattern of the lower triangle and values (nnz, lanes) of a stack of dense symmetric matrices (lanes, n, n)."""
    used = np.tril((matrices != 0).any(0) | np.eye(matrices.shape[1], dtype=bool))
    row, column = np.nonzero(used)
    return Pattern.from_coordinates(row, column, used.shape), np.ascontiguousarray(matrices[:, row, column].T)


@repairing
def test_a_repaired_pivot_has_the_expected_sign(kind):
    matrices = np.stack([np.diag([2.0, 0.0, -3.0]), np.diag([2.0, 1.0, 3.0])])
    pattern, values = from_dense(matrices)
    work = kind(PivotRule(repair=0.5)).prepare(pattern, np.array([1, -1, -1])).workspace()
    pivots = work.factorize(values)
    assert pivots.status.tolist() == [Outcome.FACTORED] * 2
    assert pivots.weak.tolist() == [1, 2]  # a zero; two of the wrong sign
    assert pivots.negative.tolist() == [2, 2]
    # scale 2, 1 (a zero row), 3 and 2, 1, 3; the stand-in is half of it
    assert work.solve(np.ones((3, 2))).T.tolist() == [[0.5, -2.0, -1 / 3], [0.5, -2.0, -1 / 1.5]]


@repairing
def test_a_dropped_row_leaves_the_rest_solved(kind):
    pattern, values = from_dense(np.array([[[2.0, 0, 0], [0, 0, 0], [0, 0, 4]]]))
    work = kind().prepare(pattern).workspace()
    assert work.factorize(values).status.tolist() == [Outcome.SINGULAR]
    assert work.solve(np.ones((3, 1))).ravel().tolist() == [0.5, 0.0, 0.25]


@repairing
def test_refinement_takes_the_repair_back(kind):
    """Blocks [[1, 1], [1, 1 + d]] have a second pivot d in any order; repaired to 1e-3, a step keeps 1 - d / 1e-3."""
    gaps = [8e-4, 6e-4, 0.5]
    block = np.array([[[1.0, 1.0], [1.0, 1.0 + d]] for d in gaps])
    matrices = np.zeros((3, 6, 6))
    for k in range(0, 6, 2):
        matrices[:, k : k + 2, k : k + 2] = block
    pattern, values = from_dense(matrices)
    rhs = np.random.default_rng(11).standard_normal((6, 3))
    sizes = []
    for refinements in (0, 45):
        work = kind(PivotRule(tiny=1e-3, repair=1e-3), refinements).prepare(pattern).workspace()
        assert work.factorize(values).weak.tolist() == [3, 3, 0]
        x = work.solve(rhs.copy())
        sizes.append([np.abs(a @ x[:, k] - rhs[:, k]).max() for k, a in enumerate(matrices)])
    assert min(sizes[0][:2]) > 0.01
    assert max(sizes[1]) <= 8 * EPS * np.abs(x).max()
