"""How figures are written on pages and in tables, beside what `snapfm.text` writes everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, log10

from snapfm.text import scientific

NOTHING = "–"  # in place of a missing figure
_PLAIN = 1e-2  # numbers from here to its inverse are written without an exponent


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
