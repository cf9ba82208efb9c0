"""The slow, obvious check that every coloring has to pass."""

from __future__ import annotations

import numpy as np


def conflicts(indptr: np.ndarray, indices: np.ndarray, colors: np.ndarray) -> int:
    """Count entries that share row and color with an earlier one, or have no color: zero for a valid coloring."""
    bad = 0
    for row in range(len(indptr) - 1):
        seen: set[int] = set()
        for column in indices[indptr[row] : indptr[row + 1]]:
            color = int(colors[column])
            bad += color < 0 or color in seen
            seen.add(color)
    return bad
