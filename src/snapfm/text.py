"""How counts, shapes, sizes and durations are written, the same in messages and pictures. Imports nothing of snapfm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def counted(number: int) -> str:
    """Write a number with spaces between groups of three digits."""
    return f"{number:,}".replace(",", " ")


def plural(number: int, noun: str, more: str | None = None) -> str:
    """Write a number with its noun: '1 row', '2 rows', '1 234 rows'; `more` is a plural that is not noun + s."""
    return f"{counted(number)} {noun if number == 1 else more or noun + 's'}"


def extents(shape: Sequence[int]) -> str:
    """Write the shape of one field: '100×100'."""
    return "×".join(map(str, shape)) or "scalar"


def one_field(shape: Sequence[int]) -> str:
    """Write one field by its shape: '100×100 field', and of one axis 'field of 6'."""
    return f"field of {extents(shape)}" if len(shape) == 1 else f"{extents(shape)} field"


def bytes_text(size: float) -> str:
    """Write a number of bytes with one decimal, such as '3.4 MB', and below a tenth of a megabyte '12.3 kB'."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def scientific(value: float) -> str:
    """Write with one decimal, such as 4.2e-08; an exact zero is '0'."""
    return "0" if value == 0 else f"{value:.1e}"


def seconds(value: float) -> str:
    """Write a duration: '12.3 s', below a tenth of a second '4.2 ms'."""
    if value == 0:
        return "0 s"
    return f"{value:.1f} s" if value >= 0.1 else f"{1e3 * value:.1f} ms"


def meant(name: object, known: Iterable[str]) -> str:
    """Return 'Did you mean …? ' for a name close to one that is known, else nothing."""
    near = get_close_matches(str(name), list(known), n=1)
    return f"Did you mean {near[0]!r}? " if near else ""
