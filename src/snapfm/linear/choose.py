"""Choose a solver by size and device, from measurement.

Lanes on a CPU: it was the fastest at every size tried, a single sample included (one lane of eight in use: grid of
90 000 unknowns 0.18 s, SciPy 0.49 s). What it costs is memory, because a tile always holds eight lanes; a few huge
samples go to the library. Levels on every other device.
"""

from __future__ import annotations

import numpy as np
import torch

from snapfm.kernels.ordering import degree, symmetric
from snapfm.kernels.packs import WIDTH
from snapfm.kernels.symbolic import permuted, tree
from snapfm.linear.base import Solver, check_pattern
from snapfm.linear.lanes import Lanes
from snapfm.linear.levels import Levels
from snapfm.linear.library import Library
from snapfm.structure.pattern import Pattern

# A tile this large (bytes) is left to the library, unless half its lanes would be used. At 10⁶ unknowns on a grid it
# takes 2.6 GB and the times are equal; on smaller ones Lanes wins by two to three.
_TILE_LIMIT = 2**30
# Panels pad the factor: measured 1.3 to 1.5 times its entries.
_PADDING = 1.5


def choose(pattern: Pattern, lanes: int, device: torch.device | str = "cpu") -> Solver:
    """Pick the solver for this pattern and number of samples at a time."""
    check_pattern(pattern, None)
    if torch.device(device).type != "cpu":
        return Levels()
    if 2 * lanes >= WIDTH or _tile_bytes(pattern) < _TILE_LIMIT:
        return Lanes()
    return Library()


def _tile_bytes(pattern: Pattern) -> float:
    """Predict the memory of one tile; the fill is only worked out where the dense bound does not settle it."""
    bound = pattern.rows * (pattern.rows + 1) / 2
    per_entry = 8 * WIDTH * _PADDING
    if bound * per_entry < _TILE_LIMIT:
        return bound * per_entry
    perm = degree(symmetric(pattern.indptr, pattern.indices))
    found = tree(*permuted(pattern.indptr, pattern.indices, perm)[:2], int(_TILE_LIMIT / per_entry))
    return np.inf if found is None else found.fill * per_entry
