"""How figures, counts and shapes are written, the same in messages, in pictures and on pages. Imports nothing of snapfm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from math import floor, log10

NOTHING = "–"  # in place of a missing figure
_PLAIN = 1e-2  # numbers from here to its inverse are written without an exponent


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


def percent(share: float) -> str:
    """Write a share of one, such as '3.4 %'."""
    return f"{100 * share:.1f} %"


def short(value: float) -> str:
    """Write at least three digits without an exponent: 1,234; 56.7; 8.90; 0.123."""
    for least, digits in ((100.0, 0), (10.0, 1), (1.0, 2)):
        if round(value, digits) >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.3g}"


def total(seconds: float | None) -> str:
    """Write seconds of a whole run as the paper does, with two decimals; short ones with three digits."""
    if seconds is None:
        return NOTHING
    return f"{seconds:,.2f}" if seconds >= 1.0 else short(seconds)


def two(value: float) -> str:
    """Write two digits without an exponent: 1,200; 56; 8.9; 0.12."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.1e}")
    return f"{rounded:,.{max(0, 1 - floor(log10(abs(rounded))))}f}"


def times(ratio: float | None) -> str:
    """Write a multiple with two digits: 1,200×, 12×, 1.2×, 0.034×."""
    return NOTHING if ratio is None else f"{two(ratio)}×"


def spread(least: float, most: float) -> str:
    """Write the ends of a spread with two digits; nothing where they are written alike."""
    low, high = two(least), two(most)
    return "" if low == high else f"{low} to {high}"


def size(value: float | None, missing: str = NOTHING) -> str:
    """Write a violation or an error with three digits; `missing` stands for None."""
    if value is None:
        return missing
    return f"{value:.3g}" if _PLAIN <= abs(value) < 1.0 / _PLAIN else scientific(value)


def settings_text(settings: Mapping[str, object]) -> str:
    """Write settings as `name=value, …`."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def meant(name: object, known: Iterable[str]) -> str:
    """Return 'Did you mean …? ' for a name close to one that is known, else nothing."""
    near = get_close_matches(str(name), list(known), n=1)
    return f"Did you mean {near[0]!r}? " if near else ""
