"""Interior-point iterations on one part: from far, and where many curved inequalities or bounds are active.

Slacks and multipliers of inequalities and bounds stay positive, their products follow a barrier parameter μ down; equalities are
h − δλ = 0 with δ in step with μ, a quadratic penalty that hardens (math.md, "Barrier"). Far from an answer the rows need not
hold to first order within the inequalities, so every step has somewhere to go. On the same pattern: δ and slacks add a positive
diagonal to the rows, bounds to W. The result is a start for kernels.newton, which then has the right active set and converges to
rounding. Eight samples at once, each on a path of its own. Imports kernels only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from snapfm.arrays import Mask, Values
from snapfm.kernels.coupled import newton_direction
from snapfm.kernels.direction import RUNNING, factorize
from snapfm.kernels.interior_step import advance, rows_at
from snapfm.kernels.layout import load_tile, new_lanes, store_tile
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.sections import allocator
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import derivatives_at, residual_at, size_rows
from snapfm.kernels.restoration import clip
from snapfm.kernels.search import adapt_damping, begin

ARRIVED, LIMIT, BROKEN = 0, 3, 4  # errors.Status

# All tuned on power flow with thermal limits, obstacles and a jointed arm, near and far: where the path begins decides most.
# Slacks smaller than the moves to come make hundreds of short steps, and a large μ takes many iterations to bring down.
_FAR = 1e-2, 1.0  # least and largest distance to the laws that counts, in the lane's unit
_FIRST = 0.1  # first μ, relative to the distance squared
_ROOM, _SLACK = 0.03, 2.0  # distance from bounds, and that of a row's plane, to begin with; relative to the distance
_SOFTNESS = 1e-3, 1.0  # first δ, relative to the mean of ‖J_r‖²: firm and soft rows
_SOLVED = 30.0  # a barrier problem is solved well enough at this multiple of μ
_FALL, _POWER = 0.2, 1.5  # the next μ is the smaller of these multiples and powers of it
_SLOWLY, _LOOSE = 0.3, 1e-4  # with soft rows a μ above the second number falls by the first: their path may bend
# Newton's method takes over where every multiplier or its slack is small beside the other, or at the last μ: rows that are almost
# parallel, such as limits of both ends of a line, part only there.
_CLEAR, _LAST = 100.0, 1e-14
_HARD = 1e-8  # and where δ is below this share of the mean of ‖J_r‖²
_ROUNDED = 1e-10  # what is left of rows and gradient below this may be rounding
_TINY, _LEAST_SLOPE = (
    1e-30,
    1e-6,
)  # least ‖J_r‖² of a row whose distance is known, and least size of a row


class BarrierPath(NamedTuple):
    """Where lanes are on the path of a barrier, one number per lane and name."""

    parameter: Values  # μ of the barrier
    softness: Values  # δ of soft equalities
    distance: Values  # to the laws at the start; then δ/μ
    ready: Values  # μ below which Newton's method may take over
    fresh: Mask  # the filter belongs to another barrier problem, and is to be emptied


_new_path = allocator(BarrierPath, LANES)


@compiled(nogil=True, error_model="numpy")
def interior_tiles(code, frame, plan, ordinary, soft, limits, stop, live, space, at, work, status, iterations):
    """Follow the barrier in all tiles, slowly along softer rows if `soft` is 1; see newton.solve_tiles.

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
    mu, delta, fresh = path.parameter, path.softness, path.fresh
    damping, accepted = lanes.damping, lanes.accepted
    delta[:], fresh[:], damping[:], lanes.convex[:] = 0.0, True, 0.0, 0.0
    most = begin(live, limits, status, iterations)
    tile.active[:], tile.idle[:], tile.to_bound[:] = 1.0, 0.0, np.nan
    if frame.bounded == 1:
        clip(tile)
    residual_at(code, frame, tile)
    derivatives_at(code, frame, tile)
    size_rows(tile, ordinary)
    _begin_path(frame, tile, path, _SOFTNESS[soft])
    _enter(frame, tile, path)
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
            # A point where the curvature was wrong may be a maximum along the laws: steps lead away from it.
            solved = off <= _SOLVED * mu[lane] and lanes.convex[lane] <= 0.0
            while solved and mu[lane] > _LAST and not (mu[lane] <= path.ready[lane] and _clear(frame, tile, lane)):
                slowly = soft == 1 and mu[lane] > _LOOSE
                fall = _SLOWLY * mu[lane] if slowly else min(_FALL * mu[lane], mu[lane] ** _POWER)
                mu[lane] = max(_LAST, fall)
                fresh[lane] = True  # another barrier problem has another filter
                _harden(frame, tile, lane, delta, path.distance[lane] * mu[lane])
                solved = _complementarity_error(frame, tile, lane, mu[lane]) <= _SOLVED * mu[lane]
            if solved:
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
        newton_direction(frame, plan, tile, damping, status, lanes.convex, stop)
        advance(code, frame, plan, stop, tile, path, status, lanes)
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            if not accepted[lane]:
                _balance(frame, tile, lane, delta[lane])
                fresh[lane] = True
            if adapt_damping(damping, lane, accepted[lane]):
                status[lane] = LIMIT
    tile.barrier[:], tile.bound_weight[:] = 0.0, 0.0


