"""Leave out one barrier of the PTX after the other, and see whether that is noticed: `python -m benchmarks.joins`.

The PTX of Newton's iterations is executed on the CPU (tests.device.emulated) for the cases of the tests, once for each of its
barriers, without that one. It is noticed if two threads touch one place with no barrier between them, if they meet at different
places, or if bits change. Takes minutes. Appends a record with what was not noticed, and what the cases do not reach.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from tests.device.captured import Call, newton_calls
from tests.device.cases import CASES
from tests.device.emulated.machine import CHECKED, Diverged, Order, executable
from tests.device.launches import Solved, solve

from benchmarks.record import append, commit
from snapfm.device.artifact import shipped

RACE, DIVERGED, BITS, UNNOTICED, UNREACHED = "race", "diverged", "bits", "unnoticed", "unreached"


def main() -> None:
    """Try all barriers, print and record."""
    ptx = shipped().ptx["newton"]
    program, lines = executable(ptx, CHECKED), ptx.split("\n")
    calls = [call for case in CASES.values() for call in newton_calls(*case())[:3]]
    whole = [(call, solve(call, Order.RANDOM)) for call in calls]
    whole.sort(key=lambda one: one[1].report.reads)
    found = {
        program.meetings[place]: _outcome(whole, place)
        for place in range(len(program.meetings))
        if "bar.sync" in lines[program.meetings[place]]
    }
    tally = Counter(found.values())
    print(dict(tally))
    unnoticed = [line for line, outcome in found.items() if outcome == UNNOTICED]
    figures = {"commit": commit(), "barriers": len(found), **tally, "unnoticed_lines": unnoticed}
    print(f"recorded in {append('joins', figures)}")


def _outcome(whole: list[tuple[Call, Solved]], place: int) -> str:
    outcome = UNREACHED
    for call, base in whole:
        try:
            without = solve(call, Order.RANDOM, left_out=[place])
        except Diverged:
            return DIVERGED
        if without.report.races:
            return RACE
        if not np.array_equal(without.memory, base.memory, equal_nan=True):
            return BITS
        if without.report.barriers != base.report.barriers:
            outcome = UNNOTICED
    return outcome


if __name__ == "__main__":
    main()
