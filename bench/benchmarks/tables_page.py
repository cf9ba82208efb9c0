"""`python -m benchmarks.tables_page`: write docs/tables.md and the table of the README from the runs of `snapfm bench`.

A run is the folder of `snapfm bench SUITE --out bench/runs/SUITE`: its records and fields are committed, its inputs are not.
`--check` writes nothing and fails if a page differs from the records.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.page import DOCS, ROOT, main
from snapfm.text import NOTHING, spread, times, total, two
from snapfm_bench import published, record
from snapfm_bench.pages.document import Entry, Table, markdown, table
from snapfm_bench.record import RECORDS
from snapfm_bench.suites.projection.report.book import Book, Case, Contest, Totals, contest, read, title
from snapfm_bench.suites.projection.report.pages import ratio_of, text
from snapfm_bench.suites.projection.report.walks import known, other_grid, own_rest, published_ratio, published_rest
from snapfm_bench.suites.projection.suite import TUNED, Cell, Kind

RUNS, README = ROOT / "bench" / "runs", ROOT / "README.md"
SUITES = ("paper", "scaling-constraints", "scaling-samples", "scaling-grid")
BEGIN, END = "<!-- table: python -m benchmarks.tables_page -->", "<!-- end of table -->"


def book(runs: Path = RUNS) -> Book:
    """Read all runs of a folder, by default the committed ones."""
    return read([runs / suite for suite in SUITES if _held(runs / suite / RECORDS)])


def _held(file: Path) -> bool:
    """Return whether a run has at least one finished cell; one that failed before is missing on the pages."""
    return file.is_file() and bool(record.read(file, dict, Cell)[1])


def wanted(runs: Path = RUNS) -> dict[Path, str]:
    """Write the texts of docs/tables.md and README.md from the runs of a folder."""
    found = book(runs)
    return {DOCS / "tables.md": page(found), README: readme(found, README.read_text(encoding="utf-8"))}


def page(found: Book) -> str:
    """Write the report of all runs with a line on where it comes from."""
    head, _, rest = text(found).partition("\n\n")
    note = (
        "Written by `python -m benchmarks.tables_page` from the records in `bench/runs`; not edited by hand. For the same "
        "page with pictures: `snapfm report bench/runs/* --out FOLDER`. To run everything again: `make tables`; to run one "
        "cell with other settings: [how to disagree with us](disagree.md)."
    )
    missing = [suite for suite in SUITES if suite not in {run.name for run in found.runs}]
    if missing:
        note += f" Missing, because they have no records: {', '.join(missing)}."
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
        "problem", "samples", "rows", "projection here", "strongest rival", "tuned Ipopt", "walk of 100 steps minus network",
        f"{published.BEST}, published",
    )  # fmt: skip
    single = [case for case in found.cases if case.axis is None]
    return table(heads, (_row(case, _widest(case, single)) for case in single if known(case)))


def _samples(case: Case) -> int:
    return max(cell.samples for cell in case.cells)


def _widest(case: Case, cases: list[Case]) -> Case:
    """Return the case of the same problem and size with the most samples: a published walk may have fewer than the others."""
    sizes = {cell.unknowns for cell in case.cells}
    same = [one for one in cases if one.problem == case.problem and {cell.unknowns for cell in one.cells} <= sizes]
    return max(same, key=_samples, default=case)


def _row(case: Case, projected: Case) -> tuple[str | Entry, ...]:
    """Write the walk of a case, and the projections of the same problem with the most samples."""
    one, some = contest(projected, Kind.PROJECTION), next(cell for cell in projected.cells if cell.rows)
    here, theirs = own_rest(case), published_rest(case)
    fewer = f"{_samples(case)} samples" if _samples(case) != some.samples else ""
    rest = NOTHING if theirs is None else f"{total(theirs)} s"
    return (
        case.title,
        str(some.samples),
        f"{some.rows:,}",
        NOTHING if one is None else _milliseconds(one.ours),
        NOTHING if one is None else _rival(one, one.rival, named=True),
        NOTHING if one is None else _rival(one, TUNED, named=False),
        NOTHING if here is None else Entry(f"{total(here)} s", fewer),
        Entry(f"{rest}, {times(published_ratio(case))}", other_grid(case)),
    )


def _milliseconds(totals: Totals) -> Entry:
    unit = 1e3 / totals.samples
    return Entry(f"{two(unit * totals.seconds)} ms per sample", spread(unit * totals.least, unit * totals.most))


def _rival(found: Contest, method: str | None, named: bool) -> Entry:
    """Write a rival's time as a multiple of ours, its name unless the column has it, and the samples it loses."""
    written = ratio_of(found, method)
    if method is None or found.ratio(method) is None:
        return written
    parts = [title(method)] if named else []
    return Entry(f"{written.words} as long", "; ".join([*parts, written.detail] if written.detail else parts))


if __name__ == "__main__":
    sys.exit(main(wanted()))