@compiled(nogil=True, error_model="numpy")
def _begin_path(frame, tile, path, softness):  # written: path but fresh; slack, multiplier of inequalities
    """Begin where slacks and multipliers leave room for the way to the laws: the farthest row or bound says how far that is."""
    mu, delta, distance = path.parameter, path.softness, path.distance
    residual, norm, equality, slack, lam = tile.residual, tile.row_norm, frame.equality, tile.slack, tile.multiplier
    distance[:], delta[:] = _FAR[0], 0.0
    for r in range(len(equality)):
        for lane in range(LANES):
            i = r * LANES + lane
            delta[lane] += max(norm[i], residual[i] ** 2) / len(equality)  # û may be where slopes vanish
            if equality[r] == 1 or residual[i] > 0.0:
                distance[lane] = max(distance[lane], min(_FAR[1], abs(residual[i]) / math.sqrt(max(norm[i], _TINY))))
    if frame.bounded == 1:
        x, target = tile.x, tile.target
        for i in range(len(x)):
            distance[i % LANES] = max(distance[i % LANES], min(_FAR[1], abs(x[i] - target[i])))
    for lane in range(LANES):
        mu[lane] = _FIRST * distance[lane] ** 2
        path.ready[lane] = _HARD / softness * mu[lane]
        delta[lane] = max(softness * delta[lane], _TINY)
    if frame.mixed == 1:
        for i in range(len(slack)):
            lane = i % LANES
            slack[i] = max(
                -residual[i], _SLACK * distance[lane] * max(math.sqrt(norm[i]), abs(residual[i]), _LEAST_SLOPE)
            )
            if equality[i // LANES] == 0:
                lam[i] = mu[lane] / slack[i]


@compiled(nogil=True, error_model="numpy")
def _enter(frame, tile, path):  # written: x, the duals of bounds; path's distance, which becomes δ/μ
    """Move x inside its bounds, and start their multipliers."""
    mu, distance = path.parameter, path.distance
    if frame.bounded == 1:
        x, lower, upper, low, high = tile.x, tile.lower, tile.upper, tile.lower_dual, tile.upper_dual
        for i in range(len(x)):
            width, first, room = upper[i] - lower[i], mu[i % LANES], _ROOM * distance[i % LANES]
            below, above = lower[i] > -np.inf, upper[i] < np.inf
            if below:
                x[i] = max(x[i], lower[i] + min(room * max(1.0, abs(lower[i])), 0.25 * width))
            if above:
                x[i] = min(x[i], upper[i] - min(room * max(1.0, abs(upper[i])), 0.25 * width))
            low[i] = first / max(x[i] - lower[i], 1e-300) if below else 0.0
            high[i] = first / max(upper[i] - x[i], 1e-300) if above else 0.0
    for lane in range(LANES):
        distance[lane] = path.softness[lane] / mu[lane]


@compiled(nogil=True, error_model="numpy")
def _clear(frame, tile, lane):
    """Whether every inequality and bound of a lane is clearly active or clearly not."""
    lam, slack, norm, equality = tile.multiplier, tile.slack, tile.row_norm, frame.equality
    for r in range(len(equality)):
        i = r * LANES + lane
        if equality[r] == 0 and _alike(lam[i] * norm[i], slack[i]):
            return False
    if frame.bounded == 1:
        x, lower, upper, low, high = tile.x, tile.lower, tile.upper, tile.lower_dual, tile.upper_dual
        for j in range(len(x) // LANES):
            i = j * LANES + lane
            if _alike(low[i], x[i] - lower[i]) or _alike(high[i], upper[i] - x[i]):
                return False
    return True


@compiled(nogil=True, error_model="numpy", forceinline=True)
def _alike(one, other):
    """Whether neither of two positive numbers is small beside the other."""
    return one < _CLEAR * other and other < _CLEAR * one


@compiled(nogil=True, error_model="numpy")
def _complementarity_error(frame, tile, lane, mu):
    """Return how far one lane is from solving the barrier problem with parameter mu."""
    slope, residual, lam = tile.gradient, tile.residual, tile.multiplier
    equality, row_weight, slack = frame.equality, tile.row_weight, tile.slack
    worst = 0.0
    for r in range(len(equality)):
        i = r * LANES + lane
        off = _without_rounding(row_weight[i] * residual[i])
        if equality[r] == 0:
            off = max(off, abs(slack[i] * lam[i] - mu))
        worst = _larger(worst, off)
    if frame.bounded == 0:
        for j in range(len(slope) // LANES):
            worst = _larger(worst, _without_rounding(slope[j * LANES + lane]))
        return worst
    x, lower, upper, low, high = tile.x, tile.lower, tile.upper, tile.lower_dual, tile.upper_dual
    for j in range(len(slope) // LANES):
        i = j * LANES + lane
        off = _without_rounding(slope[i] - low[i] + high[i])
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


@compiled(nogil=True, error_model="numpy", forceinline=True)
def _without_rounding(number):
    """Return the size of a number, zero if it may be rounding."""
    return 0.0 if abs(number) <= _ROUNDED else abs(number)


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
                    residual[i] += mu[lane] / lam[i] - slack[i]
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
