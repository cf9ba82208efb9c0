"""Self-contained HTML: nothing is loaded and no script runs. All text is escaped here, except pictures.

The frame of a page is page.html; styles are page.css (all pages), figures.css (tables) and report.css (long reports).
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from itertools import groupby
from string import Template

from snapfm.plot.canvas import COLORS
from snapfm_bench.pages import document as doc
from snapfm_bench.record import CellState
from snapfm_bench.text import NOTHING, percent

_NO_FIGURE = {NOTHING, *CellState}  # what is shown instead of a figure
_GRAY = "#9aa3ad"  # of the network
_VISIBLE = 5e-4  # parts below are 0.0 % in words, and less than a pixel
_LONG = 30  # letters from which an entry is a sentence, not a figure
_HERE = "snapfm_bench.pages"


def page(
    name: str, kind: str, title: str, head: str, sections: Sequence[doc.Section], made: Sequence[tuple[str, str]], note: str,
    styles: Sequence[str],
) -> str:  # fmt: skip
    """Fill the frame: `head` is below the title and `note` at the end, both HTML; `made` lists how it was made."""
    return Template(resource("page.html")).substitute(
        style="".join(resource(style) for style in ("page.css", *styles)),
        name=escape(name),
        kind=escape(kind),
        title=escape(title),
        head=head,
        sections="\n".join(_section(section, place) for place, section in enumerate(sections)),
        made=definitions(made),
        note=note,
    )


def resource(name: str, package: str = _HERE) -> str:
    """Read a file that ships beside the code."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def contents(sections: Sequence[doc.Section]) -> str:
    """List the sections as links."""
    links = (f'<li><a href="#s{place}">{escape(one.title)}</a></li>' for place, one in enumerate(sections))
    return "\n".join(['<nav><ul class="contents">', *links, "</ul></nav>"])


def definitions(made: Sequence[tuple[str, str]]) -> str:
    """List names with what they mean."""
    return "\n".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in made)


def image(png: bytes, description: str) -> str:
    """Embed a PNG."""
    source = "data:image/png;base64," + base64.b64encode(png).decode("ascii")
    return f'<img src="{source}" alt="{escape(description)}">'


def paragraph(words: doc.Words) -> str:
    """Write a paragraph."""
    style = ' class="lead"' if words.lead else ' class="note"' if words.note else ""
    return f"<p{style}>{_emphasized(words.text)}</p>"


def _section(section: doc.Section, place: int) -> str:
    return "\n".join(
        [f'<section id="s{place}">\n<h2>{escape(section.title)}</h2>', *_blocks(section.blocks), "</section>"]
    )


def _blocks(blocks: Sequence[doc.Block]) -> Iterator[str]:
    """Write blocks one after the other; neighboring pictures share a row where there is room."""
    for pictures, run in groupby(blocks, key=lambda block: isinstance(block, doc.Picture)):
        written = [block(one) for one in run]
        yield "\n".join(['<div class="pair">', *written, "</div>"] if pictures and len(written) > 1 else written)


def block(one: doc.Block) -> str:
    """Write one block."""
    if isinstance(one, doc.Words):
        return paragraph(one)
    if isinstance(one, doc.Head):
        return f"<h3>{escape(one.text)}</h3>"
    if isinstance(one, doc.Picture):
        aside = f" <span>· {escape(one.aside)}</span>" if one.aside else ""
        caption = f"<figcaption>{escape(one.caption)}{aside}</figcaption>"
        figure = f'<figure class="{one.look}">{caption}{one.body}</figure>'
        return f'<div class="scroll" tabindex="0">{figure}</div>' if one.wide else figure
    if isinstance(one, doc.Fold):
        inside = "\n".join(_blocks(one.blocks))
        return f"<details><summary>{escape(one.title)}</summary>\n{inside}\n</details>"
    return _bars(one) if isinstance(one, doc.Bars) else _table(one)


def _table(table: doc.Table) -> str:
    sides = [_side(table, place) for place in range(len(table.heads))]
    heads = "".join(f'<th scope="col"{side}>{escape(head)}</th>' for head, side in zip(table.heads, sides))
    lines = ['<div class="scroll" tabindex="0"><table class="figures">', f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
    for row in table.rows:
        quiet = ' class="quiet"' if row[0].words.endswith(doc.PUBLISHED) else ""
        entries = [f"<td{side}>{_entry(one)}</td>" for one, side in zip(row, sides)]
        lines.append(f"<tr{quiet}>{''.join(entries)}</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def _entry(one: doc.Entry) -> str:
    words = f"<b>{escape(one.words)}</b>" if one.first else escape(one.words)
    return f"{words}<small>{escape(one.detail)}</small>" if one.detail else words


def _side(table: doc.Table, place: int) -> str:
    """Align figures to the right, and let sentences wrap."""
    if place == 0:
        return ""
    entries = [row[place].words for row in table.rows]
    if any(len(words) > _LONG for words in entries):
        return ' class="sentence"'
    figures = any(words[:1].isdigit() for words in entries) or all(words in _NO_FIGURE for words in entries)
    return ' class="right"' if figures else ""


def _bars(bars: doc.Bars) -> str:
    names = list(dict.fromkeys(name for bar in bars.bars for name, _ in bar.parts))
    loud = [name for name in names if name != bars.quiet]
    colors = {bars.quiet: _GRAY} | {name: COLORS[place % len(COLORS)] for place, name in enumerate(loud)}
    key = " &nbsp; ".join(f'<i class="key" style="background:{colors[name]}"></i>{escape(name)}' for name in names)
    return "\n".join(
        ['<div class="cost">', f'<p class="note">{key}</p>', *(_bar(bar, colors) for bar in bars.bars), "</div>"]
    )


def _bar(bar: doc.Bar, colors: Mapping[str, str]) -> str:
    whole = sum(seconds for _, seconds in bar.parts) or 1.0
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
