"""Where a sample stands, what a trial measured, what became of it: the records of the interior point. Imports no other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from snapfm.errors import Status

Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Trial: TypeAlias = tuple[float, float, Values]  # violation, objective, constraints


@dataclass(frozen=True)
class Point:
    """Where a sample stands: unknowns, slacks of inequalities, multipliers of rows, slacks and bounds."""

    u: Values
    s: Values
    weight: Values
    push: Values  # of slacks
    low: Values  # of lower bounds, zero where there is none
    high: Values


@dataclass(frozen=True)
class Arrived:
    """What became of a sample, in the laws' own units."""

    u: Values
    weight: Values
    status: Status
