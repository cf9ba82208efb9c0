"""One step of interior points: how far it may go, a line search with second-order correction, and where slacks and duals follow.

Used by kernels.interior, whose module says what is followed. Imports kernels only.
"""

from __future__ import annotations

import math

import numpy as np

from snapfm.kernels.direction import RUNNING, correct
from snapfm.kernels.layout import copy, copy_lane
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import residual_at
from snapfm.kernels.search import go_back, passes_filter, remember, stay

_KEEP = 0.99  # least share of the way to the boundary that a step may go
_STRAY = 1e8  # times that the product of a slack and its multiplier may differ from μ
_HALVINGS = 25


@compiled(nogil=True, error_model="numpy")
def advance(code, frame, plan, stop, tile, path, status, lanes):
    """Line search along the step, inside the boundary, with a filter; that of `fresh` lanes is emptied first.

    A merit function takes short steps where multipliers are large (water that almost runs dry: 250 iterations, now 40), and so
    does a filter where rows nearly hold, without second-order corrections. Written: x, multiplier, slack, duals, residual; path's
    fresh; lanes' accepted (which lanes moved), alpha and more.
    """
    mu, delta, fresh = path.parameter, path.softness, path.fresh
    slack, before_slack, alpha, accepted = tile.slack, tile.previous_slack, lanes.alpha, lanes.accepted
    remember(tile)
    copy(slack, before_slack)
    rows_at(code, frame, tile, delta)  # _add_barrier_terms changed it
    for lane in range(LANES):
        accepted[lane] = status[lane] != RUNNING
        if accepted[lane]:
            alpha[lane], lanes.shift[lane] = 0.0, 0.0
            stay(tile, lane)
            continue
        alpha[lane], lanes.shift[lane], lanes.slopes[lane] = _reach(frame, tile, lane, mu[lane], delta[lane])
        lanes.theta[lane], lanes.objective[lane] = _merit(frame, tile, lane, mu[lane], delta[lane])
        if fresh[lane]:
            lanes.entries[lane], lanes.first_theta[lane], fresh[lane] = 0, max(lanes.theta[lane], 1.0), False
    copy(tile.residual, tile.previous_residual)
    copy(tile.step, tile.plain_step)
    copy(tile.direction, tile.plain_direction)
    corrected, wanted = lanes.corrected, lanes.wanted
    corrected[:] = False
    for _ in range(_HALVINGS):
        _take_corrected(frame, tile, alpha, corrected)
        _follow_slacks(frame, tile, mu, lanes)
        rows_at(code, frame, tile, delta)
        waiting, any_wanted = False, False
        for lane in range(LANES):
            wanted[lane] = False
            if accepted[lane]:
                continue
            lanes.new_theta[lane], lanes.new_objective[lane] = _merit(frame, tile, lane, mu[lane], delta[lane])
            if passes_filter(lanes, lane):
                accepted[lane] = True
                continue
            waiting = True
            if (
                not corrected[lane]
                and lanes.new_theta[lane] >= lanes.theta[lane]
                and math.isfinite(lanes.new_theta[lane])
            ):
                corrected[lane] = wanted[lane] = any_wanted = True
            else:
                corrected[lane] = False
                alpha[lane] *= 0.5
        if not waiting or stop[0] != 0:
            break
        if any_wanted:
            correct(frame, plan, tile, alpha, wanted)
    for lane in range(LANES):
        if status[lane] == RUNNING and accepted[lane]:
            _follow_duals(frame, tile, lane, lanes.shift[lane], mu[lane])
        if not accepted[lane]:
            go_back(tile, lane)
            copy_lane(before_slack, slack, lane)
    rows_at(code, frame, tile, delta)


@compiled(nogil=True, error_model="numpy")
def _take_corrected(frame, tile, alpha, corrected):  # written: x, multiplier
    """Go from the point remembered along the plain step times alpha, or by the corrected step."""
    for now, before, step, plain in (
        (tile.x, tile.previous, tile.step, tile.plain_step),
        (tile.multiplier, tile.previous_multiplier, tile.direction, tile.plain_direction),
    ):
        for i in range(len(now)):
            lane = i % LANES
            now[i] = before[i] + (step[i] if corrected[lane] else alpha[lane] * plain[i])
    if frame.bounded == 1:  # a correction may not leave the interior
        x, before, lower, upper = tile.x, tile.previous, tile.lower, tile.upper
        for i in range(len(x)):
            if corrected[i % LANES]:
                x[i] = max(x[i], lower[i] + (1.0 - _KEEP) * (before[i] - lower[i]))
                x[i] = min(x[i], upper[i] - (1.0 - _KEEP) * (upper[i] - before[i]))


@compiled(nogil=True, error_model="numpy")
def _follow_slacks(frame, tile, mu, lanes):  # written: slack, multiplier of inequalities
    """Let slacks follow the multipliers to the length alpha; these go their own way, of length `shift`.

    Multipliers that stand for eliminated unknowns go as far as x.
    """
    slack, before_slack, lam, before_lam = tile.slack, tile.previous_slack, tile.multiplier, tile.previous_multiplier
    equality, ptr, plain = frame.equality, frame.gram_ptr, tile.plain_direction
    for r in range(len(equality)):
        if equality[r] == 1:
            continue
        for lane in range(LANES):
            i = r * LANES + lane
            s, z = before_slack[i], before_lam[i]
            slack[i] = s + lanes.alpha[lane] * (mu[lane] / z - s) - s / z * (lam[i] - z)
            if lanes.corrected[lane]:  # a correction may not leave the interior
                slack[i] = max(slack[i], (1.0 - _KEEP) * s)
            if ptr[r] == ptr[r + 1]:
                lam[i] = z + lanes.shift[lane] * plain[i]
            else:
                lam[i] = max(lam[i], (1.0 - _KEEP) * z)


