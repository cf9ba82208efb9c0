"""A limit on the time of a whole flow: as progress of `sample`, it ends a flow that takes far longer than asked."""

from __future__ import annotations

from time import perf_counter


class TooSlow(Exception):
    """The flow has used up its time."""


class Patience:
    """Counts the steps that are done and raises TooSlow after the first one past `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._began = seconds, perf_counter()
        self.done = 0

    def __call__(self, step: int, total: int) -> None:
        """Note a finished step."""
        self.done = step
        if step < total and self.spent() > self._seconds:  # a finished flow counts, late or not
            raise TooSlow

    def spent(self) -> float:
        """Return the wall time since the start."""
        return perf_counter() - self._began
