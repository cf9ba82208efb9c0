"""Budget: what one call may spend, in iterations of each sample and in wall time of the whole batch."""

from __future__ import annotations

from dataclasses import dataclass

from snapfm.kernels.threads import Clock

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
