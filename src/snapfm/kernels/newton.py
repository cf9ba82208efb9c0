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
    BEFORE_RESIDUAL,
    BEST_DIRECTION,
    BEST_STEP,
    DIRECTION,
    GIVE,
    GRAM,
    GRAM_COLUMN,
    GRAM_PTR,
    MULTIPLIER,
    PLAIN_DIRECTION,
    PLAIN_STEP,
    RESIDUAL,
    STEP,
    TARGET,
    Lanes,
    X,
)  # fmt: skip
from snapfm.kernels.operations import LANES
from snapfm.kernels.packs import absolute, add, fma, fnma, full, load, mul, pick, store
from snapfm.kernels.point import (
    choose_sets,
    derivatives_at,
    gap_of,
    merit_parts,
    nudge,
    residual_at,
    settle,
)  # fmt: skip
from snapfm.kernels.sections import section

CONVERGED, STALLED, LIMIT, BROKEN = 0, 2, 3, 4  # errors.Status; restoration finds what is infeasible

_ARMIJO = 1e-4  # share of the predicted decrease that a step has to deliver
_FIRST_DAMPING, _LAST_DAMPING = 1e-2, 1e8  # of W, after failed steps
_DOUBLINGS = 8  # of a step that was made with a repaired, and so too cautious, curvature
_NOISE = 64 * 2.220446049250313e-16  # rounding of the merit function, relative


@njit(cache=True, nogil=True, error_model="numpy")
def solve_tiles(code, frame, plan, signs, settings, first, last, live, space, at, status, iterations):
    """Solve tiles first .. last − 1; `live` marks lanes that hold a sample. Written: space, status, iterations (tiles, …)."""
    lanes = _lanes()
    for tile in range(first, last):
        _solve(code, frame, plan, signs, settings, live[tile], space[tile], at, lanes, status[tile], iterations[tile])


@njit(cache=True, nogil=True)
def _lanes():
    return Lanes(
        np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES),
        np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES),
        np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES, np.int64), np.empty(LANES, np.bool_),
        np.empty(LANES, np.bool_), np.empty(LANES, np.bool_), np.empty(LANES, np.bool_),
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _solve(code, frame, plan, signs, settings, live, memory, at, lanes, status, iterations):
    damping, penalty, polished = lanes.damping, lanes.penalty, lanes.polished
    violation, gap, accepted = lanes.violation, lanes.gap, lanes.accepted
    damping[:], penalty[:], polished[:], lanes.convex[:] = 0.0, 1.0, False, 0.0
    for lane in range(LANES):
        status[lane] = RUNNING if live[lane] else CONVERGED
        iterations[lane] = 0
    residual_at(code, frame, memory, at)
    for iteration in range(settings.limit + 1):
        derivatives_at(code, frame, memory, at)
        if iteration == 0 and nudge(frame, memory, at, settings.tolerance):
            residual_at(code, frame, memory, at)
            derivatives_at(code, frame, memory, at)
        merit_parts(frame, memory, at, lanes.theta, lanes.objective, violation)
        choose_sets(frame, memory, at)
        gap_of(frame, memory, at, gap)
        running = False
        for lane in range(LANES):
            if status[lane] == RUNNING:
                if not (np.isfinite(violation[lane]) and np.isfinite(gap[lane])):
                    status[lane] = BROKEN
                elif (
                    violation[lane] <= settings.tolerance
                    and gap[lane] <= settings.gap
                    and (violation[lane] <= settings.closer * settings.tolerance or polished[lane])
                    and (settings.trials > 0 or lanes.convex[lane] == 0.0)  # full steps end at saddles too
                ):
                    status[lane] = CONVERGED
                elif iteration == settings.limit:
                    status[lane] = LIMIT
                else:  # one more step, once within the tolerance, takes what is left of the violation to rounding
                    polished[lane] = violation[lane] <= settings.tolerance and gap[lane] <= settings.gap
                    running = True
                    iterations[lane] += 1
        if not running:
            break
        factorize(frame, plan, signs, memory, at, damping, status, lanes.convex, lanes.negative)
        if frame.augmented == 0:
            schur_direction(frame, plan, memory, at)
        else:
            augmented_direction(frame, plan, memory, at)
        _predict(frame, memory, at, lanes)
        _search(code, frame, plan, settings.trials, memory, at, status, lanes)
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            if accepted[lane]:
                damping[lane] = 0.0 if damping[lane] <= _FIRST_DAMPING else 0.1 * damping[lane]
            else:
                damping[lane] = max(_FIRST_DAMPING, 10.0 * damping[lane])
                penalty[lane] = 1.0
                if damping[lane] > _LAST_DAMPING:
                    status[lane] = STALLED
    if frame.bounded == 1:
        settle(memory, at, status)


