"""`python -m benchmarks.tables_page`: write docs/tables.md and the table of the README from the runs of `snapfm bench`.

A run is the folder of `snapfm bench SUITE --out benchmarks/runs/SUITE`: its records and fields are committed, its inputs are not.
`--check` writes nothing and fails if a page differs from the records.
"""

from __future__ import annotations

import sys

from benchmarks.page import DOCS, ROOT, main
from snapfm.evidence import published
from snapfm.evidence.page.document import Entry, Table, markdown, table
from snapfm.evidence.projection.report.book import Book, Case, contest, outcome, read, title, totals_of
from snapfm.evidence.projection.report.pages import text
from snapfm.evidence.projection.report.walks import known, published_ratio, published_rest
from snapfm.evidence.projection.suite import OURS, Kind
from snapfm.text import NOTHING, short, times, total

RUNS, README = ROOT / "benchmarks" / "runs", ROOT / "README.md"
SUITES = ("paper", "scaling-constraints", "scaling-samples", "scaling-grid")
BEGIN, END = "<!-- table: python -m benchmarks.tables_page -->", "<!-- end of table -->"

_TUNED = "ipopt-tuned"


def book() -> Book:
    """Read all committed runs."""
    return read([RUNS / suite for suite in SUITES if (RUNS / suite).is_dir()])


def page(found: Book) -> str:
    """Write the report of all runs with a line on where it comes from."""
    head, _, rest = text(found).partition("\n\n")
    note = (
        "Written by `python -m benchmarks.tables_page` from the records in `benchmarks/runs`; not edited by hand. For the same "
        "page with pictures: `snapfm report benchmarks/runs/* --out FOLDER`. To run everything again: `snapfm bench SUITE --out "
        "FOLDER`."
    )
    return f"{head}\n\n{note}\n\n{rest}"


def readme(found: Book, now: str) -> str:
    """Put the table of the paper's six problems between its marks."""
    before, _, rest = now.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert after, f"README.md has lost its marks {BEGIN} and {END}"
    return f"{before}{BEGIN}\n{markdown(six(found))}\n{END}{after}"


def six(found: Book) -> Table:
    """Tabulate the cases with published runtimes: one projection against rivals here, a whole walk against the paper's."""
    heads = (
        "problem", "samples", "rows", "projection here", "fastest fair rival", "tuned Ipopt", "projection in a walk of 100 steps",
        f"{published.BEST}, published",
    )  # fmt: skip
    return table(heads, (_row(case) for case in found.cases if known(case) and case.axis is None))


def _row(case: Case) -> tuple[str | Entry, ...]:
    one, walk = contest(case, Kind.PROJECTION), case.done(Kind.WALK).get(OURS)
    some = next(cell for cell in case.cells if cell.rows)
    tuned = case.of(Kind.PROJECTION).get(_TUNED)
    spent = totals_of(tuned)
    theirs = published_rest(case)
    rest = NOTHING if theirs is None else f"{total(theirs)} s"
    return (
        case.title,
        str(some.samples),
        f"{some.rows:,}",
        NOTHING if one is None else f"{short(1e3 * one.ours.seconds / one.ours.samples)} ms per sample",
        NOTHING if one is None or one.rival is None else f"{times(one.ratio)} as long ({title(one.rival)})",
        outcome(tuned) if one is None or spent is None else times(spent.seconds / one.ours.seconds),
        NOTHING if walk is None else f"{total(walk.walk['projection'])} s",
        f"{rest}, {times(published_ratio(case))}",
    )


if __name__ == "__main__":
    found = book()
    wanted = {DOCS / "tables.md": page(found), README: readme(found, README.read_text(encoding="utf-8"))}
    sys.exit(main(wanted))
