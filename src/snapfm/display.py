"""Sheet: what an object shows of itself, as text in a terminal and as a table in a notebook. Imports text only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from html import escape
from textwrap import wrap
from typing import Any

from snapfm.text import extents

WIDTH = 80  # columns of a terminal that nobody has widened
_LEAST = 8  # letters of a name that are shown, however narrow the table has to be
_CELL = 'style="text-align:{}; padding:2px 12px 2px 0"'


@dataclass(frozen=True)
class Sheet:
    """A title, a table whose columns hold figures except those listed in `words`, and sentences below it."""

    title: str
    heads: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    lines: Sequence[str] = ()
    words: frozenset[int] = frozenset({0})

    def text(self) -> str:
        """Write it in WIDTH columns. Long sentences are wrapped, and long names in the first column cut."""
        lines = [*_wrapped(self.title), *self._table()]
        for line in self.lines:
            lines += _wrapped(line)
        return "\n".join(lines)

    def html(self) -> str:
        """Write it as HTML that any notebook shows; all text is escaped."""
        parts = [f"<p><b>{escape(self.title)}</b></p>"]
        if self.rows:
            head = "".join(f"<th {self._cell(i)}>{escape(one)}</th>" for i, one in enumerate(self.heads))
            body = "".join(
                "<tr>" + "".join(f"<td {self._cell(i)}>{escape(one)}</td>" for i, one in enumerate(row)) + "</tr>"
                for row in self.rows
            )
            parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
        if self.lines:
            parts.append(f"<p>{'<br>'.join(escape(line.strip()) for line in self.lines)}</p>")
        return f"<div>{''.join(parts)}</div>"

    def _cell(self, column: int) -> str:
        return _CELL.format("left" if column in self.words else "right")

    def _table(self) -> list[str]:
        if not self.rows:
            return []
        every = (self.heads, *self.rows)
        widths = [max(len(row[i]) for row in every) for i in range(len(self.heads))]
        room = WIDTH - sum(width + 2 for width in widths[1:]) - 2
        widths[0] = min(widths[0], max(room, _LEAST))
        found = []
        for row in every:
            cut = row[0] if len(row[0]) <= widths[0] else f"{row[0][: widths[0] - 1]}…"
            cells = [
                cell.ljust(w) if i in self.words else cell.rjust(w)
                for i, (cell, w) in enumerate(zip((cut, *row[1:]), widths))
            ]
            found.append("  " + "  ".join(cells).rstrip())
        return found


def brief(one: Any) -> str:
    """Represent a dataclass of tensors in a line: tensors and arrays by their shapes, other values as they are."""
    shown = ", ".join(f"{field.name}={_brief(getattr(one, field.name))}" for field in fields(one) if field.repr)
    return f"{type(one).__name__}({shown})"


def _brief(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else f"<{extents(shape)}, {str(value.dtype).removeprefix('torch.')}>"


def _wrapped(line: str) -> list[str]:
    return wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
