"""Feasible points beside which there is no other: as many independent active rows as free unknowns.

Such a point is the nearest in its neighborhood whatever the input is, and has multipliers that balance any distance. Newton's
method does not end there if the slopes are almost dependent: multipliers grow without bound as the violation falls. Used by
solve.attempts.order; must not import it.
"""

from __future__ import annotations

import numpy as np

from snapfm.arrays import Mask, Values
from snapfm.kernels import layout as core
from snapfm.kernels.operations import LANES
from snapfm.reduce.reduce import System
from snapfm.solve.tiles import Tiles

_DENSE = 1_000_000  # entries of a Jacobian that is looked at as a dense matrix
_RANK = 1e-13  # singular values below this share of the largest count as zero


def isolated(system: System, tiles: Tiles, stationarity: float) -> Mask:
    """Mark the lanes at a feasible point that is isolated and stationary. Written: multipliers of these lanes."""
    pattern = system.program.pattern
    found = np.zeros(tiles.lanes, bool)
    if pattern.rows * pattern.columns > _DENSE or int(system.equality.sum()) < pattern.columns or len(system.gram.data):
        return found
    values, x, target = (tiles.by_lane(number) for number in (core.JACOBIAN, core.X, core.TARGET))
    section = tiles.section(core.MULTIPLIER).reshape(len(tiles.space), -1, LANES)
    for lane in range(tiles.lanes):
        slopes = pattern.csr(values[lane]).toarray()[system.equality]
        weights = _balance(slopes, target[lane] - x[lane], stationarity)
        if weights is None:
            continue
        found[lane] = True
        multipliers = np.zeros(pattern.rows)
        multipliers[system.equality] = weights
        section[lane // LANES, :, lane % LANES] = multipliers
    return found


def _balance(slopes: Values, pull: Values, stationarity: float) -> Values | None:
    """Return multipliers of equalities with Jᵀλ = pull, if the slopes have full rank and rounding leaves them accurate."""
    if not np.isfinite(slopes).all():
        return None
    left, sizes, right = np.linalg.svd(slopes, full_matrices=False)
    if sizes[-1] <= _RANK * sizes[0]:
        return None
    weights: Values = left @ ((right @ pull) / sizes)
    return weights if np.abs(slopes.T @ weights - pull).max(initial=0.0) <= stationarity else None
