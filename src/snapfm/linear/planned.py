"""What Lanes prepares, whatever the precision: the order and the schedule of one pattern, and the rule for its pivots.

May import linear.base and kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from snapfm.kernels.ordering import Order, best
from snapfm.kernels.panels import Schedule, schedule
from snapfm.linear.base import Index, PivotRule, Values
from snapfm.structure.pattern import Pattern


@dataclass(frozen=True)
class Plan:
    """Structure and settings; nothing in it is written after it is made."""

    pattern: Pattern
    order: Order
    schedule: Schedule
    rule: PivotRule
    refinements: int
    signs: Values  # by slot: the pivots' expected signs, 0 where either will do
    signed: bool

    @property
    def fill(self) -> int:
        """Entries of the factor, the diagonal included."""
        return self.order.fill

    @property
    def flops(self) -> int:
        """Multiply-adds of one lane's factorisation."""
        return self.order.flops


def plan(rule: PivotRule, refinements: int, pattern: Pattern, signs: Index | None) -> Plan:
    """Order the unknowns, plan the elimination."""
    order = best(pattern.indptr, pattern.indices, signs)
    found = schedule(pattern.indptr, pattern.indices, order.perm)
    by_slot = np.zeros(found.slots)
    if signs is not None:
        by_slot[found.slot] = signs
    return Plan(pattern, order, found, rule, refinements, by_slot, signs is not None)
