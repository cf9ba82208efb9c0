"""Second-order conditions at an answer: is it a minimum along the laws, or a saddle that merely is stationary?

The augmented matrix on the active set has as many negative eigenvalues as rows if, and only if, the curvature W = I + Σλ∇²row
is positive along the laws (math.md, "Iteration"). May import interior.point and .steps.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from scipy.sparse import csr_array, diags_array

from snapfm.project.augmented import AugmentedMatrix
from snapfm.project.interior.point import Mask, Values
from snapfm.project.interior.steps import softness
from snapfm.project.limits import Limits
from snapfm.project.oracle import Oracle

# A multiplier above this share of the largest one belongs to a row or a bound that holds, as in project.adjoint.
_HOLDS = 1e-9
# Curvature closer to zero than this, relative to W, has a sign that rounding decides.
_FLAT = 1e-7


class Curving(IntEnum):
    """What is known of the curvature along the laws."""

    NEGATIVE = 0  # in some direction: a saddle
    POSITIVE = 1  # in every direction: nearer than all its neighbours
    UNKNOWN = -1  # no second derivatives, no factors, or too near to zero


def curving(
    oracle: Oracle, system: AugmentedMatrix, limits: Limits, equality: Mask, target: Values, tolerance: float, u: Values,
    weight: Values,
) -> Curving:  # fmt: skip
    """Look at the curvature along the laws at an answer u, given its multipliers in the laws' own units."""
    own = oracle.jacobian(u)
    bend, whole = oracle.hessian(u, weight)
    if not (whole and np.isfinite(own.data).all() and np.isfinite(bend.data).all()):
        return Curving.UNKNOWN
    # Rows of one size: what the soft diagonal takes for nothing must be nothing for every row.
    steepest = abs(own).max(axis=1).toarray().ravel() if own.nnz else np.zeros(len(weight))
    slopes = csr_array(diags_array(1.0 / np.where(steepest > 0.0, steepest, 1.0)) @ own)
    push = target - u - own.T @ weight  # the multipliers of bounds: upper ones positive, lower ones negative
    least = _HOLDS * max(1.0, float(np.abs(weight).max(initial=0.0)))
    at_low, at_high = u <= limits.lower, u >= limits.upper
    fixed = limits.lower == limits.upper
    held = fixed | (at_low & (push < -least)) | (at_high & (push > least))
    active = equality | (weight > least)
    if _right(system, bend, slopes, active, held, 0.0):
        return Curving.POSITIVE
    flat = _FLAT * max(1.0, float(np.abs(bend.data).max(initial=0.0)))
    # An answer that only touches a row or a bound may leave it to one side. Where the curvature is positive as long as it
    # stays, more would have to be known.
    touched, stays = equality | (oracle.residual(u) >= -tolerance), fixed | at_low | at_high
    for rows, still in ((active, held), (touched, stays)):
        if system.negative is None or _right(system, bend, slopes, rows, still, flat):
            return Curving.UNKNOWN
    return Curving.UNKNOWN if system.negative is None else Curving.NEGATIVE


def _right(system: AugmentedMatrix, bend: csr_array, slopes: csr_array, active: Mask, held: Mask, shift: float) -> bool:
    """Whether the inertia is that of a minimum over the rows and unknowns that take part, W shifted a little."""
    free, on = diags_array((~held).astype(float)), diags_array(active.astype(float))
    part = csr_array(on @ slopes @ free)
    return system.factorize(
        csr_array(free @ bend @ free), np.full(len(held), 1.0 + shift), part, softness(part) + ~active
    )
