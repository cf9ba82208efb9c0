"""Interior-point iterations on one part: for samples whose active sets cycle, where many inequalities or bounds are active.

Slacks and multipliers of inequalities and bounds stay positive, their products follow a barrier parameter down
(math.md, "Inequalities"). On the same pattern: a barrier adds a positive diagonal to the rows, or to W. The result is a
start for kernels.newton, which then has the right active set and converges to rounding. Eight samples at once, each with
its own barrier.

Soft equalities (kernels.soft_rows) harden as the barrier falls. Imports kernels only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from snapfm.arrays import Mask, Values
from snapfm.kernels import layout
from snapfm.kernels.batches import copy, copy_lane, fill, fill_lane
from snapfm.kernels.coupled import newton_direction
from snapfm.kernels.direction import RUNNING, factorize
from snapfm.kernels.filter import passes_filter
from snapfm.kernels.layout import load_tile, section, store_tile, table, weights
from snapfm.kernels.newton import new_lanes
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import derivatives_at, residual_at, size_rows
from snapfm.kernels.soft_rows import balance, harden, mean_square, rows_at

ARRIVED, LIMIT, BROKEN = 0, 3, 4  # errors.Status

_FIRST, _LAST = 0.1, 1e-9  # barrier parameter: at the start, and where Newton's method takes over
_KEEP = 0.995  # share of the way to the boundary that a step may go
_SOLVED = 10.0  # a barrier problem is solved well enough at this multiple of its parameter
_ROOM = 1e-2  # slack and distance from bounds to begin with, relative to their size
_HALVINGS = 25
# Soft rows: a barrier parameter above the second number falls by the first, along a path that may bend.
_SLOWLY, _LOOSE = 0.3, 1e-4
_FIRST_DAMPING, _LAST_DAMPING = 1e-2, 1e8


class BarrierPath(NamedTuple):
    """Where lanes are on the path of a barrier, one number per lane and name."""

    parameter: Values  # μ of the barrier
    softness: Values  # δ of soft equalities
    size: Values  # mean square of the rows' sizes, the unit of δ
    fresh: Mask  # the filter belongs to another barrier problem, and is to be emptied


@compiled(nogil=True, error_model="numpy")
def interior_tiles(code, frame, plan, ordinary, soft, limits, stop, live, space, at, work, status, iterations):
    """Follow the barrier in all tiles, with soft equalities if `soft` is 1; see newton.solve_tiles.

    Written: space, status, iterations (tiles, …).
    """
    lanes, path = new_lanes(), BarrierPath(np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES, np.bool_))
    for k in range(len(space)):
        tile = load_tile(code, frame, space[k], at, work)
        interior_tile(
            code, frame, plan, ordinary, soft, limits[k], stop, live[k], tile, lanes, path, status[k], iterations[k]
        )  # fmt: skip
        store_tile(code, frame, tile, space[k])


@compiled(nogil=True, error_model="numpy")
def interior_tile(code, frame, plan, ordinary, soft, limits, stop, live, tile, lanes, path, status, iterations):
    """Follow the barrier in one tile; see interior_tiles. Written: tile, lanes, path, status, iterations."""
    mu, delta, size, fresh = path.parameter, path.softness, path.size, path.fresh
    damping, accepted = lanes.damping, lanes.accepted
    mu[:], delta[:], size[:], fresh[:], damping[:] = _FIRST, 0.0, 0.0, True, 0.0
    most = 0
    for lane in range(LANES):
        status[lane] = RUNNING if live[lane] else ARRIVED
        iterations[lane] = 0
        most = max(most, limits[lane])
    fill(section(tile, layout.ACTIVE), 1.0)
    fill(section(tile, layout.IDLE), 0.0)
    fill(section(tile, layout.TO_BOUND), np.nan)
    _enter(frame, tile)
    residual_at(code, frame, tile)
    derivatives_at(code, frame, tile)
    size_rows(tile, ordinary)
    _init_slacks(frame, tile)
    if soft == 1:
        mean_square(tile, size)
        for lane in range(LANES):
            delta[lane] = size[lane]
        rows_at(code, frame, tile, delta)
    for iteration in range(most + 1):
        derivatives_at(code, frame, tile)
        running = False
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            off = _complementarity_error(frame, tile, lane, mu[lane])
            if not math.isfinite(off):
                status[lane] = BROKEN
                continue
            while off <= _SOLVED * mu[lane] and mu[lane] > _LAST:
                fall = _SLOWLY * mu[lane] if soft == 1 and mu[lane] > _LOOSE else min(0.2 * mu[lane], mu[lane] ** 1.5)
                mu[lane] = max(_LAST, fall)
                fresh[lane] = True  # another barrier problem has another filter
                if soft == 1:
                    harden(frame, tile, lane, delta, size[lane] * mu[lane] / _FIRST)
                off = _complementarity_error(frame, tile, lane, mu[lane])
            if off <= _SOLVED * _LAST and mu[lane] <= _LAST:
                status[lane] = ARRIVED
            elif iteration >= limits[lane] or stop[0] != 0:
                status[lane] = LIMIT
            else:
                running = True
                iterations[lane] += 1
        if not running:
            break
        _add_barrier_terms(frame, tile, mu, delta)
        factorize(frame, plan, tile, damping, status, lanes.convex, lanes.negative, stop)
        if stop[0] != 0:
            rows_at(code, frame, tile, delta)  # _add_barrier_terms changed it
            continue
        newton_direction(frame, plan, tile, damping, status, lanes.convex, stop, False)
        _advance(code, frame, stop, tile, path, status, lanes)
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            if accepted[lane]:
                damping[lane] = 0.0 if damping[lane] <= _FIRST_DAMPING else 0.1 * damping[lane]
            else:
                damping[lane] = max(_FIRST_DAMPING, 10.0 * damping[lane])
                if soft == 1:
                    balance(frame, tile, lane, delta[lane])
                    fresh[lane] = True
                if damping[lane] > _LAST_DAMPING:
                    status[lane] = LIMIT
    fill(section(tile, layout.BARRIER), 0.0)
    fill(section(tile, layout.BOUND_WEIGHT), 0.0)


@compiled(nogil=True, error_model="numpy")
def _enter(frame, tile):  # written: x, the duals of bounds
    """Move x inside its bounds, and start their multipliers."""
    if frame.bounded == 0:
        return
    x, lower, upper = section(tile, layout.X), section(tile, layout.LOWER), section(tile, layout.UPPER)
    low, high = section(tile, layout.LOWER_DUAL), section(tile, layout.UPPER_DUAL)
    for i in range(len(x)):
        width = upper[i] - lower[i]
        below, above = lower[i] > -np.inf, upper[i] < np.inf
        if below:
            x[i] = max(x[i], lower[i] + min(_ROOM * max(1.0, abs(lower[i])), 0.25 * width))
        if above:
            x[i] = min(x[i], upper[i] - min(_ROOM * max(1.0, abs(upper[i])), 0.25 * width))
        low[i] = _FIRST / max(x[i] - lower[i], 1e-300) if below else 0.0
        high[i] = _FIRST / max(upper[i] - x[i], 1e-300) if above else 0.0


@compiled(nogil=True, error_model="numpy")
def _init_slacks(frame, tile):  # written: slack, multiplier of inequalities
    if frame.mixed == 0:
        return
    residual, slack, lam = section(tile, layout.RESIDUAL), section(tile, layout.SLACK), section(tile, layout.MULTIPLIER)
    equality, row_size = table(frame, layout.EQUALITY), section(tile, layout.ROW_SIZE)
    for r in range(len(equality)):
        for lane in range(LANES):
            i = r * LANES + lane
            slack[i] = max(-residual[i], _ROOM * row_size[i])
            if equality[r] == 0:
                lam[i] = _FIRST / slack[i]


@compiled(nogil=True, error_model="numpy")
def _complementarity_error(frame, tile, lane, mu):
    """Return how far one lane is from solving the barrier problem with parameter mu."""
    slope, residual = section(tile, layout.GRADIENT), section(tile, layout.RESIDUAL)
    lam = section(tile, layout.MULTIPLIER)
    equality, row_weight = table(frame, layout.EQUALITY), section(tile, layout.ROW_WEIGHT)
    slack = section(tile, layout.SLACK)
    worst = 0.0
    for r in range(len(equality)):
        i = r * LANES + lane
        off = row_weight[i] * abs(residual[i] if equality[r] == 1 else residual[i] + slack[i])
        if equality[r] == 0:
            off = max(off, abs(slack[i] * lam[i] - mu))
        worst = _larger(worst, off)
    if frame.bounded == 0:
        for j in range(len(slope) // LANES):
            worst = _larger(worst, abs(slope[j * LANES + lane]))
        return worst
    x, lower, upper = section(tile, layout.X), section(tile, layout.LOWER), section(tile, layout.UPPER)
    low, high = section(tile, layout.LOWER_DUAL), section(tile, layout.UPPER_DUAL)
    for j in range(len(slope) // LANES):
        i = j * LANES + lane
        off = abs(slope[i] - low[i] + high[i])
        if lower[i] > -np.inf:
            off = max(off, abs((x[i] - lower[i]) * low[i] - mu))
        if upper[i] < np.inf:
            off = max(off, abs((upper[i] - x[i]) * high[i] - mu))
        worst = _larger(worst, off)
    return worst


@compiled(nogil=True, error_model="numpy", forceinline=True)
def _larger(one, other):
    """Return the larger number; NaN if one is."""
    return one if other <= one or one != one else other


@compiled(nogil=True, error_model="numpy")
def _add_barrier_terms(frame, tile, mu, delta):
    """Add the barrier to the KKT system of the step. Written: barrier, bound_weight, weight, residual, slope."""
    residual, lam = section(tile, layout.RESIDUAL), section(tile, layout.MULTIPLIER)
    equality, barrier = table(frame, layout.EQUALITY), section(tile, layout.BARRIER)
    for r in range(len(equality)):
        if equality[r] == 1:
            for lane in range(LANES):
                barrier[r * LANES + lane] = delta[lane]
    if frame.mixed == 1:
        slack = section(tile, layout.SLACK)
        for r in range(len(equality)):
            if equality[r] == 0:
                for lane in range(LANES):
                    i = r * LANES + lane
                    barrier[i] = slack[i] / lam[i]
                    residual[i] += mu[lane] / lam[i]
    if frame.bounded == 1:
        x, lower, upper = section(tile, layout.X), section(tile, layout.LOWER), section(tile, layout.UPPER)
        low, high = section(tile, layout.LOWER_DUAL), section(tile, layout.UPPER_DUAL)
        slope, weight = section(tile, layout.GRADIENT), section(tile, layout.DIAGONAL)
        more = section(tile, layout.BOUND_WEIGHT)
        for i in range(len(x)):
            more[i] = 0.0
            if lower[i] > -np.inf:
                more[i] += low[i] / (x[i] - lower[i])
                slope[i] -= mu[i % LANES] / (x[i] - lower[i])
            if upper[i] < np.inf:
                more[i] += high[i] / (upper[i] - x[i])
                slope[i] += mu[i % LANES] / (upper[i] - x[i])
            weight[i] += more[i]


@compiled(nogil=True, error_model="numpy")
def _advance(code, frame, stop, tile, path, status, lanes):
    """Line search along the step, inside the boundary, with a filter; that of `fresh` lanes is emptied first.

    A merit function takes short steps where multipliers are large (water that almost runs dry: 250 iterations, now 40).
    Written: x, multiplier, slack, duals, residual; path's fresh; lanes' accepted (which lanes moved), alpha and more.
    """
    mu, delta, fresh = path.parameter, path.softness, path.fresh
    x, lam, slack = section(tile, layout.X), section(tile, layout.MULTIPLIER), section(tile, layout.SLACK)
    step, direction = section(tile, layout.STEP), section(tile, layout.DIRECTION)
    before, before_lam = section(tile, layout.PREVIOUS), section(tile, layout.PREVIOUS_MULTIPLIER)
    before_slack, equality = section(tile, layout.PREVIOUS_SLACK), table(frame, layout.EQUALITY)
    alpha, accepted = lanes.alpha, lanes.accepted
    copy(x, before)
    copy(lam, before_lam)
    copy(slack, before_slack)
    rows_at(code, frame, tile, delta)  # _add_barrier_terms changed it
    for lane in range(LANES):
        accepted[lane] = status[lane] != RUNNING
        if accepted[lane]:
            alpha[lane] = 0.0
            fill_lane(step, lane, 0.0)
            fill_lane(direction, lane, 0.0)
            continue
        alpha[lane], lanes.slopes[lane] = _reach(frame, tile, lane, mu[lane], delta[lane])
        lanes.theta[lane], lanes.objective[lane] = _merit(frame, tile, lane, mu[lane], delta[lane])
        if fresh[lane]:
            lanes.entries[lane], lanes.first_theta[lane], fresh[lane] = 0, max(lanes.theta[lane], 1.0), False
    for _ in range(_HALVINGS):
        for i in range(len(x)):
            x[i] = before[i] + alpha[i % LANES] * step[i]
        for i in range(len(lam)):
            lam[i] = before_lam[i] + alpha[i % LANES] * direction[i]
        if frame.mixed == 1:
            for r in range(len(equality)):
                if equality[r] == 0:
                    for lane in range(LANES):
                        i = r * LANES + lane
                        ds = mu[lane] / before_lam[i] - before_slack[i] - before_slack[i] / before_lam[i] * direction[i]
                        slack[i] = before_slack[i] + alpha[lane] * ds
        rows_at(code, frame, tile, delta)
        waiting = False
        for lane in range(LANES):
            if accepted[lane]:
                continue
            lanes.new_theta[lane], lanes.new_objective[lane] = _merit(frame, tile, lane, mu[lane], delta[lane])
            if passes_filter(lanes, lane):
                accepted[lane] = True
            else:
                alpha[lane] *= 0.5
                waiting = True
        if not waiting or stop[0] != 0:
            break
    for lane in range(LANES):
        if status[lane] == RUNNING and accepted[lane] and frame.bounded == 1:
            _follow_duals(tile, lane, alpha[lane], mu[lane])
        if not accepted[lane]:
            copy_lane(before, x, lane)
            copy_lane(before_lam, lam, lane)
            copy_lane(before_slack, slack, lane)
    rows_at(code, frame, tile, delta)


@compiled(nogil=True, error_model="numpy")
def _reach(frame, tile, lane, mu, delta):
    """Return how far a lane can go along its step inside the boundary, at most 1, and the slope of the objective along it."""
    x, lam, slack = section(tile, layout.X), section(tile, layout.MULTIPLIER), section(tile, layout.SLACK)
    step, direction = section(tile, layout.STEP), section(tile, layout.DIRECTION)
    target, equality = section(tile, layout.TARGET), table(frame, layout.EQUALITY)
    ptr, column = table(frame, layout.GRAM_PTR), table(frame, layout.GRAM_COLUMN)
    gram = weights(frame, layout.GRAM)
    length, fall = 1.0, 0.0
    for r in range(len(equality)):
        i = r * LANES + lane
        for p in range(ptr[r], ptr[r + 1]):
            fall += lam[i] * gram[p] * direction[column[p] * LANES + lane]
        if equality[r] == 1:
            fall += delta * lam[i] * direction[i]
        else:
            ds = mu / lam[i] - slack[i] - slack[i] / lam[i] * direction[i]
            fall -= mu * ds / slack[i]
            if ds < 0.0:
                length = min(length, -_KEEP * slack[i] / ds)
            if direction[i] < 0.0:
                length = min(length, -_KEEP * lam[i] / direction[i])
    for j in range(len(x) // LANES):
        i = j * LANES + lane
        fall += (x[i] - target[i]) * step[i]
    if frame.bounded == 1:
        lower, upper = section(tile, layout.LOWER), section(tile, layout.UPPER)
        low, high = section(tile, layout.LOWER_DUAL), section(tile, layout.UPPER_DUAL)
        for j in range(len(x) // LANES):
            i = j * LANES + lane
            if lower[i] > -np.inf:
                room = x[i] - lower[i]
                fall -= mu * step[i] / room
                change = mu / room - low[i] - low[i] / room * step[i]
                if step[i] < 0.0:
                    length = min(length, -_KEEP * room / step[i])
                if change < 0.0:
                    length = min(length, -_KEEP * low[i] / change)
            if upper[i] < np.inf:
                room = upper[i] - x[i]
                fall += mu * step[i] / room
                change = mu / room - high[i] + high[i] / room * step[i]
                if step[i] > 0.0:
                    length = min(length, _KEEP * room / step[i])
                if change < 0.0:
                    length = min(length, -_KEEP * high[i] / change)
    return length, fall


@compiled(nogil=True, error_model="numpy")
def _follow_duals(tile, lane, alpha, mu):  # written: the duals of bounds, one lane
    """Let the multipliers of bounds take a step of length alpha."""
    before, step = section(tile, layout.PREVIOUS), section(tile, layout.STEP)
    lower, upper = section(tile, layout.LOWER), section(tile, layout.UPPER)
    low, high = section(tile, layout.LOWER_DUAL), section(tile, layout.UPPER_DUAL)
    for j in range(len(before) // LANES):
        i = j * LANES + lane
        if lower[i] > -np.inf:
            room = before[i] - lower[i]
            low[i] += alpha * (mu / room - low[i] - low[i] / room * step[i])
        if upper[i] < np.inf:
            room = upper[i] - before[i]
            high[i] += alpha * (mu / room - high[i] + high[i] / room * step[i])


@compiled(nogil=True, error_model="numpy")
def _merit(frame, tile, lane, mu, delta):
    """Return the ℓ1 violation with slacks and the objective with barrier, of one lane."""
    residual, lam, slack = section(tile, layout.RESIDUAL), section(tile, layout.MULTIPLIER), section(tile, layout.SLACK)
    x, target = section(tile, layout.X), section(tile, layout.TARGET)
    equality = table(frame, layout.EQUALITY)
    ptr, column = table(frame, layout.GRAM_PTR), table(frame, layout.GRAM_COLUMN)
    gram, row_weight = weights(frame, layout.GRAM), section(tile, layout.ROW_WEIGHT)
    theta, value = 0.0, 0.0
    for r in range(len(equality)):
        i = r * LANES + lane
        if equality[r] == 1:
            theta += row_weight[i] * abs(residual[i])
            value += 0.5 * delta * lam[i] ** 2
        else:
            theta += row_weight[i] * abs(residual[i] + slack[i])
            value -= mu * math.log(slack[i])
        for p in range(ptr[r], ptr[r + 1]):
            value += 0.5 * lam[i] * gram[p] * lam[column[p] * LANES + lane]
    for j in range(len(x) // LANES):
        i = j * LANES + lane
        value += 0.5 * (x[i] - target[i]) ** 2
    if frame.bounded == 1:
        lower, upper = section(tile, layout.LOWER), section(tile, layout.UPPER)
        for j in range(len(x) // LANES):
            i = j * LANES + lane
            if lower[i] > -np.inf:
                value -= mu * math.log(x[i] - lower[i])
            if upper[i] < np.inf:
                value -= mu * math.log(upper[i] - x[i])
    return theta, value
