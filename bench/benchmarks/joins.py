"""Leave out one barrier of the PTX after the other, and see whether that is noticed: `python -m benchmarks.joins`.

The PTX of every entry is executed on the CPU (tests.device.emulated), once for each of its barriers, without that one, on
launches that reach it: of the cases of the tests, of the problems, of laws of many kinds and of random ones. It is noticed if two
threads touch one place with no barrier between them, if they meet at different places, or if bits change. Takes minutes. Appends
a record with the outcomes; barriers that are not noticed, or that no launch reaches, are listed with their line of the PTX.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from tests.device.joins import NOTICED, Reaching, barriers, devices, outcome, projected
from tests.device.launches import Device
from tests.device.law_sets import GALLERY, PROBLEMS, gallery, problem, random_law

from benchmarks.record import append, commit

RANDOM = range(0, 200, 10)


def main() -> None:
    """Try all barriers, print and record."""
    began, reaching = time.process_time(), Reaching()
    for device in _devices():
        reaching.add(device.launches)
    found = {one: outcome(one, reaching.of(one)) for one in barriers()}
    tally = {
        entry: dict(Counter(told for one, told in found.items() if one.entry == entry))
        for entry in dict.fromkeys(one.entry for one in found)
    }
    left = [f"{one.entry} {one.line}: {told}" for one, told in found.items() if told not in NOTICED]
    for entry, told in tally.items():
        print(f"{entry:14} {told}")
    print("\n".join(left))
    figures = {
        "commit": commit(),
        "barriers": len(found),
        **Counter(found.values()),
        "by_entry": tally,
        "left": left,
        "processor_seconds": time.process_time() - began,
    }
    print(f"recorded in {append('joins', figures)}")


def _devices() -> Iterator[Device]:
    """Launch the cases of the test and many more, each on a device of its own."""
    yield from devices()
    sets = [*((problem, name) for name in PROBLEMS), *((gallery, stem) for stem in GALLERY)]
    for make, name in [*sets, *((random_law, number) for number in RANDOM)]:
        yield from projected(make(name))


if __name__ == "__main__":
    main()
