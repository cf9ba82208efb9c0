"""The vector of least norm that obeys linear rows, by non-negative least squares (Lawson and Hanson, chapter 23).

Exact where rows are dependent or more than enough are active: the method adds independent rows one by one. Plain numpy and SciPy.
"""

from __future__ import annotations

import numpy as np
import scipy  # its modules are imported when they are used: scipy.optimize takes long

from snapfm.arrays import Mask, Values

_CONTRADICTION = 1e-10  # remainder of the least squares below which the rows contradict each other
_EMPTY = 1e-14  # norm of a row, relative to the largest, that is rounding
_STEEP = 10.0  # times that polished multipliers may grow
_MET = 1e-9  # relative violation, and negative multiplier, that a polished answer may have


def least_distance(rows: Values, limits: Values, equal: Mask) -> tuple[Values, Values] | None:
    """Return z of least norm with rows·z = limits where `equal`, ≤ elsewhere, and the multipliers: z = −rowsᵀ y.

    None if no z obeys, as far as rounding lets one see.
    """
    norms = np.linalg.norm(rows, axis=1)
    empty = norms <= _EMPTY * norms.max(initial=0.0)
    used = np.flatnonzero(~empty)
    if (np.where(equal, np.abs(limits), -limits)[empty] > _MET).any() or not np.isfinite(norms).all():
        return None
    unit, wanted, same = rows[used] / norms[used, None], limits[used] / norms[used], equal[used]
    multipliers = np.zeros(len(rows))
    size = float(np.where(same, np.abs(wanted), -wanted).max(initial=0.0))  # no z that obeys is shorter
    if size <= 0.0:
        return np.zeros(rows.shape[1]), multipliers
    # Rows that must vanish come with both signs.
    columns = np.concatenate([np.arange(len(used)), np.flatnonzero(same)])
    sign = np.concatenate([-np.ones(len(used)), np.ones(int(same.sum()))])
    matrix = np.concatenate([(sign[:, None] * unit[columns]).T, (sign * wanted[columns] / size)[None]])
    goal = np.zeros(len(matrix))
    goal[-1] = 1.0
    try:
        weights, left = scipy.optimize.nnls(matrix, goal, maxiter=10 * matrix.shape[1])
    except RuntimeError:  # too many exchanges
        return None
    remainder = matrix @ weights - goal
    if left <= _CONTRADICTION or not -remainder[-1] > 0.0:
        return None
    y = np.bincount(columns, -sign * weights, len(used)) * (size / -remainder[-1])
    z: Values = -unit.T @ y
    z, y = _polished(unit, wanted, same, z, y, size)
    multipliers[used] = y / norms[used]
    return z, multipliers


def balance(rows: Values, equal: Mask, pull: Values) -> Values | None:
    """Return y, non-negative but where `equal`, with rowsᵀ y as close to a vector as possible; None after too many exchanges."""
    columns = np.concatenate([np.arange(len(rows)), np.flatnonzero(equal)])
    sign = np.concatenate([np.ones(len(rows)), -np.ones(int(equal.sum()))])
    size = float(np.abs(pull).max(initial=0.0))
    if size == 0.0 or not len(rows):
        return np.zeros(len(rows))
    try:
        weights, _ = scipy.optimize.nnls((sign[:, None] * rows[columns]).T, pull / size, maxiter=10 * len(columns))
    except RuntimeError:
        return None
    y: Values = np.bincount(columns, sign * weights, len(rows)).astype(np.float64) * size
    active = y != 0.0
    better = np.linalg.lstsq(rows[active].T, pull, rcond=None)[0]  # leaves rounding only
    if ((better >= 0.0) | equal[active]).all():
        y[active] = better
    return y


def _polished(unit: Values, wanted: Values, same: Mask, z: Values, y: Values, size: float) -> tuple[Values, Values]:
    """Solve again with the rows that are active, which leaves rounding only; keep what was if that breaks another row."""
    active = y != 0.0
    if not active.any():
        return z, y
    better: Values = np.linalg.lstsq(unit[active], wanted[active], rcond=None)[0]
    weights = np.linalg.lstsq(unit[active].T, -better, rcond=None)[0]
    off = unit @ better - wanted
    room = _MET * max(size, float(np.abs(better).max(initial=0.0)))
    signs = (weights >= -_MET * np.abs(weights).max(initial=0.0)) | same[active]
    steep = np.abs(weights).max(initial=0.0) > _STEEP * np.abs(y).max(initial=0.0)  # rows that are almost dependent
    if steep or (np.where(same, np.abs(off), off) > room).any() or not signs.all():
        return z, y
    found = np.zeros_like(y)
    found[active] = np.where(same[active], weights, np.maximum(weights, 0.0))
    return better, found
