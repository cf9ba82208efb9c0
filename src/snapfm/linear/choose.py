"""Choose a solver by size and device, from measurement.

Lanes on a CPU: it was the fastest at every size tried, a single sample included (one lane of eight in use: grid of
90 000 unknowns 0.18 s, SciPy 0.49 s). What it costs is memory, because a tile always holds eight lanes; a few huge
samples go to the library. Levels on every other device.
"""

from __future__ import annotations

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
TILE_LIMIT = 2**30
# Panels pad the factor: measured 1.3 to 1.5 times its entries.
_PADDING = 1.5


def choose(pattern: Pattern, lanes: int, device: torch.device | str = "cpu", tile_limit: float = TILE_LIMIT) -> Solver:
    """Pick the solver for this pattern and number of samples at a time; `tile_limit` is in bytes."""
    check_pattern(pattern, None)
    if torch.device(device).type != "cpu":
        return Levels()
    if 2 * lanes >= WIDTH or _fits(pattern, tile_limit / (8 * WIDTH * _PADDING)):
        return Lanes()
    return Library()


def _fits(pattern: Pattern, entries: float) -> bool:
    """Whether the factor has at most this many entries; worked out only where the dense bound does not settle it."""
    if pattern.rows * (pattern.rows + 1) / 2 <= entries:
        return True
    perm = degree(symmetric(pattern.indptr, pattern.indices))
    return tree(*permuted(pattern.indptr, pattern.indices, perm)[:2], int(entries)) is not None
