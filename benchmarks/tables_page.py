"""`python -m benchmarks.tables_page`: write docs/tables.md and the table of the README from the runs of `snapfm bench`.

A run is the folder of `snapfm bench SUITE --out benchmarks/runs/SUITE`: its records and fields are committed, its inputs are not.
`--check` writes nothing and fails if a page differs from the records.
"""

from __future__ import annotations

import sys
from pathlib import Path

from snapfm.bench import published
from snapfm.bench.record import Kind
from snapfm.bench.report.book import OURS, Book, Case, read
from snapfm.bench.report.compare import contest, outing
from snapfm.bench.report.document import NOTHING, Entry, Table
from snapfm.bench.report.figures import outcome, short, times, total
from snapfm.bench.report.runtime import known, published_ratio
from snapfm.bench.report.summary import made
from snapfm.bench.report.text import text
from snapfm.bench.report.titles import title
from snapfm.bench.report.write import sections
from snapfm.quality.text import markdown

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "benchmarks" / "runs"
PAGE, README = ROOT / "docs" / "tables.md", ROOT / "README.md"
SUITES = ("paper", "scaling-constraints", "scaling-samples", "scaling-grid")
BEGIN, END = "<!-- table: python -m benchmarks.tables_page -->", "<!-- end of table -->"

_TUNED = "ipopt-tuned"


def book() -> Book:
    """Read all committed runs."""
    return read([RUNS / suite for suite in SUITES if (RUNS / suite).is_dir()])


def page(found: Book) -> str:
    """Write the report of all runs with a line on where it comes from."""
    head, _, rest = text(found, sections(found), made(found)).partition("\n\n")
    note = (
        "Written by `python -m benchmarks.tables_page` from the records in `benchmarks/runs`; not edited by hand. The same with "
        "pictures: `snapfm report benchmarks/runs/* --out FOLDER`. Again from nothing: `snapfm bench SUITE --out FOLDER`."
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
    return Table(heads, tuple(_row(case) for case in found.cases if known(case) and case.axis is None))


def _row(case: Case) -> tuple[Entry, ...]:
    one, walk = contest(case, Kind.PROJECTION), case.done(Kind.WALK).get(OURS)
    some = next(cell for cell in case.cells if cell.rows)
    tuned = case.of(Kind.PROJECTION).get(_TUNED)
    spent = outing(tuned)
    key = known(case)
    assert key is not None  # the caller's choice of cases
    theirs = published.RUNTIMES[key][published.BEST]
    rest = NOTHING if theirs is None else f"{total(theirs - published.NETWORK.get(key, 0.0))} s"
    return (
        Entry(case.title),
        Entry(str(some.samples)),
        Entry(f"{some.rows:,}"),
        Entry(NOTHING if one is None else f"{short(1e3 * one.ours.seconds / one.ours.samples)} ms a sample"),
        Entry(NOTHING if one is None or one.rival is None else f"{times(one.ratio)} as long ({title(one.rival)})"),
        outcome(tuned) if one is None or spent is None else Entry(times(spent.seconds / one.ours.seconds)),
        Entry(NOTHING if walk is None else f"{total(walk.walk['projection'])} s"),
        Entry(f"{rest}, {times(published_ratio(case))}"),
    )  # fmt: skip


def main() -> str | None:
    """Write both, or compare them with what they should be."""
    found = book()
    wanted = {PAGE: page(found), README: readme(found, README.read_text(encoding="utf-8"))}
    if "--check" in sys.argv:
        stale = [file.name for file, words in wanted.items() if file.read_text(encoding="utf-8") != words]
        return f"{', '.join(stale)} differ from the records" if stale else None
    for file, words in wanted.items():
        file.write_text(words, encoding="utf-8")
        sys.stdout.write(f"wrote {file.name}\n")
    return None


if __name__ == "__main__":
    sys.exit(main())