@njit(cache=True, nogil=True, error_model="numpy")
def _predict(frame, memory, at, lanes):  # written: lanes' penalty and decrease
    """Raise the penalty above the multipliers and predict the merit's decrease."""
    theta, penalty, slopes, sizes = lanes.theta, lanes.penalty, lanes.slopes, lanes.sizes
    x, target, step = section(memory, at, X), section(memory, at, TARGET), section(memory, at, STEP)
    lam, direction = section(memory, at, MULTIPLIER), section(memory, at, DIRECTION)
    ptr, column = section(frame.table, frame.table_at, GRAM_PTR), section(frame.table, frame.table_at, GRAM_COLUMN)
    gram = section(frame.weight, frame.weight_at, GRAM)
    slope, largest, give = full(0.0), full(0.0), load(section(memory, at, GIVE), 0)
    for j in range(len(x) // LANES):
        slope = fma(fnma(full(1.0), load(target, j), load(x, j)), load(step, j), slope)
    for r in range(len(ptr) - 1):
        moved = mul(give, load(direction, r))
        for p in range(ptr[r], ptr[r + 1]):
            moved = fma(full(gram[p]), load(direction, column[p]), moved)
        slope = fma(load(lam, r), moved, slope)
        size = absolute(add(load(lam, r), load(direction, r)))
        largest = pick(size, largest, largest, size)
    store(slopes, 0, slope)
    store(sizes, 0, largest)
    for lane in range(LANES):
        penalty[lane] = max(penalty[lane], 1.1 * sizes[lane])
        if theta[lane] > 0.0 and slopes[lane] > 0.5 * penalty[lane] * theta[lane]:
            penalty[lane] = 2.0 * slopes[lane] / theta[lane]
        lanes.decrease[lane] = slopes[lane] - penalty[lane] * theta[lane]


@njit(cache=True, nogil=True, error_model="numpy")
def _search(code, frame, plan, trials, memory, at, status, lanes):
    """Backtrack per lane on the ℓ1 merit function; a length that fails by its violation is tried again with a correction.

    Corrections at every length, not at the full one alone: along a curved law a straight step is worth its square.
    Written: x, multiplier, residual, cells, step and direction (what was taken), their plain copies; lanes' accepted and more.
    """
    x, lam = section(memory, at, X), section(memory, at, MULTIPLIER)
    step, direction = section(memory, at, STEP), section(memory, at, DIRECTION)
    plain, plain_direction = section(memory, at, PLAIN_STEP), section(memory, at, PLAIN_DIRECTION)
    before, before_lam = section(memory, at, BEFORE), section(memory, at, BEFORE_MULTIPLIER)
    before[:], before_lam[:] = x, lam
    section(memory, at, BEFORE_RESIDUAL)[:] = section(memory, at, RESIDUAL)
    theta, objective, penalty, alpha = lanes.theta, lanes.objective, lanes.penalty, lanes.alpha
    new_theta, new_objective, accepted = lanes.new_theta, lanes.new_objective, lanes.accepted
    corrected, wanted = lanes.corrected, lanes.wanted
    alpha[:], corrected[:], wanted[:] = 1.0, False, False
    for lane in range(LANES):
        accepted[lane] = status[lane] != RUNNING
        if accepted[lane]:  # done: a step of zero, so that not even infinity times zero can touch its numbers
            step[lane::LANES] = 0.0
            direction[lane::LANES] = 0.0
    plain[:], plain_direction[:] = step, direction
    for _ in range(max(trials, 1)):
        for j in range(len(x) // LANES):
            store(x, j, add(load(before, j), load(step, j)))
        for r in range(len(lam) // LANES):
            store(lam, r, add(load(before_lam, r), load(direction, r)))
        residual_at(code, frame, memory, at)
        merit_parts(frame, memory, at, new_theta, new_objective, lanes.new_worst)
        open_lanes, any_wanted = False, False
        for lane in range(LANES):
            wanted[lane] = False
            if accepted[lane]:
                continue
            merit = objective[lane] + penalty[lane] * theta[lane]
            new_merit = new_objective[lane] + penalty[lane] * new_theta[lane]
            slack = _NOISE * (abs(merit) + abs(objective[lane]))
            if trials == 0 and np.isfinite(new_merit):
                accepted[lane] = True
                continue
            if new_merit <= merit + _ARMIJO * alpha[lane] * min(lanes.decrease[lane], 0.0) + slack:
                accepted[lane] = True
                continue
            open_lanes = True
            if not corrected[lane] and new_theta[lane] >= theta[lane] and np.isfinite(new_theta[lane]):
                corrected[lane] = wanted[lane] = any_wanted = True
                continue
            corrected[lane] = False
            alpha[lane] *= 0.5
            for i in range(lane, len(step), LANES):
                step[i] = alpha[lane] * plain[i]
            for i in range(lane, len(direction), LANES):
                direction[i] = alpha[lane] * plain_direction[i]
        if not open_lanes:
            break
        if any_wanted:
            correct(frame, plan, memory, at, alpha, wanted)
    stretched = False
    for lane in range(LANES):
        if not accepted[lane]:
            _copy_lane(before, x, lane)
            _copy_lane(before_lam, lam, lane)
        full_step = accepted[lane] and status[lane] == RUNNING and alpha[lane] == 1.0
        wanted[lane] = full_step and lanes.convex[lane] > 0.0 and trials > 0
        stretched = stretched or wanted[lane]
    if stretched:
        _stretch(code, frame, plan, memory, at, lanes)
    elif not accepted.all():
        residual_at(code, frame, memory, at)


@njit(cache=True, nogil=True, error_model="numpy")
def _stretch(code, frame, plan, memory, at, lanes):
    """Double the full steps of `wanted` lanes while that lowers the merit: repaired curvature makes them short.

    Written: lanes' wanted, alpha, merit and more, x, multiplier, residual, cells, step, direction.
    """
    going, alpha, merit, penalty = lanes.wanted, lanes.alpha, lanes.merit, lanes.penalty
    new_objective, new_theta = lanes.new_objective, lanes.new_theta
    x, lam = section(memory, at, X), section(memory, at, MULTIPLIER)
    step, direction = section(memory, at, STEP), section(memory, at, DIRECTION)
    plain, plain_direction = section(memory, at, PLAIN_STEP), section(memory, at, PLAIN_DIRECTION)
    before, before_lam = section(memory, at, BEFORE), section(memory, at, BEFORE_MULTIPLIER)
    best, best_direction = section(memory, at, BEST_STEP), section(memory, at, BEST_DIRECTION)
    for lane in range(LANES):
        merit[lane] = new_objective[lane] + penalty[lane] * new_theta[lane]
    for _ in range(_DOUBLINGS):
        any_going = False
        for lane in range(LANES):
            if going[lane]:
                any_going = True
                alpha[lane] *= 2.0
                _copy_lane(step, best, lane)
                _copy_lane(direction, best_direction, lane)
                for i in range(lane, len(x), LANES):
                    x[i] = before[i] + alpha[lane] * plain[i]
                for i in range(lane, len(lam), LANES):
                    lam[i] = before_lam[i] + alpha[lane] * plain_direction[i]
        if not any_going:
            break
        residual_at(code, frame, memory, at)
        correct(frame, plan, memory, at, alpha, going)
        for lane in range(LANES):
            if going[lane]:
                for i in range(lane, len(x), LANES):
                    x[i] = before[i] + step[i]
                for i in range(lane, len(lam), LANES):
                    lam[i] = before_lam[i] + direction[i]
        residual_at(code, frame, memory, at)
        merit_parts(frame, memory, at, new_theta, new_objective, lanes.new_worst)
        for lane in range(LANES):
            if going[lane]:
                new_merit = new_objective[lane] + penalty[lane] * new_theta[lane]
                if new_merit < merit[lane] - _NOISE * abs(merit[lane]):
                    merit[lane] = new_merit
                    continue
                going[lane] = False
                _copy_lane(best, step, lane)
                _copy_lane(best_direction, direction, lane)
                for i in range(lane, len(x), LANES):
                    x[i] = before[i] + step[i]
                for i in range(lane, len(lam), LANES):
                    lam[i] = before_lam[i] + direction[i]
    residual_at(code, frame, memory, at)


@njit(cache=True, nogil=True, error_model="numpy")
def _copy_lane(source, target, lane):  # written: target, one lane
    for i in range(lane, len(source), LANES):
        target[i] = source[i]
