"""What one call may spend, and how near its samples have to come before they stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from snapfm.kernels.threads import Clock

# Nearness asked of a converged sample whose field is of order one: white noise that happens to obey its laws misses this by
# orders of magnitude. Of a smaller field it is asked relative to its size, of one beyond a thousand a billionth of its size.
STATIONARITY = 1e-6
LIMIT = 500  # iterations of a sample over all attempts; most benchmark inputs need 2 to 12
SECONDS = 120.0  # chosen, not measured: short enough to wait for


@dataclass(frozen=True)
class Budget:
    """`limit` iterations of a sample over all attempts together; when the clock is over the whole batch ends."""

    limit: int
    clock: Clock

    @classmethod
    def of(cls, limit: int, seconds: float) -> Budget:
        """Begin to count now."""
        return cls(limit, Clock(seconds))

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self.clock.over


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
