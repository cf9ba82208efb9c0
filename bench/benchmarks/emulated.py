"""Whole projections of the PTX, executed on the CPU, against the CPU's kernels: `python -m benchmarks.emulated`.

Twelve problems on small grids, the cases of benchmarks.any_law at the size for tests, and 200 random laws, each launch by launch
in three orders of threads (tests.device). What has to be the same: status and iterations of every sample, fields to 1e-10, bits
in all orders; and no launch may have a race, or an access outside of what it was given. Appends a record that lists what differs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tests.device.compared import Given
from tests.device.law_sets import PROBLEMS, gallery, problem, random_law

import snapfm
from benchmarks.any_law.case import CASES
from benchmarks.record import append, commit

RANDOM = range(200)


def main() -> None:
    """Compare all, print and record."""
    began = time.process_time()
    stems = dict.fromkeys(case.stem for case in CASES.values())
    rows = {
        "problems": _compared(problem, PROBLEMS),
        "gallery": _compared(gallery, stems),
        "random": _compared(random_law, RANDOM),
    }
    for name, row in rows.items():
        print(f"{name}: {row}")
    print(
        f"recorded in {append('emulated', {'commit': commit(), **rows, 'processor_seconds': time.process_time() - began})}"
    )


def _compared(make: Callable[[Any], Given | None], names: Iterable[Any]) -> dict[str, Any]:
    """Compare on sets of laws; count, and list what differs and what has no kernels."""
    statuses: Counter[str] = Counter()
    compared, absent, differ, apart = 0, [], {}, 0.0
    for name in names:
        given = make(name)
        if given is None:
            absent.append(str(name))
            continue
        found, compared = given.compared(certify=True), compared + 1
        statuses.update(snapfm.Status(one).name for one in found.status)
        apart = max(apart, found.apart)
        if not found.agrees:
            differ[str(name)] = repr(found)
            print(name, found, flush=True)
    return {
        "compared": compared, "agree": compared - len(differ), "apart": apart, "statuses": dict(statuses), "differ": differ,
        "without_kernels": absent,
    }  # fmt: skip


if __name__ == "__main__":
    main()
