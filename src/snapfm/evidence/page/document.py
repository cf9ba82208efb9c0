"""What a page consists of: sections of sentences, tables, pictures and bars, the same for HTML and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

NOTHING = "–"
NOT_YET = "not run yet"
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
    """An inline <svg> or <img> with its caption; neighbors are side by side where there is room, wide ones scroll."""

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
