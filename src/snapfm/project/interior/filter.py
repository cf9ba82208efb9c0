"""The filter of the line search: pairs of violation and objective not to be met again. May import interior.point."""

from __future__ import annotations

from snapfm.project.interior.point import Trial

MARGIN = 1e-5  # of the violation, by which a point has to be better; as published
ARMIJO = 1e-4  # share of the promised descent that has to come, as published


class Filter:
    """What has been seen since the barrier last changed."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []

    def add(self, violation: float, objective: float) -> None:
        """Forbid a point, and all that are no better."""
        self._seen.append((violation, objective))

    def clear(self) -> None:
        """Forget all: objectives of another barrier cannot be compared."""
        self._seen.clear()

    def forbids(self, trial: Trial) -> bool:
        """Whether a point is no better, in violation or objective, than one the filter has seen."""
        return any(trial[0] >= (1 - MARGIN) * one and trial[1] >= other - MARGIN * one for one, other in self._seen)
