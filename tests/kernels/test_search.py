"""The filter: what it accepts, what it remembers, and Newton's loop with it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.small import CIRCLE, ELLIPSE, HYPERBOLA, TOLERANCE, WAVE, Example, Small, lanes_near, newton

from snapfm.kernels.layout import FILTER, new_lanes
from snapfm.kernels.operations import LANES
from snapfm.kernels.search import clear_filter, passes_filter


def at(theta: float, objective: float, slope: float = 1.0, alpha: float = 1.0):
    """Lanes that are all at one point, with an empty filter."""
    lanes = new_lanes()
    lanes.theta[:], lanes.objective[:], lanes.slopes[:], lanes.alpha[:] = theta, objective, slope, alpha
    clear_filter(lanes)
    return lanes


def tried(lanes, theta: float, objective: float, lane: int = 0) -> bool:
    lanes.new_theta[lane], lanes.new_objective[lane] = theta, objective
    return bool(passes_filter(lanes, lane))


def test_less_violation_or_less_objective_is_enough():
    assert tried(at(1.0, 5.0), 0.5, 100.0)
    assert tried(at(1.0, 5.0), 1.5, 4.0)
    assert not tried(at(1.0, 5.0), 1.0, 5.0)
    assert not tried(at(1.0, 5.0), 1.5, 5.5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_point_without_numbers_is_refused(bad: float):
    assert not tried(at(1.0, 5.0), bad, 0.0)
    assert not tried(at(1.0, 5.0), 0.5, bad)


def test_a_violation_far_above_the_first_is_refused_whatever_the_objective():
    assert not tried(at(1.0, 5.0), 2e4, -1e9)


def test_a_point_like_one_that_was_left_is_refused_in_its_lane_only():
    lanes = at(1.0, 5.0)
    assert tried(lanes, 0.5, 9.0)
    lanes.theta[:], lanes.objective[:] = 0.5, 9.0
    assert not tried(lanes, 1.2, 6.0)  # lower than 9, but worse than (1, 5) in both
    assert tried(lanes, 1.2, 6.0, lane=1)
    assert tried(lanes, 1.2, 4.0)


def test_near_the_laws_a_step_that_should_lower_the_objective_has_to():
    close = at(1e-6, 5.0, slope=-1.0)
    assert not tried(close, 1e-9, 5.0 - 1e-6)
    assert tried(close, 1e-5, 5.0 - 1e-2)
    assert close.entries[0] == 0  # such steps leave nothing to remember


def test_more_points_than_there_is_room_for_replace_the_oldest():
    lanes = at(1.0, 0.0)
    for k in range(FILTER + 3):
        lanes.theta[:], lanes.objective[:] = 0.99**k, float(k)
        assert tried(lanes, 0.99 ** (k + 1), float(k + 1))
    assert lanes.entries[0] == FILTER + 3


@pytest.mark.parametrize("example", [CIRCLE, ELLIPSE, HYPERBOLA, WAVE], ids=lambda example: example.name)
def test_newton_with_a_filter_reaches_the_answers_of_the_merit_function(example: Example):
    center = [1.2, 0.9, 0.7][: example.n]
    small = Small(example)
    begin, target = lanes_near(center, 0.2), lanes_near(center, 0.3, seed=1)
    merit = newton(small.start(begin, target))
    other = newton(small.start(begin, target), filtered=True)
    assert (merit.status == 0).all()
    assert (other.status == 0).all()
    np.testing.assert_allclose(other.x, merit.x, atol=100 * TOLERANCE)


def test_a_lane_without_numbers_leaves_the_others_as_they_are():
    small, begin = Small(CIRCLE), lanes_near([1.2, 0.9], 0.2)
    clean = newton(small.start(begin, begin), filtered=True)
    spoilt = begin.copy()
    spoilt[:, 5] = np.nan
    others = np.arange(LANES) != 5
    assert newton(small.start(spoilt, spoilt), filtered=True).lanes(others) == clean.lanes(others)
