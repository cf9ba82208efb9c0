"""Every cell without a figure, with what became of it and why."""

from __future__ import annotations

from snapfm.bench.record import Cell, State
from snapfm.bench.report.book import Book, Case
from snapfm.bench.report.document import NOT_YET, NOTHING, Entry, Section, Table, Words
from snapfm.bench.report.figures import short
from snapfm.bench.report.titles import title

_MEANINGS = {
    State.DNF: "used up its time budget",
    State.FAILED: "raised, or its process died",
    State.ABSENT: "the package behind it is not installed",
    State.REFUSED: "cannot take these laws",
}
_PENDING = "the suite names it, the records do not hold it"


def missing(book: Book) -> Section:
    """List the cells, or say that there are none."""
    cells = [(case, cell) for case in book.cases for cell in case.cells if cell.state is not State.DONE]
    if not cells and not book.pending:
        return Section("Cells without a figure", (Words("None: every cell has one."),))
    meanings = "; ".join(f"{state}: {words}" for state, words in _MEANINGS.items())
    heads = ("case", "method", "what", "state", "spent, s", "why")
    rows = [_row(*one) for one in cells]
    rows += [
        (Entry(case), Entry(title(method)), Entry(kind), Entry(NOT_YET), Entry(NOTHING), Entry(_PENDING))
        for case, method, kind in book.pending
    ]
    return Section("Cells without a figure", (Words(f"{meanings}."), Table(heads, tuple(rows))))


def _row(case: Case, cell: Cell) -> tuple[Entry, ...]:
    spent = short(cell.seconds) if cell.seconds else NOTHING
    return (
        Entry(case.title),
        Entry(title(cell.method)),
        Entry(str(cell.kind)),
        Entry(str(cell.state)),
        Entry(spent),
        Entry(cell.why or "no reason was recorded"),
    )
