"""report.md: the sections as Markdown; of a picture its caption, as the tables beside it hold its figures."""

from __future__ import annotations

from collections.abc import Sequence

from snapfm.bench.report.book import Book
from snapfm.bench.report.document import NOTHING, Bars, Block, Entry, Fold, Head, Section, Table, Words
from snapfm.demo.numerals import percent
from snapfm.quality.text import markdown


def text(book: Book, sections: Sequence[Section], made: Sequence[tuple[str, str]]) -> str:
    """Write the whole page."""
    parts = [f"# {_safe(heading(book))}"]
    for section in sections:
        parts.append(f"## {_safe(section.title)}")
        parts += map(_block, section.blocks)
    parts += ["## How this page was made", "\n".join(f"- {_safe(name)}: {_safe(words)}" for name, words in made)]
    return "\n\n".join(parts) + "\n"


def heading(book: Book) -> str:
    """Name the page after its suites."""
    return "Benchmark: " + ", ".join(dict.fromkeys(str(run.suite.get("title") or run.name) for run in book.runs))


def _block(block: Block) -> str:
    if isinstance(block, Words):
        return _safe(block.text, keep="*")
    if isinstance(block, Head):
        return f"### {_safe(block.text)}"
    if isinstance(block, Bars):
        return markdown(_escaped(_bar_table(block)))
    if isinstance(block, Table):
        return markdown(_escaped(block))
    if isinstance(block, Fold):
        return "\n\n".join([f"### {_safe(block.title)}", *map(_block, block.blocks)])
    return f"*Picture on the HTML page: {_safe(block.caption)}.*"


def _bar_table(bars: Bars) -> Table:
    """Tabulate the shares of bars."""
    names = list(dict.fromkeys(name for bar in bars.bars for name, _ in bar.parts))
    rows = []
    for bar in bars.bars:
        parts, whole = dict(bar.parts), sum(seconds for _, seconds in bar.parts)
        shares = [Entry(percent(parts[name] / whole) if name in parts else NOTHING) for name in names]
        rows.append((Entry(bar.name), Entry(bar.length), *shares))
    return Table(("what", "time", *names), tuple(rows))


def _escaped(table: Table) -> Table:
    """Escape what Markdown would take for markup; bars between columns are escaped by the writer of tables."""
    rows = tuple(tuple(Entry(_safe(one.words), _safe(one.detail), one.first) for one in row) for row in table.rows)
    return Table(tuple(_safe(head) for head in table.heads), rows)


def _safe(words: str, keep: str = "") -> str:
    for mark, instead in (("&", "&amp;"), ("<", "&lt;"), ("*", "\\*"), ("`", "\\`"), ("[", "\\[")):
        words = words if mark in keep else words.replace(mark, instead)
    return words.replace("\n", " ")
