"""From two figures to a verdict: what is left over of a law's terms, and whether finer grids leave less."""

from __future__ import annotations

from enum import StrEnum

# Sums of some hundred terms after some thousand steps leave 1e-12 of them; the smoothing ε = 1e-6 of the flux law leaves
# ε² = 1e-12 too. The nearest discretization error lies at 1e-4.
ROUNDING = 1e-10
# Halving the spacing divides the error of a first-order scheme by two (order 1) and leaves a contradiction as it is
# (order 0). Half-way between the two.
LEAST_ORDER = 0.5


class Verdict(StrEnum):
    """What true fields say to a law."""

    OBEYED = "obeyed"
    APPROXIMATE = "approximately"
    CONTRADICTED = "contradicted"


def verdict(leftover: float, order: float | None) -> Verdict:
    """Judge by the leftover share and, where it is more than rounding, by the order at which finer grids reduce it."""
    if leftover <= ROUNDING:
        return Verdict.OBEYED
    return Verdict.APPROXIMATE if order is not None and order >= LEAST_ORDER else Verdict.CONTRADICTED
