"""`python -m benchmarks.exact_page`: write docs/exact.md, samplers on cases whose answer is known.

The record is the records.jsonl of `snapfm quality exact`, copied to bench/records/exact.jsonl.
"""

from __future__ import annotations

import sys

from benchmarks.page import DOCS, main, told_sources
from benchmarks.record import RECORDS
from snapfm_bench.record import read
from snapfm_bench.suites.exact.pages import text
from snapfm_bench.suites.exact.suite import ExactCell, ExactSuite


def page() -> str:
    """Write the page; every figure in it comes from the record."""
    suite, cells = read(RECORDS / "exact.jsonl", ExactSuite, ExactCell)
    assert suite is not None
    head, _, rest = text(suite, cells).partition("\n\n")
    note = "Written by `python -m benchmarks.exact_page` from `bench/records/exact.jsonl`; not edited by hand."
    return f"{head}\n\n{note} {told_sources({'exact': next(iter(cells.values())).machine})}\n\n{rest}"


if __name__ == "__main__":
    sys.exit(main({DOCS / "exact.md": page()}))
