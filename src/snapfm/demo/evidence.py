"""Evidence: everything the pictures and the page show, as plain numpy and the record.

Imports the record only: whoever draws needs neither torch nor a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from snapfm.demo.record import Record

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Fields (b, nx, nt) of both runs, what was asked of them, and the figures on record."""

    record: Record
    x: Array  # (nx,)
    t: Array  # (nt,)
    free: Array  # (b, nx, nt), made in float32
    lawful: Array  # (b, nx, nt), made in float32
    initial: Array  # (b, nx): the initial condition asked for
    free_mass: Array  # (b, nt)
    lawful_mass: Array  # (b, nt)
    target_mass: Array  # (b,)
