"""What the report consists of: sections of sentences, tables, pictures and bars, the same for HTML and Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

# The shapes of tables are those of sample quality; the rest of the report has them from here.
from snapfm.quality.tables import NOT_YET, NOTHING, PUBLISHED, Entry, Table

__all__ = [
    "NOTHING", "NOT_YET", "PUBLISHED", "Bar", "Bars", "Block", "Entry", "Fold", "Head", "Picture", "Section", "Table", "Words",
    "titled",
]  # fmt: skip


@dataclass(frozen=True)
class Words:
    """A paragraph of plain text; `lead` ones are larger, `note` ones smaller."""

    text: str
    lead: bool = False
    note: bool = False


@dataclass(frozen=True)
class Head:
    """A heading inside a section."""

    text: str


@dataclass(frozen=True)
class Picture:
    """An inline SVG with what it shows in words; neighbors stand side by side where there is room."""

    svg: str
    caption: str
    wide: bool = False


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
    """A heading whose blocks are folded away until they are asked for: detail behind a figure shown elsewhere."""

    title: str
    blocks: tuple[Block, ...]


Block: TypeAlias = "Words | Head | Picture | Bars | Fold | Table"


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it."""

    title: str
    blocks: tuple[Block, ...]


def titled(title: str, blocks: tuple[Block, ...], folded: bool) -> tuple[Block, ...]:
    """Put blocks under a heading of their own, or fold them away."""
    return (Fold(title, blocks),) if folded else (Head(title), *blocks)
