"""How numbers are written, the same in the terminal, the pictures and the page. Imports nothing of snapfm."""

from __future__ import annotations


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
