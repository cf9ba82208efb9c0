"""Constraint errors by law: mean over samples of ‖R‖₂, by the judge, with the published ones under them."""

from __future__ import annotations

from snapfm.bench import published
from snapfm.bench.record import Cell, Kind, State, Verdict
from snapfm.bench.report.book import Book, Case
from snapfm.bench.report.document import NOTHING, PUBLISHED, Block, Entry, Section, Table, Words, titled
from snapfm.bench.report.figures import home, outcome, size
from snapfm.bench.report.titles import title

_ABOUT = (
    "Mean over all samples of ‖R‖₂ of each law, in float64 and in the law's own units; under it the worst single row of any "
    "sample. Of the fields a walk ends with; for a case without walks, of the answers to its last input. Samples that did not "
    "converge count too. *Published* errors are of the paper's own samples."
)


def errors(book: Book) -> Section | None:
    """Write one table per case whose answers were judged by law."""
    blocks: list[Block] = [Words(_ABOUT)]
    for case in book.cases:
        if laws(case):
            blocks += titled(case.title, (case_table(case),), folded=case.axis is not None)
    return Section("Constraint errors", tuple(blocks)) if len(blocks) > 1 else None


def laws(case: Case) -> list[str]:
    """Name the laws a case was judged by, and those published for it."""
    judged = [law.law for cell in _cells(case).values() if (found := final(cell)) for law in found.laws]
    given = [law for errors in published.ERRORS.get(case.published or "", {}).values() for law in errors]
    return list(dict.fromkeys([*judged, *given])) if judged else []


def case_table(case: Case) -> Table:
    """Tabulate the methods of one case, laws across."""
    names = laws(case)
    rows = [_row(method, cell, names) for method, cell in _cells(case).items()]
    for column, errors in published.ERRORS.get(case.published or "", {}).items():
        entries = [Entry(size(errors.get(name))) for name in names]
        rows.append((Entry(f"{column}{PUBLISHED}"), *entries, Entry(NOTHING)))
    return Table(("method", *names, "home"), tuple(rows))


def final(cell: Cell) -> Verdict | None:
    """Give the verdict on what a cell ends with."""
    if cell.state is not State.DONE:
        return None
    return cell.verdict if cell.kind is Kind.WALK else cell.turns[-1].verdict if cell.turns else None


def _cells(case: Case) -> dict[str, Cell]:
    return case.of(Kind.WALK) or case.of(Kind.PROJECTION)


def _row(method: str, cell: Cell, names: list[str]) -> tuple[Entry, ...]:
    verdict = final(cell)
    if verdict is None:
        return Entry(title(method)), outcome(cell), *[Entry(NOTHING)] * len(names)
    by_law = {law.law: law for law in verdict.laws}
    entries = [
        Entry(_error(by_law[name].error), f"row {_error(by_law[name].worst_row)}") if name in by_law else Entry(NOTHING)
        for name in names
    ]
    return Entry(title(method)), *entries, Entry(home(verdict))


def _error(value: float | None) -> str:
    """Write an error; the judge leaves out only what is not finite."""
    return "not finite" if value is None else size(value)
