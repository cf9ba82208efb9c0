"""A filter: a step is accepted if it lowers the violation or the objective, and leads to no point like one seen before.

A merit function adds both up, with a penalty above the largest multiplier. Far from an answer multipliers are large and say
little, and steps become short; a filter needs no penalty (math.md, "Filter"). Every lane has a filter of its own. Imports
kernels only.
"""

from __future__ import annotations

from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.operations import LANES

FILTER = 64  # points remembered per lane; later ones replace the oldest
_LESS = 1e-5  # share by which violation or objective has to fall, relative to the violation
_MOST = 1e4  # a violation above this multiple of the first one is never accepted
_NEAR = 1e-4  # below this share of the first violation a step that lowers the objective has to do so by Armijo's rule
_ARMIJO = 1e-4
_SWITCH, _SLOPE_POWER, _THETA_POWER = 1.0, 2.3, 1.1  # such a step: α|slope|^2.3 > θ^1.1
_NOISE = 64 * 2.220446049250313e-16  # rounding of the objective, relative


@compiled(nogil=True, error_model="numpy")
def clear_filter(lanes):  # read: theta; written: entries, first_theta
    """Forget all points."""
    for lane in range(LANES):
        lanes.entries[lane] = 0
        lanes.first_theta[lane] = max(lanes.theta[lane], 1.0)


@compiled(nogil=True, error_model="numpy")
def passes_filter(lanes, lane):  # read: theta, objective, slopes, alpha and those of the trial; written: the filter
    """Whether the trial point of a lane is accepted; the point it leaves is remembered if the violation made it so."""
    theta, value = lanes.theta[lane], lanes.objective[lane]
    new_theta, new_value = lanes.new_theta[lane], lanes.new_objective[lane]
    if not (new_theta <= _MOST * lanes.first_theta[lane] and new_value < 1e300):  # NaN included
        return False
    rounding = _NOISE * (abs(value) + 1.0)
    for k in range(min(lanes.entries[lane], FILTER)):
        before, objective = lanes.filter_theta[k * LANES + lane], lanes.filter_objective[k * LANES + lane]
        if new_theta > (1.0 - _LESS) * before and new_value > objective - _LESS * before + rounding:
            return False
    slope, alpha = lanes.slopes[lane], lanes.alpha[lane]
    falls = slope < 0.0 and alpha * (-slope) ** _SLOPE_POWER > _SWITCH * theta**_THETA_POWER
    if falls and theta <= _NEAR * lanes.first_theta[lane]:
        return new_value <= value + _ARMIJO * alpha * slope + rounding
    if new_theta <= (1.0 - _LESS) * theta or new_value <= value - _LESS * theta + rounding:
        if theta > 0.0:
            k = lanes.entries[lane] % FILTER
            lanes.filter_theta[k * LANES + lane], lanes.filter_objective[k * LANES + lane] = theta, value
            lanes.entries[lane] += 1
        return True
    return False
