"""index.html: the sections on one self-contained page, in the looks of the demonstration and of sample quality.

Words of the frame are in page.html, looks in their page.css and the one beside it. Nothing is loaded and no script runs; whatever
is filled in is escaped here, but for pictures, which are SVG of svg.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from itertools import groupby
from string import Template

from snapfm.bench.record import State
from snapfm.bench.report.book import Book
from snapfm.bench.report.document import (
    NOTHING,
    PUBLISHED,
    Bar,
    Bars,
    Block,
    Entry,
    Fold,
    Head,
    Picture,
    Section,
    Table,
    Words,
)
from snapfm.bench.report.svg import COLORS
from snapfm.bench.report.text import heading
from snapfm.demo.numerals import percent

_NO_FIGURE = {NOTHING, *State}  # what stands where a figure would
_GRAY = "#9aa3ad"  # the network's, as in the demonstration
_VISIBLE = 5e-4  # parts below are 0.0 % in words, and less than a pixel
_LONG = 30  # letters from which an entry is a sentence, not a figure


def page(book: Book, sections: Sequence[Section], made: Sequence[tuple[str, str]]) -> str:
    """Fill the page."""
    styles = (("snapfm.demo", "page.css"), ("snapfm.quality", "page.css"), ("snapfm.bench.report", "page.css"))
    return Template(_resource("snapfm.bench.report", "page.html")).substitute(
        style="".join(_resource(*style) for style in styles),
        title=escape(heading(book)),
        contents="\n".join(
            f'<li><a href="#s{place}">{escape(section.title)}</a></li>' for place, section in enumerate(sections)
        ),
        sections="\n".join(_section(section, place) for place, section in enumerate(sections)),
        made="\n".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in made),
    )


def _section(section: Section, place: int) -> str:
    return "\n".join(
        [f'<section id="s{place}">\n<h2>{escape(section.title)}</h2>', *_blocks(section.blocks), "</section>"]
    )


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    """Write blocks one after the other; neighboring pictures share a row where there is room."""
    for pictures, run in groupby(blocks, key=lambda block: isinstance(block, Picture)):
        written = [_block(block) for block in run]
        yield "\n".join(['<div class="pair">', *written, "</div>"] if pictures and len(written) > 1 else written)


def _block(block: Block) -> str:
    if isinstance(block, Words):
        style = ' class="lead"' if block.lead else ' class="note"' if block.note else ""
        return f"<p{style}>{_emphasized(block.text)}</p>"
    if isinstance(block, Head):
        return f"<h3>{escape(block.text)}</h3>"
    if isinstance(block, Picture):
        figure = f'<figure class="drawn"><figcaption>{escape(block.caption)}</figcaption>{block.svg}</figure>'
        return f'<div class="scroll" tabindex="0">{figure}</div>' if block.wide else figure
    if isinstance(block, Fold):
        inside = "\n".join(_blocks(block.blocks))
        return f"<details><summary>{escape(block.title)}</summary>\n{inside}\n</details>"
    return _bars(block) if isinstance(block, Bars) else _table(block)


def _table(table: Table) -> str:
    sides = [_side(table, place) for place in range(len(table.heads))]
    heads = "".join(f'<th scope="col"{side}>{escape(head)}</th>' for head, side in zip(table.heads, sides))
    lines = ['<div class="scroll" tabindex="0"><table class="figures">', f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
    for row in table.rows:
        quiet = ' class="quiet"' if row[0].words.endswith(PUBLISHED) else ""
        entries = [f"<td{side}>{_entry(one)}</td>" for one, side in zip(row, sides)]
        lines.append(f"<tr{quiet}>{''.join(entries)}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def _entry(one: Entry) -> str:
    words = f"<b>{escape(one.words)}</b>" if one.first else escape(one.words)
    return f"{words}<small>{escape(one.detail)}</small>" if one.detail else words


def _side(table: Table, place: int) -> str:
    """Set figures to the right, and let sentences wrap."""
    if place == 0:
        return ""
    entries = [row[place].words for row in table.rows]
    if any(len(words) > _LONG for words in entries):
        return ' class="sentence"'
    figures = any(words[:1].isdigit() for words in entries) or all(words in _NO_FIGURE for words in entries)
    return ' class="right"' if figures else ""


def _bars(bars: Bars) -> str:
    names = list(dict.fromkeys(name for bar in bars.bars for name, _ in bar.parts))
    loud = [name for name in names if name != bars.quiet]
    colors = {bars.quiet: _GRAY} | {name: COLORS[place % len(COLORS)] for place, name in enumerate(loud)}
    key = " &nbsp; ".join(f'<i class="key" style="background:{colors[name]}"></i>{escape(name)}' for name in names)
    return "\n".join(
        ['<div class="cost">', f'<p class="note">{key}</p>', *(_bar(bar, colors) for bar in bars.bars), "</div>"]
    )


def _bar(bar: Bar, colors: dict[str, str]) -> str:
    whole = sum(seconds for _, seconds in bar.parts)
    shares = [(name, seconds / whole) for name, seconds in bar.parts if seconds / whole >= _VISIBLE]
    words = f"{bar.length}: " + ", ".join(f"{name} {percent(share)}" for name, share in shares)
    parts = "".join(f'<i style="width:{100 * share:.2f}%;background:{colors[name]}"></i>' for name, share in shares)
    what = f"<b>{escape(bar.name)}</b><span>{escape(words)}</span>"
    return f'<div class="row"><div class="what">{what}</div><div class="bar">{parts}</div></div>'


def _emphasized(words: str) -> str:
    """Escape a sentence and turn its *emphasis* into tags."""
    parts = escape(words).split("*")
    if len(parts) % 2 == 0:  # an odd star is a star
        return escape(words)
    return "".join(f"<em>{part}</em>" if place % 2 else part for place, part in enumerate(parts))


def _resource(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
