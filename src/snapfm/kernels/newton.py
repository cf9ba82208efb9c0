"""Newton's method on the optimality system of one part, eight samples of a tile at once, each stopping for itself.

    min ½‖x − x̂‖² + ½ λᵀGλ   subject to   h(x) + shift − Gλ = 0 (or ≤ 0),   lower ≤ x ≤ upper

(math.md, eq. reduced; G stands for the unknowns that were eliminated.) Exact curvature; active sets for inequalities and
bounds; a line search on the ℓ1 merit function with second-order correction; wrong inertia is repaired per sample. The
driver owns all memory; lanes that are done keep their numbers, whatever their neighbours still do.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from snapfm.kernels.direction import RUNNING, augmented_direction, correct, factorize, schur_direction
from snapfm.kernels.layout import (
    BEFORE,
    BEFORE_MULTIPLIER,
    DIRECTION,
    GRAM,
    GRAM_COLUMN,
    GRAM_PTR,
    MULTIPLIER,
    PLAIN_DIRECTION,
    PLAIN_STEP,
    STEP,
    TARGET,
    X,
)  # fmt: skip
from snapfm.kernels.operations import LANES
from snapfm.kernels.packs import absolute, add, fma, fnma, full, load, pick, store
from snapfm.kernels.point import (
    choose_sets,
    derivatives_at,
    gap_of,
    merit_parts,
    nudge,
    residual_at,
    vanished,
)  # fmt: skip
from snapfm.kernels.sections import section

CONVERGED, INFEASIBLE, STALLED, LIMIT, BROKEN = 0, 1, 2, 3, 4  # errors.Status

_ARMIJO = 1e-4  # share of the predicted decrease that a step has to deliver
_HALVINGS = 25  # of a step before it counts as failed
_FIRST_DAMPING, _LAST_DAMPING = 1e-2, 1e8  # of W, after failed steps
_NOISE = 64 * 2.220446049250313e-16  # rounding of the merit function, relative


@njit(cache=True, nogil=True, error_model="numpy")
def solve_tiles(code, frame, plan, signs, settings, first, last, live, space, at, status, iterations):
    """Solve tiles first .. last − 1; `live` marks lanes that hold a sample. Written: space, status, iterations (tiles, …)."""
    for tile in range(first, last):
        _solve(code, frame, plan, signs, settings, live[tile], space[tile], at, status[tile], iterations[tile])


@njit(cache=True, nogil=True, error_model="numpy")
def _solve(code, frame, plan, signs, settings, live, memory, at, status, iterations):
    damping, penalty = np.zeros(LANES), np.ones(LANES)
    theta, objective, violation, gap = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    decrease = np.empty(LANES)
    for lane in range(LANES):
        status[lane] = RUNNING if live[lane] else CONVERGED
        iterations[lane] = 0
    residual_at(code, frame, memory, at)
    for iteration in range(settings.limit + 1):
        derivatives_at(code, frame, memory, at)
        if iteration == 0 and nudge(frame, memory, at, settings.tolerance):
            residual_at(code, frame, memory, at)
            derivatives_at(code, frame, memory, at)
        choose_sets(frame, memory, at)
        merit_parts(frame, memory, at, theta, objective, violation)
        gap_of(frame, memory, at, gap)
        running = False
        for lane in range(LANES):
            if status[lane] == RUNNING:
                if not (np.isfinite(violation[lane]) and np.isfinite(gap[lane])):
                    status[lane] = BROKEN
                elif violation[lane] <= settings.tolerance and gap[lane] <= settings.gap:
                    status[lane] = CONVERGED
                elif iteration == settings.limit:
                    status[lane] = INFEASIBLE if vanished(frame, memory, at, lane, settings.tolerance) else LIMIT
                else:
                    running = True
                    iterations[lane] += 1
        if not running:
            break
        factorize(frame, plan, signs, memory, at, damping, status)
        if frame.augmented == 0:
            schur_direction(frame, plan, memory, at)
        else:
            augmented_direction(frame, plan, memory, at)
        _predict(frame, memory, at, theta, penalty, decrease)
        accepted = _search(code, frame, plan, memory, at, status, theta, objective, penalty, decrease)
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            if accepted[lane]:
                damping[lane] = 0.0 if damping[lane] <= _FIRST_DAMPING else 0.1 * damping[lane]
            else:
                damping[lane] = max(_FIRST_DAMPING, 10.0 * damping[lane])
                penalty[lane] = 1.0
                if damping[lane] > _LAST_DAMPING:
                    gone = vanished(frame, memory, at, lane, settings.tolerance)
                    status[lane] = INFEASIBLE if gone else STALLED


@njit(cache=True, nogil=True, error_model="numpy")
def _predict(frame, memory, at, theta, penalty, decrease):  # written: penalty, decrease
    """Raise the penalty above the multipliers and predict the merit's decrease."""
    x, target, step = section(memory, at, X), section(memory, at, TARGET), section(memory, at, STEP)
    lam, direction = section(memory, at, MULTIPLIER), section(memory, at, DIRECTION)
    ptr, column = section(frame.table, frame.table_at, GRAM_PTR), section(frame.table, frame.table_at, GRAM_COLUMN)
    gram = section(frame.weight, frame.weight_at, GRAM)
    slope, largest = full(0.0), full(0.0)
    for j in range(len(x) // LANES):
        slope = fma(fnma(full(1.0), load(target, j), load(x, j)), load(step, j), slope)
    for r in range(len(ptr) - 1):
        moved = full(0.0)
        for p in range(ptr[r], ptr[r + 1]):
            moved = fma(full(gram[p]), load(direction, column[p]), moved)
        slope = fma(load(lam, r), moved, slope)
        size = absolute(add(load(lam, r), load(direction, r)))
        largest = pick(size, largest, largest, size)
    slopes, sizes = np.empty(LANES), np.empty(LANES)
    store(slopes, 0, slope)
    store(sizes, 0, largest)
    for lane in range(LANES):
        penalty[lane] = max(penalty[lane], 1.1 * sizes[lane])
        if theta[lane] > 0.0 and slopes[lane] > 0.5 * penalty[lane] * theta[lane]:
            penalty[lane] = 2.0 * slopes[lane] / theta[lane]
        decrease[lane] = slopes[lane] - penalty[lane] * theta[lane]


@njit(cache=True, nogil=True, error_model="numpy")
def _search(code, frame, plan, memory, at, status, theta, objective, penalty, decrease):
    """Backtrack per lane on the ℓ1 merit function; the first failure of a full step tries a second-order correction.

    Written: x, multiplier, residual, cells, step and direction (of corrected lanes), and their plain copies.
    """
    x, lam = section(memory, at, X), section(memory, at, MULTIPLIER)
    step, direction = section(memory, at, STEP), section(memory, at, DIRECTION)
    plain, plain_direction = section(memory, at, PLAIN_STEP), section(memory, at, PLAIN_DIRECTION)
    before, before_lam = section(memory, at, BEFORE), section(memory, at, BEFORE_MULTIPLIER)
    before[:], before_lam[:] = x, lam
    new_theta, new_objective, new_worst, alpha = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    accepted, corrected = np.zeros(LANES, np.bool_), np.zeros(LANES, np.bool_)
    for lane in range(LANES):
        accepted[lane] = status[lane] != RUNNING
        alpha[lane] = 1.0
        if accepted[lane]:  # done: a step of zero, so that not even infinity times zero can touch its numbers
            step[lane::LANES] = 0.0
            direction[lane::LANES] = 0.0
    plain[:], plain_direction[:] = step, direction
    for trial in range(_HALVINGS):
        length = load(alpha, 0)
        for j in range(len(x) // LANES):
            store(x, j, fma(length, load(step, j), load(before, j)))
        for r in range(len(lam) // LANES):
            store(lam, r, fma(length, load(direction, r), load(before_lam, r)))
        residual_at(code, frame, memory, at)
        merit_parts(frame, memory, at, new_theta, new_objective, new_worst)
        open_lanes = False
        for lane in range(LANES):
            if accepted[lane]:
                continue
            merit = objective[lane] + penalty[lane] * theta[lane]
            new_merit = new_objective[lane] + penalty[lane] * new_theta[lane]
            slack = _NOISE * (abs(merit) + abs(objective[lane]))
            if new_merit <= merit + _ARMIJO * alpha[lane] * min(decrease[lane], 0.0) + slack:
                accepted[lane] = True
            else:
                open_lanes = True
        if not open_lanes:
            return accepted
        if trial == 0:
            correct(frame, plan, memory, at)
        for lane in range(LANES):
            if accepted[lane]:
                continue
            if trial == 0 and new_theta[lane] >= theta[lane] and np.isfinite(new_theta[lane]):
                corrected[lane] = True
            else:
                alpha[lane] *= 0.5
        if trial <= 1:  # corrected lanes try their own direction once, at full length, and keep it if it was accepted
            for lane in range(LANES):
                if not (corrected[lane] and (trial == 0 or accepted[lane])):
                    _copy_lane(plain, step, lane)
                    _copy_lane(plain_direction, direction, lane)
    for lane in range(LANES):
        if not accepted[lane]:
            _copy_lane(before, x, lane)
            _copy_lane(before_lam, lam, lane)
    residual_at(code, frame, memory, at)
    return accepted


@njit(cache=True, nogil=True, error_model="numpy")
def _copy_lane(source, target, lane):  # written: target, one lane
    for i in range(lane, len(source), LANES):
        target[i] = source[i]
