"""Stopping: how near iterations have to come before they stop."""

from __future__ import annotations

from typing import NamedTuple

from snapfm.project.judge import STATIONARITY

# Stationarity asked of an answer with a certificate: three orders below what the judge asks, or a tenth of the tolerance if
# that is less, but nothing that rounding could not reach.
CERTIFIED, LEAST = 1e-9, 1e-12
_POLISH = 1e-2  # share of the tolerance below which a further step is not worth it


class Stopping(NamedTuple):
    """What is asked of a sample."""

    tolerance: float  # of the violation
    stationarity: float
    polish: float  # share of the tolerance: above it one further step is taken, which leaves rounding


def certified(tolerance: float) -> Stopping:
    """Go on to where the certificate leaves no doubt."""
    return Stopping(tolerance, min(CERTIFIED, max(LEAST, 0.1 * tolerance)), _POLISH)


def enough(tolerance: float) -> Stopping:
    """Stop where the judge would be content: for fields that the next flow step moves anyway."""
    return Stopping(tolerance, STATIONARITY, 1.0)
