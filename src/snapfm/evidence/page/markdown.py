"""Markdown: sections and tables; of a picture its caption, as the tables beside it hold its figures."""

from __future__ import annotations

from collections.abc import Sequence

from snapfm.evidence.page.document import NOTHING, Bars, Block, Entry, Fold, Head, Section, Table, Words, table
from snapfm.evidence.text import percent


def text(title: str, sections: Sequence[Section], made: Sequence[tuple[str, str]]) -> str:
    """Write a whole page."""
    parts = [f"# {_safe(title)}"]
    for section in sections:
        parts += [f"## {_safe(section.title)}", *map(_block, section.blocks)]
    parts += ["## How this page was made", "\n".join(f"- {_safe(name)}: {_safe(words)}" for name, words in made)]
    return "\n\n".join(parts) + "\n"


def markdown(table: Table) -> str:
    """Write a table; entries that are first are bold."""
    lines = [list(table.heads), ["---"] + ["---:"] * (len(table.heads) - 1)]
    lines += [[_entry(one) for one in row] for row in table.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


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
    """Escape what Markdown would take for markup; `markdown` escapes the bars between columns."""
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
