"""The choice between Lanes and Fronts: by time, within memory."""

from __future__ import annotations

import numpy as np
import pytest

from snapfm.compile.sparsity.pattern import Pattern
from snapfm.errors import ShapeError
from snapfm.kernels.factor.ordering import Order
from snapfm.linear import Automatic, Outcome
from snapfm.linear.automatic import predicted_fronts, predicted_lanes
from snapfm.linear.fronts import PreparedFronts
from snapfm.linear.lanes import PreparedLanes


def order(flops, fill):
    return Order("made up", np.zeros(0, np.int64), fill, flops)


SMALL = order(35_000, 2_900)  # Burgers
GRID = order(77_000_000, 1_070_000)  # 126² points, 13-point pattern
CUBE = order(4_300_000_000, 7_900_000)  # 32³ points, 7-point pattern


@pytest.mark.parametrize("given", [SMALL, GRID, CUBE])
def test_the_faster_one_is_chosen(given):
    for live in (1, 3, 8):
        faster = predicted_lanes(given).seconds < predicted_fronts(given, live).seconds
        assert Automatic(live, np.inf).lanes(given) is faster


def test_what_was_measured_is_what_is_chosen():
    """Full tiles of small factors go to Lanes; one large sample, and full tiles of long columns, to Fronts."""
    assert [Automatic(8, np.inf).lanes(given) for given in (SMALL, GRID, CUBE)] == [True, True, False]
    assert [Automatic(1, np.inf).lanes(given) for given in (SMALL, GRID, CUBE)] == [True, False, False]


def test_the_smaller_one_is_chosen_where_memory_is_short():
    assert predicted_lanes(GRID).bytes > predicted_fronts(GRID, 2).bytes
    many = order(10_000_000, 1_070_000)  # Lanes is faster, and larger by its schedule
    assert Automatic(8, np.inf).lanes(many)
    assert not Automatic(8, 0.0).lanes(many)


@pytest.mark.parametrize(("live", "kind"), [(8, PreparedLanes), (1, PreparedFronts)])
def test_what_is_chosen_solves(live, kind):
    size = 1500
    row, column = np.nonzero(np.tri(size, dtype=bool) & ~np.tri(size, k=-200, dtype=bool))
    pattern = Pattern.from_coordinates(row, column, (size, size))
    values = np.where(row == column, 600.0, -1.0)[:, None]
    prepared = Automatic(live).prepare(pattern)
    assert isinstance(prepared, kind)
    work = prepared.workspace()
    assert work.factorize(values).status.tolist() == [Outcome.FACTORED]
    dense = np.zeros((size, size))
    dense[row, column] = dense[column, row] = values[:, 0]
    np.testing.assert_allclose(dense @ work.solve(np.ones((size, 1))), 1.0, rtol=1e-12)


def test_wrong_patterns_are_named():
    with pytest.raises(ShapeError, match=r"add every diagonal entry"):
        Automatic().prepare(Pattern.from_coordinates([0, 1], [0, 0], (2, 2)))
