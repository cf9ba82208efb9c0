"""The PTX of Newton's method, barriers and restoration, executed on the CPU thread by thread, against the kernels for the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from tests.device.captured import Call
from tests.device.cases import CASES
from tests.device.emulated.machine import Order
from tests.device.launches import FIELDS, Device, Solved, solve

CLOSE = 1e-10


@pytest.fixture(scope="module", params=CASES)
def calls(request) -> list[Call]:
    found = CASES[request.param]()
    assert found
    return found


def test_cases_reach_every_form_of_the_system():
    frames = [call.read[1] for case in CASES.values() for call in case()]
    assert {frame.augmented for frame in frames} == {0, 1}
    assert {frame.mixed for frame in frames} == {0, 1}
    assert {(frame.augmented, frame.bounded) for frame in frames} >= {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert {(frame.coupled, frame.bounded) for frame in frames} >= {(0, 0), (0, 1), (1, 0), (1, 1)}


def _same_outcome(call: Call, solved: Solved) -> None:
    assert np.array_equal(solved.status, call.status)
    assert np.array_equal(solved.iterations, call.iterations)
    assert np.array_equal(solved.second, call.second)
    done = call.status == 0  # a lane that wanders on its way nowhere multiplies what rounding differs by
    for number in FIELDS:
        found, wanted = (call.section(memory, number)[done] for memory in (solved.memory, call.after))
        assert np.allclose(found, wanted, rtol=CLOSE, atol=CLOSE)


def test_a_team_ends_as_the_cpu_does_without_races_and_in_its_own_memory(calls):
    for call in calls:
        solved = solve(call)
        _same_outcome(call, solved)
        assert solved.report.races == 0
        assert solved.report.strays == 0
        assert solved.report.barriers > 0


def test_bits_do_not_depend_on_the_order_of_threads(calls):
    for call in calls:
        one = solve(call, Device(Order.ASCENDING))
        for order in (Order.DESCENDING, Order.RANDOM):
            other = solve(call, Device(order))
            assert np.array_equal(one.memory, other.memory, equal_nan=True)
            assert np.array_equal(one.iterations, other.iterations)


def test_bits_of_a_sample_do_not_depend_on_its_batch(calls):
    for call in calls:
        whole = solve(call)
        for i in (0, len(call.before) - 1):
            alone = solve(call.only(i))
            assert np.array_equal(alone.memory[0], whole.memory[i], equal_nan=True)


def test_a_team_works_on_one_sample_after_the_other(calls):
    call = max(calls, key=lambda one: len(one.before))
    whole, in_turn = solve(call), solve(call, Device(teams=1))
    assert np.array_equal(in_turn.memory, whole.memory, equal_nan=True)
    assert in_turn.report.races == 0


def test_a_thread_alone_ends_as_the_cpu_does(calls):
    for call in calls:
        solved = solve(call, Device(team=1))
        _same_outcome(call, solved)
        assert solved.report.barriers == 0


def test_a_sample_that_is_not_finite_ends_alone(calls):
    call = calls[0]
    spoiled = call.before.copy()
    spoiled[0] = np.nan
    whole, broken = solve(call), solve(call.of(call.entry, call.settings, spoiled))
    assert broken.status[0] == 4  # NONFINITE
    assert np.array_equal(broken.memory[1:], whole.memory[1:], equal_nan=True)
