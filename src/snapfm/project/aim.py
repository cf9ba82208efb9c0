"""Aim: how near iterations have to come before they stop."""

from __future__ import annotations

from typing import NamedTuple

from snapfm.project.judge import STATIONARITY

# Stationarity asked of an answer with a certificate: three orders below what the judge asks, or a tenth of the tolerance if
# that is less, but nothing that rounding could not reach.
GAP, LEAST_GAP = 1e-9, 1e-12
_CLOSER = 1e-2  # share of the tolerance below which a step more is not worth it


class Aim(NamedTuple):
    """What is asked of a sample."""

    tolerance: float  # of the violation
    gap: float  # of the stationarity
    closer: float  # share of the tolerance: short of it one step more is taken, which leaves rounding


def sharp(tolerance: float) -> Aim:
    """Go on to where the certificate leaves no doubt."""
    return Aim(tolerance, min(GAP, max(LEAST_GAP, 0.1 * tolerance)), _CLOSER)


def enough(tolerance: float) -> Aim:
    """Stop where the judge would be content: for fields that the next flow step moves anyway."""
    return Aim(tolerance, STATIONARITY, 1.0)
