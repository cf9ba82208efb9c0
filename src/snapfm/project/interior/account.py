"""What one sample has used of a call's budget, over all attempts. Imports nothing else of interior."""

from __future__ import annotations

from snapfm.project.budget import Budget


class Account:
    """Counts the iterations of one sample, those of restorations and further starts included."""

    def __init__(self, budget: Budget) -> None:
        self._budget, self.used = budget, 0

    @property
    def late(self) -> bool:
        """Whether the batch's time is over."""
        return self._budget.over

    @property
    def over(self) -> bool:
        """Whether nothing is left, of iterations or of time."""
        return self.used >= self._budget.limit or self.late

    def spend(self) -> bool:
        """Count an iteration that begins; False, and nothing counted, if nothing is left for it."""
        if self.over:
            return False
        self.used += 1
        return True
