"""Every barrier is needed: without it threads touch one place with no barrier between them, or bits change."""

from __future__ import annotations

from tests.device.joins import NOTICED, Reaching, barriers, devices, outcome


def test_a_barrier_that_is_left_out_is_noticed():
    reaching = Reaching()
    for device in devices():
        assert not device.faults
        reaching.add(device.launches)
    found = {(one.entry, one.line): outcome(one, reaching.of(one)) for one in barriers()}
    assert len(found) > 100
    assert {one: told for one, told in found.items() if told not in NOTICED} == {}
