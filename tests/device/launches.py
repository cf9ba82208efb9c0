"""Launch entries of the PTX on the emulated device, with numpy arrays for memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tests.device.captured import Call
from tests.device.descriptors import Descriptor
from tests.device.emulated.machine import CHECKED, Order, Report, executable

from snapfm.device.artifact import shipped
from snapfm.kernels import layout

TEAM = 32
FIELDS = (layout.X, layout.MULTIPLIER)


@dataclass(frozen=True)
class Launch:
    """A launch that can be repeated: its arguments, with arrays as they were before, and arrays as they were left."""

    entry: str
    spec: Descriptor
    count: int
    teams: int | None
    arguments: tuple[int | float | np.ndarray, ...]
    after: tuple[np.ndarray, ...]
    report: Report

    def without(self, place: int, order: Order) -> tuple[bool, bool]:
        """Repeat without one meeting, until there is a race; return whether there was one, and whether bits changed."""
        device = Device(order, teams=self.teams, left_out={self.entry: [place]}, hasty=True)
        arguments = [one.copy() if isinstance(one, np.ndarray) else one for one in self.arguments]
        report = device.launch(self.entry, self.spec, self.count, *arguments)
        arrays = [one for one in arguments if isinstance(one, np.ndarray)]
        changed = not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(arrays, self.after))
        return report.races > 0, changed


@dataclass
class Device:
    """Launches entries one after the other, and keeps what they report.

    `teams` is the number of teams of a launch, one a sample if it is None; the meetings `left_out` of entries are skipped. With
    `keeps` launches can be repeated.
    """

    order: Order = Order.ASCENDING
    flag: str = CHECKED
    team: int = TEAM
    teams: int | None = None
    left_out: dict[str, Sequence[int]] = field(default_factory=dict)
    hasty: bool = False
    keeps: bool = False
    reports: list[tuple[str, Report]] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)

    def launch(self, entry: str, spec: Descriptor, count: int, *arguments: int | float | np.ndarray) -> Report:
        """Launch an entry on so many samples. Arrays are given by their address; written: those that the entry writes."""
        arrays = [one for one in arguments if isinstance(one, np.ndarray)]
        assert all(one.flags.c_contiguous for one in arrays)
        before = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments] if self.keeps else []
        given = [one.ctypes.data if isinstance(one, np.ndarray) else one for one in arguments]
        teams = self.teams or count
        blocks, width, height = (teams, self.team, 1) if self.team > 1 else (1, 1, teams)
        report = executable(shipped().ptx[entry], self.flag).run(
            blocks, width, height, [spec.address, count, *given], self.order, left_out=self.left_out.get(entry, ()),
            memory=arrays, constant=spec.arrays, hasty=self.hasty,
        )  # fmt: skip
        self.reports.append((entry, report))
        if self.keeps:
            after = tuple(one.copy() for one in arrays)
            self.launches.append(Launch(entry, spec, count, self.teams, tuple(before), after, report))
        return report

    @property
    def faults(self) -> list[str]:
        """Races and stray accesses, by entry and line of its PTX."""
        return [
            f"{entry}: {one.races} races, first at line {one.first_race}; {one.strays} strays, at {one.first_stray}"
            for entry, one in self.reports
            if one.races or one.strays
        ]


@dataclass(frozen=True)
class Solved:
    """What an entry made of a Call."""

    memory: np.ndarray
    status: np.ndarray
    iterations: np.ndarray
    second: np.ndarray
    report: Report


def solve(call: Call, device: Device | None = None) -> Solved:
    """Run the entry of a call, with the iterations that each of its lanes may use."""
    device = Device() if device is None else device
    count, memory = len(call.before), call.before.copy()
    work = np.zeros((device.teams or count, int(call.at[-1])))
    ended = [np.zeros(count, np.int64) for _ in range(3)]
    report = device.launch(
        call.entry, Descriptor(*call.read, call.at), count, *call.settings, int(call.limits.max()), call.limits, memory, work,
        *ended[: 3 if call.entry == "newton" else 2],
    )  # fmt: skip
    return Solved(memory, *ended, report)
