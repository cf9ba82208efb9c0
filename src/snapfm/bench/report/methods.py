"""The methods of the records in words: what each is, how tolerances map to it, and which published column it stands for."""

from __future__ import annotations

from snapfm.bench.report.book import Book
from snapfm.bench.report.document import NOTHING, Entry, Section, Table
from snapfm.bench.report.titles import about


def methods(book: Book) -> Section:
    """Tabulate the methods, ours first."""
    rows = []
    for name in dict.fromkeys(cell.method for cell in book.cells):
        words = about(name)
        rows.append((Entry(words.title), Entry(name), Entry(words.published or NOTHING), Entry(words.about or NOTHING)))
    heads = ("method", "in suites and records", "stands for the published", "what it is, and how tolerances map to it")
    return Section("Methods", (Table(heads, tuple(rows)),))
