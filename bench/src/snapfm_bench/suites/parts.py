"""A suite as a plan: block k is the part k + 1 of as many as it has cases, so a case is computed in one place.

Cells of one case depend on each other. Every part looks for its own cells that are finished, and appends to the records of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from snapfm.files.engines import BlockFailed, Report, Share


class Parts:
    """The plan of a suite. `part` runs a share of it; it travels to other processes."""

    def __init__(self, cases: Sequence[str], part: Callable[..., Any]) -> None:
        self._cases, self._part = tuple(cases), part
        self.blocks = len(self._cases)

    def units(self, block: int) -> int:
        """Count cases."""
        return 1

    def named(self, block: int) -> str:
        """Name the case."""
        return f"case '{self._cases[block]}'"

    def finished(self) -> set[int]:
        """Return none: a part finds out by itself, and is done at once if nothing is left."""
        return set()

    def join(self) -> None:
        """Do nothing: a part compares its suite with that of the records."""

    def compute(self, block: int, report: Report) -> dict[str, float]:
        """Run the cells of a case that are missing."""
        self._part(share=Share(block + 1, self.blocks))
        return {}

    def give_up(self, block: int) -> None:
        """Refuse: a page without a case would look complete."""
        raise BlockFailed(f"{self.named(block)} is missing")
