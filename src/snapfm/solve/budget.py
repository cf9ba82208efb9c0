"""What one call may spend, and when a sample has converged: iterations, seconds, tolerances.

Of snapfm it imports arrays and kernels.threads only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from snapfm.arrays import Values
from snapfm.kernels.threads import Clock

# Stationarity of a converged sample whose field is of order one: white noise that happens to obey its laws misses it by orders
# of magnitude. For a smaller field it is relative to the field's size, for one beyond a thousand it is 1e-9 of that size.
STATIONARITY = 1e-6
_LARGE = 1e-9  # stationarity relative to the size of a large field
LIMIT = 500  # iterations of a sample over all attempts; most benchmark inputs need 2 to 12
SECONDS = 120.0  # chosen, not measured: short flow_step_stopping to wait for


def stationary(size: Values) -> Values:
    """Return the largest stationarity of converged fields whose largest numbers are these."""
    allowed: Values = np.maximum(STATIONARITY * np.where(size > 0.0, np.minimum(size, 1.0), 1.0), _LARGE * size)
    return allowed


@dataclass(frozen=True)
class Budget:
    """`limit` iterations of a sample over all attempts together; the whole batch ends when the clock is over."""

    limit: int
    clock: Clock
    starts: int = 1  # the first has the whole limit, each other one its share

    @classmethod
    def of(cls, limit: int, seconds: float, starts: int = 1) -> Budget:
        """Begin to count now."""
        return cls(limit, Clock(seconds), starts)

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self.clock.over


# Stationarity of an answer with a certificate: three orders below what the judge asks, or a tenth of the tolerance if that is
# less, but never below what rounding allows.
CERTIFIED, LEAST = 1e-9, 1e-12
_POLISH = 1e-2  # share of the tolerance below which no further step is taken


class Stopping(NamedTuple):
    """When a sample has converged."""

    tolerance: float  # of the violation
    stationarity: float
    polish: float  # share of the tolerance above which one further step reduces the violation to rounding


def certified(tolerance: float) -> Stopping:
    """Iterate until the certificate leaves no doubt."""
    return Stopping(tolerance, min(CERTIFIED, max(LEAST, 0.1 * tolerance)), _POLISH)


def flow_step_stopping(tolerance: float) -> Stopping:
    """Stop where the judge would accept: for fields that the next flow step moves anyway."""
    return Stopping(tolerance, STATIONARITY, 1.0)
