"""Tolerances: one number for all laws, or one for each by its name, in its own units.

Iterations know one number. Rows of other laws are weighted by a power of two, which changes no bit, so that the same number is
theirs, or up to half of it. Must not import project.projector.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from snapfm.arrays import Values

Tolerance: TypeAlias = float | dict[str, float]  # the same for all laws, or of every law by its name


def smallest(tolerance: Tolerance) -> float:
    """Return the tolerance of the strictest law."""
    return min(tolerance.values()) if isinstance(tolerance, dict) else tolerance


def of_rows(tolerance: Tolerance, laws: Mapping[str, slice]) -> Values:
    """Return the tolerance of every row (m,); `laws` are the rows of each law."""
    found = np.empty(max((rows.stop for rows in laws.values()), default=0))
    for name, rows in laws.items():
        found[rows] = tolerance[name] if isinstance(tolerance, dict) else tolerance
    return found


def row_weights(tolerance: Tolerance, laws: Mapping[str, slice]) -> tuple[float, Values | None]:
    """Return the tolerance of rows that have these weights (m,); None where all weights are one."""
    rows = of_rows(tolerance, laws)
    strictest = float(rows.min()) if len(rows) else smallest(tolerance)
    weights: Values = np.exp2(np.ceil(np.log2(strictest / rows)))
    return strictest, None if bool((weights == 1.0).all()) else weights