@compiled(nogil=True, error_model="numpy")
def _reach(frame, tile, lane, mu, delta):
    """Return how far a lane can go along its step inside the boundary, its duals too, and the slope of the objective along it."""
    x, lam, slack, step, direction = tile.x, tile.multiplier, tile.slack, tile.step, tile.direction
    target, equality, ptr, column, gram = tile.target, frame.equality, frame.gram_ptr, frame.gram_column, frame.gram
    length, dual, fall = 1.0, 1.0, 0.0
    for r in range(len(equality)):
        i = r * LANES + lane
        for p in range(ptr[r], ptr[r + 1]):
            fall += lam[i] * gram[p] * direction[column[p] * LANES + lane]
        if equality[r] == 1:
            fall += delta * lam[i] * direction[i]
        else:
            change = _follow(lam[i], slack[i], direction[i], mu)
            fall -= mu * change / slack[i]
            length = min(length, _room(slack[i], change, mu))
            if ptr[r] == ptr[r + 1]:
                dual = min(dual, _room(lam[i], direction[i], mu))
            else:
                length = min(length, _room(lam[i], direction[i], mu))
    for j in range(len(x) // LANES):
        i = j * LANES + lane
        fall += (x[i] - target[i]) * step[i]
    if frame.bounded == 1:
        lower, upper, low, high = tile.lower, tile.upper, tile.lower_dual, tile.upper_dual
        for j in range(len(x) // LANES):
            i = j * LANES + lane
            if lower[i] > -np.inf:
                room = x[i] - lower[i]
                fall -= mu * step[i] / room
                length = min(length, _room(room, step[i], mu))
                dual = min(dual, _room(low[i], _follow(room, low[i], step[i], mu), mu))
            if upper[i] < np.inf:
                room = upper[i] - x[i]
                fall += mu * step[i] / room
                length = min(length, _room(room, -step[i], mu))
                dual = min(dual, _room(high[i], _follow(room, high[i], -step[i], mu), mu))
    return length, dual, fall


@compiled(nogil=True, error_model="numpy", forceinline=True)
def _follow(one, other, by, mu):
    """Return how `other` changes while `one` changes by `by`, so that their product becomes μ to first order."""
    return mu / one - other - other / one * by


@compiled(nogil=True, error_model="numpy", forceinline=True)
def _room(here, change, mu):
    """Return the share of a change, at most 1, that leaves a positive number positive."""
    return min(1.0, -max(_KEEP, 1.0 - mu) * here / change) if change < 0.0 else 1.0


@compiled(nogil=True, error_model="numpy")
def _follow_duals(frame, tile, lane, alpha, mu):  # written: the duals of bounds, multiplier of inequalities, one lane
    """Let the multipliers of bounds take a step of length alpha, and keep all products near μ."""
    lam, slack, equality, ptr = tile.multiplier, tile.slack, frame.equality, frame.gram_ptr
    if frame.mixed == 1:
        for r in range(len(equality)):
            if equality[r] == 0 and ptr[r] == ptr[r + 1]:
                i = r * LANES + lane
                lam[i] = _near(lam[i], mu / slack[i])
    if frame.bounded == 0:
        return
    before, x, step, lower, upper = tile.previous, tile.x, tile.plain_step, tile.lower, tile.upper
    low, high = tile.lower_dual, tile.upper_dual
    for j in range(len(before) // LANES):
        i = j * LANES + lane
        if lower[i] > -np.inf:
            low[i] += alpha * _follow(before[i] - lower[i], low[i], step[i], mu)
            low[i] = _near(low[i], mu / (x[i] - lower[i]))
        if upper[i] < np.inf:
            high[i] += alpha * _follow(upper[i] - before[i], high[i], -step[i], mu)
            high[i] = _near(high[i], mu / (upper[i] - x[i]))


@compiled(nogil=True, error_model="numpy", forceinline=True)
def _near(dual, wanted):
    """Return a multiplier that is not orders of magnitude away from the one that its slack wants."""
    return min(max(dual, wanted / _STRAY), _STRAY * wanted)


@compiled(nogil=True, error_model="numpy")
def _merit(frame, tile, lane, mu, delta):
    """Return the ℓ1 violation with slacks and the objective with barrier, of one lane."""
    residual, lam, slack, x, target = tile.residual, tile.multiplier, tile.slack, tile.x, tile.target
    equality, ptr, column = frame.equality, frame.gram_ptr, frame.gram_column
    gram, row_weight = frame.gram, tile.row_weight
    theta, value = 0.0, 0.0
    for r in range(len(equality)):
        i = r * LANES + lane
        theta += row_weight[i] * abs(residual[i])
        value += 0.5 * delta * lam[i] ** 2 if equality[r] == 1 else -mu * math.log(slack[i])
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
def rows_at(code, frame, tile, delta):  # written: cells, rows, residual
    """Evaluate the rows; equalities are h − δλ, so that they need not hold before the barrier has fallen, others g + s."""
    residual_at(code, frame, tile)
    residual, lam, equality = tile.residual, tile.multiplier, frame.equality
    for r in range(len(equality)):
        for lane in range(LANES):
            i = r * LANES + lane
            residual[i] += -delta[lane] * lam[i] if equality[r] == 1 else tile.slack[i]
