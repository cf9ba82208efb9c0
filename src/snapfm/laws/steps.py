"""The check that a law over the first time steps stays on its grid."""

from __future__ import annotations

from snapfm.errors import LawError
from snapfm.grid import Grid


def checked_steps(grid: Grid, steps: int | None, argument: str) -> int:
    """Give the number of time steps a law covers, all of them for None; `argument` is how the caller wrote it."""
    largest = grid.axis("t").size - 1
    if steps is None:
        return largest
    if not isinstance(steps, int) or isinstance(steps, bool) or not 1 <= steps <= largest:
        raise LawError(
            f"{argument} expects a whole number from 1 to {largest}, the steps of the grid; got {steps!r}. "
            "Leave the law out for none, or give the grid more times."
        )
    return steps
