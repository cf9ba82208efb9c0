"""What the loops of Newton's method, of interior points and of restoration share: how lanes begin, step, go back, and are judged.

A filter accepts a step if it lowers the violation or the objective, and leads to no point like one seen before. A merit
function adds both up, with a penalty above the largest multiplier. Far from an answer multipliers are large and say
little, and steps become short; a filter needs no penalty (math.md, "Filter"). Every lane has a filter of its own. Imports
kernels only.
"""

from __future__ import annotations

from snapfm.kernels.direction import RUNNING
from snapfm.kernels.layout import FILTER, add_lane, copy, copy_lane, fill_lane
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import add, load, mul, store
from snapfm.kernels.operations import LANES

_FIRST_DAMPING, _LAST_DAMPING = 1e-2, 1e8  # of W, after failed steps
_LESS = 1e-5  # share by which violation or objective has to fall, relative to the violation
_MOST = 1e4  # a violation above this multiple of the first one is never accepted
_NEAR = 1e-4  # below this share of the first violation a step that lowers the objective has to do so by Armijo's rule
_ARMIJO = 1e-4
_SWITCH, _SLOPE_POWER, _THETA_POWER = 1.0, 2.3, 1.1  # such a step: α|slope|^2.3 > θ^1.1
_NOISE = 64 * 2.220446049250313e-16  # rounding of the objective, relative


@compiled(nogil=True)
def begin(live, limits, status, iterations):  # written: status, iterations
    """Mark lanes that hold a sample as running, others as done; return the largest of their limits."""
    most = 0
    for lane in range(LANES):
        status[lane] = RUNNING if live[lane] else 0
        iterations[lane] = 0
        most = max(most, limits[lane])
    return most


@compiled(nogil=True)
def remember(tile):  # written: previous, previous_multiplier
    """Remember where a step begins."""
    copy(tile.x, tile.previous)
    copy(tile.multiplier, tile.previous_multiplier)


@compiled(nogil=True)
def stay(tile, lane):  # written: step, direction, one lane
    """Give a lane that is done a zero step, so that not even infinity times zero can change its numbers."""
    fill_lane(tile.step, lane, 0.0)
    fill_lane(tile.direction, lane, 0.0)


@compiled(nogil=True)
def take_step(tile, alpha):  # read: alpha, a pack; written: x, multiplier
    """Go from the point remembered along steps of length alpha."""
    x, before, step = tile.x, tile.previous, tile.step
    lam, before_lam, direction = tile.multiplier, tile.previous_multiplier, tile.direction
    for j in range(len(x) // LANES):
        store(x, j, add(load(before, j), mul(alpha, load(step, j))))
    for r in range(len(lam) // LANES):
        store(lam, r, add(load(before_lam, r), mul(alpha, load(direction, r))))


@compiled(nogil=True)
def scale_step(tile, lane, alpha):  # read: plain_step, plain_direction; written: step, direction, one lane
    """Let the step of a lane be its plain step times alpha."""
    step, plain, direction, plain_direction = tile.step, tile.plain_step, tile.direction, tile.plain_direction
    for j in range(len(step) // LANES):
        step[j * LANES + lane] = alpha * plain[j * LANES + lane]
    for r in range(len(direction) // LANES):
        direction[r * LANES + lane] = alpha * plain_direction[r * LANES + lane]


@compiled(nogil=True)
def take_step_of(tile, lane):  # written: x, multiplier, one lane
    """Go from the point remembered along the step of one lane."""
    add_lane(tile.previous, tile.step, tile.x, lane)
    add_lane(tile.previous_multiplier, tile.direction, tile.multiplier, lane)


@compiled(nogil=True)
def go_back(tile, lane):  # written: x, multiplier, one lane
    """Return a lane to the point remembered."""
    copy_lane(tile.previous, tile.x, lane)
    copy_lane(tile.previous_multiplier, tile.multiplier, lane)


@compiled(nogil=True)
def adapt_damping(damping, lane, accepted):  # written: damping of one lane
    """Damp W more after a step that failed, less after one that did not; return whether that is more than ever helps."""
    if accepted:
        damping[lane] = 0.0 if damping[lane] <= _FIRST_DAMPING else 0.1 * damping[lane]
    else:
        damping[lane] = max(_FIRST_DAMPING, 10.0 * damping[lane])
    return damping[lane] > _LAST_DAMPING


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
