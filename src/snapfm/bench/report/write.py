"""Writes the two pages of a report; the only file of it that does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from snapfm.bench.report.book import Book, read
from snapfm.bench.report.curves import curves
from snapfm.bench.report.document import Section
from snapfm.bench.report.errors import errors
from snapfm.bench.report.fields import fields
from snapfm.bench.report.methods import methods
from snapfm.bench.report.missing import missing
from snapfm.bench.report.nearest import nearest
from snapfm.bench.report.page import page
from snapfm.bench.report.projection import projection
from snapfm.bench.report.runtime import runtime
from snapfm.bench.report.scaling import scaling
from snapfm.bench.report.split import split
from snapfm.bench.report.summary import made, summary
from snapfm.bench.report.text import text
from snapfm.flow.storage import write_file

PAGE = "index.html"
TEXT = "report.md"
_SECTIONS = (summary, runtime, projection, errors, nearest, scaling, split, curves, fields, methods, missing)


def write(folders: Sequence[Path], out: Path) -> Book:
    """Read all folders, then write both pages; give what was read."""
    book = read(folders)
    found = sections(book)
    write_file(out / PAGE, page(book, found, made(book)).encode())
    write_file(out / TEXT, text(book, found, made(book)).encode())
    return book


def sections(book: Book) -> list[Section]:
    """Make every section that has something to show, in the order of the pages."""
    return [found for make in _SECTIONS if (found := make(book)) is not None]
