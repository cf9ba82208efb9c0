"""Leave out one barrier of the PTX after the other, and see whether that is noticed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tests.device.cases import CASES
from tests.device.compared import Given
from tests.device.descriptors import Descriptor
from tests.device.emulated.machine import CHECKED, Diverged, Order, executable
from tests.device.launches import Device, Launch, solve
from tests.device.law_sets import MADE, gallery, problem, sums

from snapfm.device.artifact import shipped
from snapfm.kernels.run_length import Runs

RACE, DIVERGED, BITS, UNNOTICED, UNREACHED = "race", "diverged", "bits", "unnoticed", "unreached"
NOTICED = (RACE, DIVERGED, BITS)
_KEPT = 3  # launches that reach a barrier, the shortest ones, of each case


@dataclass(frozen=True)
class Barrier:
    """A barrier: the entry, its number among the meetings there, and the line of the PTX."""

    entry: str
    place: int
    line: int


def barriers() -> list[Barrier]:
    """List the barriers of all entries."""
    found = []
    for entry, ptx in shipped().ptx.items():
        lines, meetings = ptx.split("\n"), executable(ptx, CHECKED).meetings
        found += [Barrier(entry, k, line) for k, line in enumerate(meetings) if "bar" in lines[line]]
    return found


class Reaching:
    """Launches by the barriers that they reach, a few of each case: the shortest ones."""

    def __init__(self) -> None:
        self._launches: dict[tuple[str, int], list[Launch]] = defaultdict(list)

    def add(self, launches: Iterable[Launch]) -> None:
        """Take the launches of one case."""
        taken: dict[tuple[str, int], int] = defaultdict(int)
        for one in sorted(launches, key=_cost):
            for place in one.report.reached:
                if taken[one.entry, place] < _KEPT:
                    taken[one.entry, place] += 1
                    self._launches[one.entry, place].append(one)

    def of(self, barrier: Barrier) -> Sequence[Launch]:
        """Return the launches that reach a barrier, the shortest first."""
        return sorted(self._launches[barrier.entry, barrier.place], key=_cost)


def devices() -> Iterator[Device]:
    """Launch what reaches every barrier, each case on a device of its own."""
    for case in CASES.values():
        device = Device(Order.RANDOM, keeps=True)
        for call in case():
            solve(call, device)
        yield device
    for given in (
        *(make() for make in MADE.values()),
        gallery("reaction_diffusion"),
        problem("burgers-ic-mass-entropy"),
    ):
        yield from projected(given)
    yield _from_the_last_group()


def projected(given: Given | None) -> Iterator[Device]:
    """Project on a device with a team for each sample, and on one with a team for all of them."""
    for teams in (None, 1) if given is not None else ():
        device = Device(Order.RANDOM, teams=teams, keeps=True)
        given.on_device(True, device)
        yield device


def _from_the_last_group() -> Device:
    """Condense groups in another order than the one they are numbered in: threads begin with groups that others cleared."""
    given, device = sums(), Device(Order.RANDOM, keeps=True)
    assert given is not None
    method, count = given.project.method, len(given.u_hat)
    groups, runs = method.reduction.aggregates, method.coordinates.runs
    field = np.zeros((count, method.tape.unknowns))
    field[:, : method.laws.unknowns] = given.u_hat.reshape(count, -1)
    spec = Descriptor(Runs(*(one[::-1].copy() for one in runs)), groups.ptr, groups.first)
    device.launch("condense", spec, count, field.shape[1], field, np.zeros((count, 3 * len(groups))))
    return device


def _cost(one: Launch) -> int:
    return one.report.reads + one.report.writes


def outcome(barrier: Barrier, launches: Sequence[Launch]) -> str:
    """Leave the barrier out of launches until that is noticed."""
    for one in launches:
        try:
            race, changed = one.without(barrier.place, Order.RANDOM)
        except Diverged:
            return DIVERGED
        if race or changed:
            return RACE if race else BITS
    return UNNOTICED if launches else UNREACHED
