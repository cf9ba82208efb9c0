"""Every barrier is needed: without it threads touch one place with no barrier between them, or bits change."""

from __future__ import annotations

import pytest
from tests.device.cases import CASES
from tests.device.emulated.machine import Order
from tests.device.joins import NOTICED, Reaching, barriers, outcome
from tests.device.launches import Device, solve
from tests.device.law_sets import gallery, problem

EVERY = 7  # one barrier out of so many; benchmarks.joins leaves out all of them
# Not noticed by these cases: either never needed, or needed on a path that they do not take. docs/gpu.md says so.
UNSETTLED = {("condense", 0), ("march", 1), ("march", 15), ("newton", 17)}


@pytest.fixture(scope="module")
def reaching() -> Reaching:
    found = Reaching()
    for case in CASES.values():
        device = Device(Order.RANDOM, keeps=True)
        for call in case():
            solve(call, device)
        found.add(device.launches)
    for given in (gallery("reaction_diffusion"), problem("heat-ic-mass-pde-energy")):
        device = Device(Order.RANDOM, keeps=True)
        assert given is not None
        given.on_device(True, device)
        found.add(device.launches)
    return found


def test_a_barrier_that_is_left_out_is_noticed(reaching):
    reached = [one for one in barriers() if reaching.of(one)]
    assert len(reached) > 50
    chosen = reached[::EVERY]
    left = {(one.entry, one.place) for one in chosen if outcome(one, reaching.of(one)) not in NOTICED}
    assert left <= UNSETTLED
