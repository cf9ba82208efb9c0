"""Compare derivatives that a user gives with differences of the function itself, along one random direction.

One product per row detects a wrong slope and a pattern that lacks an entry, for a few evaluations. Plain numpy; knows no laws.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Mask, Values
from snapfm.errors import LawError

# Lengths of the step, relative to the field: short for steep functions, long for those with rounding errors of their own, as
# simulators have. A row is accepted if it agrees for one of them.
_STEPS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
_AGREE = (
    1e-5  # of the sum of the sizes of a row's terms: far above the error of a central difference of a smooth function
)
_ROUNDINGS = 1e2  # of the function, relative to its value and its terms


def check_slopes(call: str, argument: str, function: Callable[[Values], Values], slopes: csr_array, at: Values) -> None:
    """Raise LawError unless `slopes` (m, n) is the Jacobian of a function (n,) to (m,) at a point, as far as differences show.

    `call` and `argument` name the function and its pattern in the message.
    """
    # Every unknown moves in proportion to its size: fields of mixed units have no common step.
    sizes = np.maximum(np.abs(at), min(1.0, float(np.abs(at).max(initial=0.0)) or 1.0))
    direction = (
        sizes * np.random.default_rng(0).uniform(0.5, 1.0, len(at)) * np.where(np.arange(len(at)) % 3, 1.0, -1.0)
    )
    wrong, found = _wrong(function, slopes, at, direction)
    if not wrong.any():
        return
    row = int(np.flatnonzero(wrong)[0])
    low, high = 0, len(at)
    while high - low > 1:  # which unknown: halve the direction as long as one half shows the error
        middle = (low + high) // 2
        half = np.where((np.arange(len(at)) >= low) & (np.arange(len(at)) < middle), direction, 0.0)
        if _wrong(function, slopes, at, half)[0][row]:
            high = middle
        else:
            low = middle
    raise LawError(
        f"{call} expects the derivative of the function and every entry that can be non-zero; along a random direction row {row} "
        f"changes by {found[row]:.6e}, and by {float((slopes @ direction)[row]):.6e} according to the entries given (look at "
        f"unknown {low}). Correct the function or its {argument}; example=… says where they are compared."
    )


def _wrong(
    function: Callable[[Values], Values], slopes: csr_array, at: Values, direction: Values
) -> tuple[Mask, Values]:
    """Mark the rows (m,) that disagree with differences for all steps; also return the best differences."""
    expected, size = slopes @ direction, abs(slopes) @ np.abs(direction)
    terms = abs(slopes) @ np.abs(at)
    best, wrong, found = (np.full(len(size), start) for start in (np.inf, True, np.nan))
    for step in _STEPS:
        ahead, behind = function(at + step * direction), function(at - step * direction)
        difference = (ahead - behind) / (2.0 * step)
        noise = _ROUNDINGS * np.finfo(float).eps * np.maximum(np.maximum(np.abs(ahead), np.abs(behind)), terms) / step
        off = np.abs(difference - expected)
        nearer = ~(off >= best)
        found[nearer], best[nearer] = difference[nearer], off[nearer]
        # A difference that is not finite says nothing: beside the point lies the edge of the domain.
        wrong &= ~((off <= _AGREE * np.maximum(size, np.abs(difference)) + noise) | ~np.isfinite(difference))
    return wrong & np.isfinite(best), found
