"""How the report writes numbers: durations, ratios and counts, never a gap. Seconds are written as published ones are."""

from __future__ import annotations

from snapfm.bench.record import Cell, Verdict
from snapfm.bench.report.document import NOTHING, Entry
from snapfm.demo.numerals import scientific

_PLAIN = 1e-2  # numbers from here to its inverse are written without an exponent


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


def milliseconds(seconds: float) -> str:
    """Write a time per sample."""
    return f"{short(1e3 * seconds)} ms"


def times(ratio: float | None) -> str:
    """Write a multiple: 1,234×, 12.3×, 1.23×, 0.034×."""
    if ratio is None:
        return NOTHING
    return f"{ratio:.2g}×" if ratio < 0.1 else f"{short(ratio)}×" if ratio >= 10.0 else f"{ratio:.2f}×"


def size(value: float | None) -> str:
    """Write a violation or an error; one that is missing was not finite, or the method has nothing to show for it."""
    if value is None:
        return NOTHING
    return f"{value:.3g}" if _PLAIN <= abs(value) < 1.0 / _PLAIN else scientific(value)


def home(verdict: Verdict) -> str:
    """Write how many samples hold before the judge, and what the method said where that is more."""
    words = f"{verdict.converged} of {verdict.samples}"
    return words if verdict.claimed <= verdict.converged else f"{words}, claims {verdict.claimed}"


def outcome(cell: Cell | None) -> Entry:
    """Write what became of a cell without figures."""
    return Entry(NOTHING) if cell is None else Entry(str(cell.state))
