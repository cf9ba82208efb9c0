"""Interior-point iterations on one part: for samples whose active sets cycle, where many inequalities or bounds are active.

Slacks and multipliers of inequalities and bounds stay positive, their products follow a barrier parameter down
(math.md, "Inequalities"). On the same pattern: a barrier adds a positive diagonal to the rows, or to W. The result is a
start for kernels.newton, which then has the right active set and converges to rounding. Eight samples at once, each with
its own barrier.

Soft equalities are h − δλ = 0, with δ in step with the barrier parameter (math.md, "Soft barrier"): a quadratic penalty that
hardens as the barrier falls. Far from an answer the rows need not hold to first order. Imports kernels only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from snapfm.arrays import Mask, Values
from snapfm.kernels.coupled import newton_direction
from snapfm.kernels.direction import RUNNING, factorize
from snapfm.kernels.layout import copy, copy_lane, load_tile, new_lanes, store_tile
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import load
from snapfm.kernels.numba.sections import allocator
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import derivatives_at, residual_at, size_rows
from snapfm.kernels.search import adapt_damping, begin, go_back, passes_filter, remember, stay, take_step

ARRIVED, LIMIT, BROKEN = 0, 3, 4  # errors.Status

_FIRST, _LAST = 0.1, 1e-9  # barrier parameter: at the start, and where Newton's method takes over
_KEEP = 0.995  # share of the way to the boundary that a step may go
_SOLVED = 10.0  # a barrier problem is solved well enough at this multiple of its parameter
_ROOM = 1e-2  # slack and distance from bounds to begin with, relative to their size
_HALVINGS = 25
# Soft rows: a barrier parameter above the second number falls by the first, along a path that may bend.
_SLOWLY, _LOOSE = 0.3, 1e-4


class BarrierPath(NamedTuple):
    """Where lanes are on the path of a barrier, one number per lane and name."""

    parameter: Values  # μ of the barrier
    softness: Values  # δ of soft equalities
    size: Values  # mean square of the rows' sizes, the unit of δ
    fresh: Mask  # the filter belongs to another barrier problem, and is to be emptied


_new_path = allocator(BarrierPath, LANES)


@compiled(nogil=True, error_model="numpy")
def interior_tiles(code, frame, plan, ordinary, soft, limits, stop, live, space, at, work, status, iterations):
    """Follow the barrier in all tiles, with soft equalities if `soft` is 1; see newton.solve_tiles.

    Written: space, status, iterations (tiles, …).
    """
    lanes, path = new_lanes(), _new_path()
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
    most = begin(live, limits, status, iterations)
    tile.active[:], tile.idle[:], tile.to_bound[:] = 1.0, 0.0, np.nan
    _enter(frame, tile)
    residual_at(code, frame, tile)
    derivatives_at(code, frame, tile)
    size_rows(tile, ordinary)
    _init_slacks(frame, tile)
    if soft == 1:
        _mean_square(tile, size)
        copy(size, delta)
        _rows_at(code, frame, tile, delta)
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
                    _harden(frame, tile, lane, delta, size[lane] * mu[lane] / _FIRST)
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
            _rows_at(code, frame, tile, delta)  # _add_barrier_terms changed it
            continue
        newton_direction(frame, plan, tile, damping, status, lanes.convex, stop)
        _advance(code, frame, stop, tile, path, status, lanes)
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            if soft == 1 and not accepted[lane]:
                _balance(frame, tile, lane, delta[lane])
                fresh[lane] = True
            if adapt_damping(damping, lane, accepted[lane]):
                status[lane] = LIMIT
    tile.barrier[:], tile.bound_weight[:] = 0.0, 0.0


@compiled(nogil=True, error_model="numpy")
def _enter(frame, tile):  # written: x, the duals of bounds
    """Move x inside its bounds, and start their multipliers."""
    if frame.bounded == 0:
        return
    x, lower, upper, low, high = tile.x, tile.lower, tile.upper, tile.lower_dual, tile.upper_dual
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
    residual, slack, lam = tile.residual, tile.slack, tile.multiplier
    equality, row_size = frame.equality, tile.row_size
    for r in range(len(equality)):
        for lane in range(LANES):
            i = r * LANES + lane
            slack[i] = max(-residual[i], _ROOM * row_size[i])
            if equality[r] == 0:
                lam[i] = _FIRST / slack[i]


@compiled(nogil=True, error_model="numpy")
def _complementarity_error(frame, tile, lane, mu):
    """Return how far one lane is from solving the barrier problem with parameter mu."""
    slope, residual, lam = tile.gradient, tile.residual, tile.multiplier
    equality, row_weight, slack = frame.equality, tile.row_weight, tile.slack
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
    x, lower, upper, low, high = tile.x, tile.lower, tile.upper, tile.lower_dual, tile.upper_dual
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
    residual, lam, equality, barrier = tile.residual, tile.multiplier, frame.equality, tile.barrier
    for r in range(len(equality)):
        if equality[r] == 1:
            for lane in range(LANES):
                barrier[r * LANES + lane] = delta[lane]
    if frame.mixed == 1:
        slack = tile.slack
        for r in range(len(equality)):
            if equality[r] == 0:
                for lane in range(LANES):
                    i = r * LANES + lane
                    barrier[i] = slack[i] / lam[i]
                    residual[i] += mu[lane] / lam[i]
    if frame.bounded == 1:
        x, lower, upper, low, high = tile.x, tile.lower, tile.upper, tile.lower_dual, tile.upper_dual
        slope, weight, more = tile.gradient, tile.diagonal, tile.bound_weight
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
    slack, before_slack, before_lam, direction = (
        tile.slack,
        tile.previous_slack,
        tile.previous_multiplier,
        tile.direction,
    )
    equality, alpha, accepted = frame.equality, lanes.alpha, lanes.accepted
    remember(tile)
    copy(slack, before_slack)
    _rows_at(code, frame, tile, delta)  # _add_barrier_terms changed it
    for lane in range(LANES):
        accepted[lane] = status[lane] != RUNNING
        if accepted[lane]:
            alpha[lane] = 0.0
            stay(tile, lane)
            continue
        alpha[lane], lanes.slopes[lane] = _reach(frame, tile, lane, mu[lane], delta[lane])
        lanes.theta[lane], lanes.objective[lane] = _merit(frame, tile, lane, mu[lane], delta[lane])
        if fresh[lane]:
            lanes.entries[lane], lanes.first_theta[lane], fresh[lane] = 0, max(lanes.theta[lane], 1.0), False
    for _ in range(_HALVINGS):
        take_step(tile, load(alpha, 0))
        if frame.mixed == 1:
            for r in range(len(equality)):
                if equality[r] == 0:
                    for lane in range(LANES):
                        i = r * LANES + lane
                        change, _ = _follow(before_lam[i], before_slack[i], direction[i], mu[lane])
                        slack[i] = before_slack[i] + alpha[lane] * change
        _rows_at(code, frame, tile, delta)
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
            go_back(tile, lane)
            copy_lane(before_slack, slack, lane)
    _rows_at(code, frame, tile, delta)


@compiled(nogil=True, error_model="numpy")
def _reach(frame, tile, lane, mu, delta):
    """Return how far a lane can go along its step inside the boundary, at most 1, and the slope of the objective along it."""
    x, lam, slack, step, direction = tile.x, tile.multiplier, tile.slack, tile.step, tile.direction
    target, equality, ptr, column, gram = tile.target, frame.equality, frame.gram_ptr, frame.gram_column, frame.gram
    length, fall = 1.0, 0.0
    for r in range(len(equality)):
        i = r * LANES + lane
        for p in range(ptr[r], ptr[r + 1]):
            fall += lam[i] * gram[p] * direction[column[p] * LANES + lane]
        if equality[r] == 1:
            fall += delta * lam[i] * direction[i]
        else:
            change, most = _follow(lam[i], slack[i], direction[i], mu)
            fall, length = fall - mu * change / slack[i], min(length, most)
    for j in range(len(x) // LANES):
        i = j * LANES + lane
        fall += (x[i] - target[i]) * step[i]
    if frame.bounded == 1:
        lower, upper, low, high = tile.lower, tile.upper, tile.lower_dual, tile.upper_dual
        for j in range(len(x) // LANES):
            i = j * LANES + lane
            if lower[i] > -np.inf:
                room = x[i] - lower[i]
                _, most = _follow(room, low[i], step[i], mu)
                fall, length = fall - mu * step[i] / room, min(length, most)
            if upper[i] < np.inf:
                room = upper[i] - x[i]
                _, most = _follow(room, high[i], -step[i], mu)
                fall, length = fall + mu * step[i] / room, min(length, most)
    return length, fall


@compiled(nogil=True, error_model="numpy", forceinline=True)
def _follow(one, other, by, mu):
    """Return how `other` changes while `one` changes by `by`, so that their product becomes μ to first order.

    Both are positive; the second number is the share of both changes, at most 1, that leaves them so.
    """
    change, length = mu / one - other - other / one * by, 1.0
    if by < 0.0:
        length = min(length, -_KEEP * one / by)
    if change < 0.0:
        length = min(length, -_KEEP * other / change)
    return change, length


@compiled(nogil=True, error_model="numpy")
def _follow_duals(tile, lane, alpha, mu):  # written: the duals of bounds, one lane
    """Let the multipliers of bounds take a step of length alpha."""
    before, step, lower, upper = tile.previous, tile.step, tile.lower, tile.upper
    low, high = tile.lower_dual, tile.upper_dual
    for j in range(len(before) // LANES):
        i = j * LANES + lane
        if lower[i] > -np.inf:
            low[i] += alpha * _follow(before[i] - lower[i], low[i], step[i], mu)[0]
        if upper[i] < np.inf:
            high[i] += alpha * _follow(upper[i] - before[i], high[i], -step[i], mu)[0]


@compiled(nogil=True, error_model="numpy")
def _merit(frame, tile, lane, mu, delta):
    """Return the ℓ1 violation with slacks and the objective with barrier, of one lane."""
    residual, lam, slack, x, target = tile.residual, tile.multiplier, tile.slack, tile.x, tile.target
    equality, ptr, column = frame.equality, frame.gram_ptr, frame.gram_column
    gram, row_weight = frame.gram, tile.row_weight
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
        lower, upper = tile.lower, tile.upper
        for j in range(len(x) // LANES):
            i = j * LANES + lane
            if lower[i] > -np.inf:
                value -= mu * math.log(x[i] - lower[i])
            if upper[i] < np.inf:
                value -= mu * math.log(upper[i] - x[i])
    return theta, value


@compiled(nogil=True, error_model="numpy")
def _rows_at(code, frame, tile, delta):  # written: cells, rows, residual
    """Evaluate the rows; equalities are h − δλ, so that they need not hold before the barrier has fallen."""
    residual_at(code, frame, tile)
    residual, lam, equality = tile.residual, tile.multiplier, frame.equality
    for r in range(len(equality)):
        if equality[r] == 1:
            for lane in range(LANES):
                i = r * LANES + lane
                residual[i] -= delta[lane] * lam[i]


@compiled(nogil=True, error_model="numpy")
def _mean_square(tile, size):  # written: size
    """Compute per lane the mean square of the rows' sizes, the unit of δ."""
    row_size = tile.row_size
    size[:] = 0.0
    for i in range(len(row_size)):
        size[i % LANES] += row_size[i] ** 2
    for lane in range(LANES):
        size[lane] /= max(len(row_size) // LANES, 1)


@compiled(nogil=True, error_model="numpy")
def _harden(frame, tile, lane, delta, new):  # written: delta and residual of one lane
    """Lower δ of a lane."""
    residual, lam, equality = tile.residual, tile.multiplier, frame.equality
    for r in range(len(equality)):
        if equality[r] == 1:
            residual[r * LANES + lane] += (delta[lane] - new) * lam[r * LANES + lane]
    delta[lane] = new


@compiled(nogil=True, error_model="numpy")
def _balance(frame, tile, lane, delta):  # written: multiplier and residual of one lane
    """Set the multipliers of soft rows to h/δ, those of the penalty at this point: a step then lowers it or is too long.

    Rows that share eliminated unknowns keep theirs: h depends on all of these multipliers together.
    """
    residual, lam, equality, ptr = tile.residual, tile.multiplier, frame.equality, frame.gram_ptr
    for r in range(len(equality)):
        i = r * LANES + lane
        if equality[r] == 1 and ptr[r] == ptr[r + 1]:
            lam[i] += residual[i] / delta
            residual[i] = 0.0
