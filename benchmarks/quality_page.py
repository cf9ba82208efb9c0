"""`python -m benchmarks.quality_page`: write docs/quality.md from the records of the suites `paper` and `steps`.

The records are the records.jsonl of `snapfm quality paper` and `snapfm quality steps`, copied to benchmarks/records/.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.record import RECORDS
from snapfm.quality.ledger import read
from snapfm.quality.suite import Suite
from snapfm.quality.tables import summary
from snapfm.quality.text import about, markdown, sections

PAGE = Path(__file__).parents[1] / "docs" / "quality.md"
PAPER, STEPS = "quality", "quality_steps"


def page() -> str:
    """Write the page; every figure in it comes from a record."""
    suite, cells = _records(PAPER)
    few, by_steps = _records(STEPS)
    return "\n\n".join(
        [
            "# How good samples are",
            "Written by `python -m benchmarks.quality_page` from `benchmarks/records/quality.jsonl` and "
            "`quality_steps.jsonl`; not edited by hand.",
            about(suite, cells),
            *sections(suite, cells),
            "## How many steps",
            about(few, by_steps),
            "MMSE / SMSE of PCFM, in units of 1e-2; the lowest MMSE of a task is bold.",
            markdown(summary(few, by_steps)),
        ]
    ) + "\n"  # fmt: skip


def _records(case: str) -> tuple[Suite, dict]:
    suite, cells = read(RECORDS / f"{case}.jsonl")
    assert suite is not None  # committed records are never empty
    return suite, cells


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else f"docs/{PAGE.name} differs from the records")
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote docs/{PAGE.name}\n")
