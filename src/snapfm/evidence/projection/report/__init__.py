"""The report: one HTML page and one Markdown page from the records of one or several runs of `snapfm bench`.

book (folders to cases) → one function per section, which compare with compare and return blocks of the page kit → two files.
Reads records, kept fields and published figures; runs nothing, and writes no time of day.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from snapfm.evidence.page import html, markdown
from snapfm.evidence.page.document import Section
from snapfm.evidence.projection.report.answers import errors, nearest, projection
from snapfm.evidence.projection.report.book import Book, read
from snapfm.evidence.projection.report.growth import curves, scaling
from snapfm.evidence.projection.report.overview import made, methods, missing, summary
from snapfm.evidence.projection.report.pictures import fields
from snapfm.evidence.projection.report.walks import runtime, split
from snapfm.flow.storage import write_file

PAGE, TEXT = "index.html", "report.md"
_SECTIONS = (summary, runtime, projection, errors, nearest, scaling, split, curves, fields, methods, missing)
_NOTE = """\
Every measured figure is taken from <code>records.jsonl</code> of the folders the page was made from, every published one
from <code>snapfm.evidence.published</code>. Measure with <code>snapfm bench SUITE --out DIR</code>, write the page with
<code>snapfm report DIR --out FOLDER</code>."""


def write(folders: Sequence[Path], out: Path) -> Book:
    """Read all folders, then write both pages; give what was read."""
    book = read(folders)
    found, title = sections(book), heading(book)
    page = html.page(
        title, "benchmark", title, html.contents(found), found, made(book), _NOTE, ("figures.css", "report.css")
    )
    write_file(out / PAGE, page.encode())
    write_file(out / TEXT, text(book).encode())
    return book


def text(book: Book) -> str:
    """Write the Markdown page."""
    return markdown.text(heading(book), sections(book), made(book))


def sections(book: Book) -> list[Section]:
    """Make every section that has something to show, in the order of the pages."""
    return [found for make in _SECTIONS if (found := make(book)) is not None]


def heading(book: Book) -> str:
    """Name the page after its suites."""
    return "Benchmark: " + ", ".join(dict.fromkeys(str(run.suite.get("title") or run.name) for run in book.runs))
