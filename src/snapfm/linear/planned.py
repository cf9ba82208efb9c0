"""What the workspaces of Lanes share, whatever their precision: the order and the plan of one pattern, and records.

May import linear.base, linear.buffers and kernels.
"""

from __future__ import annotations

from snapfm.kernels.ordering import Order
from snapfm.kernels.panels import Schedule
from snapfm.linear.buffers import Records
from snapfm.structure.pattern import Pattern


class Planned:
    """A pattern with its plan, no lane factorised yet."""

    def __init__(self, pattern: Pattern, order: Order, plan: Schedule) -> None:
        self.pattern, self.order, self.plan = pattern, order, plan
        self._records = Records()
        self._lanes = 0  # factorised at present
        self._tiles = 0  # that there is room for the factors of,
        self._solve_tiles = 0  # and to solve with

    @property
    def fill(self) -> int:
        """Entries of the factor, the diagonal included."""
        return self.order.fill

    @property
    def flops(self) -> int:
        """Multiply-adds of one lane's factorisation."""
        return self.order.flops
