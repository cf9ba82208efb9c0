"""What a page consists of: sections of sentences, tables, pictures and bars; and its Markdown form.

Markdown has the caption of a picture only, as the tables beside it hold its figures. html writes the HTML form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import rich.markup
import rich.table

from snapfm_bench.text import NOTHING, percent

NOT_YET = "not run yet"
_LONGEST_FIGURE = 48  # characters of an entry with its detail in brackets; longer ones are sentences
PUBLISHED = ", published"  # how the name of a row of published figures ends

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One entry of a table, with a smaller detail beside it; `first` marks the best."""

    words: str
    detail: str = ""
    first: bool = False


@dataclass(frozen=True)
class Table:
    """Heads and rows; the first entry of a row is its name."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]


def table(heads: Iterable[str], rows: Iterable[Iterable[str | Entry]]) -> Table:
    """Make a table; plain strings become entries, and short rows are filled with NOTHING."""
    names = tuple(heads)
    made = (tuple(one if isinstance(one, Entry) else Entry(one) for one in row) for row in rows)
    return Table(names, tuple((*row, *[Entry(NOTHING)] * (len(names) - len(row))) for row in made))


def columns(records: Iterable[T], *columns: tuple[str, Callable[[T], str | Entry]]) -> Table:
    """Make a table with one row per record; a column is its head and a function that writes its entry."""
    return table((head for head, _ in columns), ([write(one) for _, write in columns] for one in records))


@dataclass(frozen=True)
class Words:
    """A paragraph of plain text with *emphasis*; `lead` ones are larger, `note` ones smaller."""

    text: str
    lead: bool = False
    note: bool = False


@dataclass(frozen=True)
class Head:
    """A heading inside a section."""

    text: str


@dataclass(frozen=True)
class Picture:
    """An <img> with its caption; neighbors are side by side where there is room, wide ones scroll."""

    body: str
    caption: str
    aside: str = ""  # smaller, after the caption
    wide: bool = False
    look: str = "drawn"  # its class in the style sheet


@dataclass(frozen=True)
class Bar:
    """One bar: its name, its length in words, and its parts as (name, seconds)."""

    name: str
    length: str
    parts: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Bars:
    """Bars of full width each, split by the shares of their parts; the part named `quiet` is gray."""

    bars: tuple[Bar, ...]
    quiet: str = ""


@dataclass(frozen=True)
class Fold:
    """A heading whose blocks are hidden until it is opened."""

    title: str
    blocks: tuple[Block, ...]


Block: TypeAlias = "Words | Head | Picture | Bars | Fold | Table"


@dataclass(frozen=True)
class Section:
    """A heading and its blocks."""

    title: str
    blocks: tuple[Block, ...]


def titled(title: str, blocks: tuple[Block, ...], folded: bool) -> tuple[Block, ...]:
    """Put blocks under their own heading, or fold them away."""
    return (Fold(title, blocks),) if folded else (Head(title), *blocks)


def markdown_page(title: str, sections: Sequence[Section], made: Sequence[tuple[str, str]]) -> str:
    """Write a page as Markdown."""
    parts = [f"# {_safe(title)}"]
    for section in sections:
        parts += [f"## {_safe(section.title)}", *map(_block, section.blocks)]
    parts += ["## How this page was made", "\n".join(f"- {_safe(name)}: {_safe(words)}" for name, words in made)]
    return "\n\n".join(parts) + "\n"


def markdown(table: Table) -> str:
    """Write a table as Markdown, figures right-aligned; entries that are first are bold."""
    rows = [[_entry(one) for one in row] for row in table.rows]
    columns = [[row[place] for row in rows if place < len(row)] for place in range(1, len(table.heads))]
    lines = [list(table.heads), ["---", *("---:" if _figures(column) else "---" for column in columns)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _figures(column: list[str]) -> bool:
    """Tell a column of figures from one of words: some entry begins with a figure, and none is a sentence."""
    begins = any(entry.lstrip("*-")[:1].isdigit() for entry in column)
    return begins and max(map(len, column)) <= _LONGEST_FIGURE


def terminal(
    title: str | None, heads: Iterable[str], rows: Iterable[Iterable[str | Entry]], *, box: bool = False
) -> rich.table.Table:
    """Make a table for the terminal: names left-aligned and never wrapped, figures right-aligned, the best in bold."""
    table = rich.table.Table(title=title, title_justify="left", title_style="bold", **({} if box else {"box": None}))  # type: ignore[arg-type]
    for place, head in enumerate(heads):
        if place == 0:
            table.add_column(rich.markup.escape(head), no_wrap=True)
        else:
            table.add_column(rich.markup.escape(head), justify="right", overflow="fold")
    for row in rows:
        table.add_row(*map(_marked, row))
    return table


def _block(block: Block) -> str:
    if isinstance(block, Words):
        return _safe(block.text, keep="*")
    if isinstance(block, Head):
        return f"### {_safe(block.text)}"
    if isinstance(block, Fold):
        return "\n\n".join([f"### {_safe(block.title)}", *map(_block, block.blocks)])
    if isinstance(block, Bars | Table):
        return markdown(_escaped(_bar_table(block) if isinstance(block, Bars) else block))
    return f"*Picture on the HTML page: {_safe(block.caption)}.*"


def _bar_table(bars: Bars) -> Table:
    """Tabulate the shares of bars."""
    names = list(dict.fromkeys(name for bar in bars.bars for name, _ in bar.parts))
    rows = []
    for bar in bars.bars:
        parts, whole = dict(bar.parts), sum(seconds for _, seconds in bar.parts)
        shares = [percent(parts[name] / whole) if name in parts else NOTHING for name in names]
        rows.append((bar.name, bar.length, *shares))
    return table(("what", "time", *names), rows)


def _escaped(table: Table) -> Table:
    """Escape the characters that are Markdown markup; `markdown` escapes the bars between columns."""
    rows = tuple(tuple(Entry(_safe(one.words), _safe(one.detail), one.first) for one in row) for row in table.rows)
    return Table(tuple(map(_safe, table.heads)), rows)


def _entry(one: Entry) -> str:
    words, detail = (part.replace("|", "\\|").replace("\n", " ") for part in (one.words, one.detail))
    words = f"**{words}**" if one.first else words
    return f"{words} ({detail})" if detail else words


def _safe(words: str, keep: str = "") -> str:
    for mark, instead in (("&", "&amp;"), ("<", "&lt;"), ("*", "\\*"), ("`", "\\`"), ("[", "\\[")):
        words = words if mark in keep else words.replace(mark, instead)
    return words.replace("\n", " ")


def _marked(one: str | Entry) -> str:
    entry = Entry(one) if isinstance(one, str) else one
    return f"[bold cyan]{rich.markup.escape(entry.words)}[/]" if entry.first else rich.markup.escape(entry.words)
