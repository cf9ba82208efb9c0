"""Newton's method on the KKT system of one part: stop 7 of the walk. Eight samples at once, each stops for itself.

    min ½‖x − x̂‖² + ½ λᵀGλ   subject to   h(x) + shift − Gλ = 0 (or ≤ 0),   lower ≤ x ≤ upper

(math.md, eq. reduced; G stands for the eliminated unknowns.) Exact Hessian; active sets for inequalities and bounds; a line
search on the ℓ1 merit function with second-order correction; wrong inertia is corrected per sample. The caller owns all
memory. A lane that is done keeps its numbers, whatever its neighbors do. Imports kernels only.
"""

from __future__ import annotations

import math

from snapfm.kernels import point, search
from snapfm.kernels.coupled import check_curvature, newton_direction
from snapfm.kernels.direction import RUNNING, correct, factorize
from snapfm.kernels.layout import FAILS, HOLDS, UNKNOWN, copy, copy_lane, fill_lane, load_tile, new_lanes, store_tile
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import absolute, add, fma, fnma, full, load, mul, pick, root, store
from snapfm.kernels.numba.sections import outlive, unowned
from snapfm.kernels.operations import LANES

CONVERGED, STALLED, LIMIT, BROKEN = 0, 2, 3, 4  # errors.Status; restoration finds what is infeasible

_ARMIJO = 1e-4  # share of the predicted decrease that a step has to deliver
_SHORT = 1e-3  # a step of less than this length makes no progress that is worth a factorization
_DOUBLINGS = 8  # of a step computed with a convexified, and so too cautious, Hessian
_EPSILON = 2.220446049250313e-16
_NOISE = 64 * _EPSILON  # rounding of the merit function, relative
_LEAST_STATIONARITY = 1e-12  # stationarity that rounding can reach, in the lane's unit
_NEAR = 1e-3  # after a step below this share of the field the inertia of the last factors holds
_DIAGONAL_CHANGE = 0.1  # and so it does if no entry of the Hessian's diagonal changed by more than this share
_PUSHES = 3  # pushes off a saddle before a lane has stalled
_PUSH = 1e-2  # size of a push, relative to the field
_FLAT = 1e-7  # curvature along the laws counts as not negative above minus this


@compiled(nogil=True, error_model="numpy")
def solve_tiles(code, frame, plan, settings, limits, stop, live, space, at, work, status, iterations, second):
    """Solve all tiles; `live` marks lanes that hold a sample, `limits` their iterations. (tiles, …) each.

    Another thread may set stop[0]: lanes that are not done then end with LIMIT, at the last accepted point. `second` says what
    is known of the curvature along the laws. `work` is scratch. Written: space, status, iterations, second.
    """
    owned = new_lanes()
    code, frame, plan, lanes = unowned(code), unowned(frame), unowned(plan), unowned(owned)
    for k in range(len(space)):
        tile = load_tile(code, frame, space[k], at, work)
        solve_tile(
            code, frame, plan, settings, unowned(limits[k]), unowned(stop), unowned(live[k]), tile, lanes,
            unowned(status[k]), unowned(iterations[k]),
        )  # fmt: skip
        second[k, :] = lanes.second
        store_tile(code, frame, tile, space[k])
    outlive(owned)


@compiled(nogil=True, error_model="numpy")
def solve_tile(code, frame, plan, settings, limits, stop, live, tile, lanes, status, iterations):
    """Solve one tile; see solve_tiles. Written: tile, lanes (`second` is part of the outcome), status, iterations."""
    damping, penalty, polished, second = lanes.damping, lanes.penalty, lanes.polished, lanes.second
    violation, stationarity, accepted, converged = lanes.violation, lanes.stationarity, lanes.accepted, lanes.converged
    damping[:], penalty[:], polished[:], lanes.pushes[:] = 0.0, 1.0, False, 0
    converged[:], lanes.pushed[:], lanes.searched[:], lanes.crawled[:] = False, False, False, 0
    inverse = tile.unit
    most = search.begin(live, limits, status, iterations)
    for lane in range(LANES):
        lanes.tolerance[lane] = settings.tolerance * inverse[LANES + lane]
        lanes.allowed[lane] = max(
            settings.stationarity * min(inverse[LANES + lane], 1.0), min(_LEAST_STATIONARITY, settings.stationarity)
        )
    point.residual_at(code, frame, tile)
    _know_curvature(frame, tile, second)
    for iteration in range(most + 1):
        point.derivatives_at(code, frame, tile)
        if iteration == 0:
            if point.nudge(frame, tile, lanes.tolerance):
                point.residual_at(code, frame, tile)
                point.derivatives_at(code, frame, tile)
            point.size_rows(tile, settings.ordinary)
        _evaluate_point(frame, tile, lanes)
        if iteration == 0 and settings.filtered == 1:
            search.clear_filter(lanes)
        if frame.bounded == 1 and point.snap_to_bounds(tile, converged):
            point.residual_at(code, frame, tile)
            point.derivatives_at(code, frame, tile)
            _evaluate_point(frame, tile, lanes)
        running = False
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            known = second[lane]
            if known == HOLDS and converged[lane] and iteration > 0 and not _near_last_factorization(frame, tile, lane):
                known = UNKNOWN  # the factors that showed it belong to a point too far away
            second[lane] = known
            if not (math.isfinite(violation[lane]) and math.isfinite(stationarity[lane])):
                status[lane] = BROKEN
            elif (
                converged[lane]
                and (violation[lane] <= settings.polish * lanes.tolerance[lane] or polished[lane])
                and (known == HOLDS or lanes.searched[lane])
            ):
                status[lane] = CONVERGED
            elif iteration >= limits[lane] or stop[0] != 0 or 0 < settings.patience <= lanes.crawled[lane]:
                status[lane] = LIMIT
            else:  # one more step within the tolerance reduces the violation to rounding
                polished[lane] = converged[lane]
                running = True
                iterations[lane] += 1
        if not running:
            break
        for lane in range(LANES):  # at an answer, curvature within rounding of zero is not negative
            lanes.shift[lane] = max(damping[lane], _FLAT) if converged[lane] else damping[lane]
        factorize(frame, plan, tile, lanes.shift, status, lanes.convex, lanes.negative, stop)
        if stop[0] != 0:
            continue  # ends above
        newton_direction(frame, plan, tile, lanes.shift, status, lanes.convex, stop)
        for lane in range(LANES):
            if status[lane] == RUNNING:
                right = lanes.convex[lane] <= 0.0
                second[lane] = FAILS if not right else (HOLDS if lanes.shift[lane] <= _FLAT else UNKNOWN)
        if frame.coupled == 1:
            _search_curvature(frame, plan, tile, status, lanes, stop)
        for lane in range(LANES):
            if status[lane] == RUNNING:
                saddle = converged[lane] and second[lane] == FAILS
                if saddle and lanes.pushes[lane] == _PUSHES:
                    status[lane] = STALLED
                lanes.pushed[lane] = saddle and status[lane] == RUNNING
                if lanes.pushed[lane]:
                    lanes.pushes[lane] += 1
                    _push_off(frame, tile, lane, lanes.pushes[lane])
        _predict(frame, tile, lanes)
        _search(code, frame, plan, settings, stop, tile, status, lanes)
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            if lanes.pushed[lane]:
                second[lane] = UNKNOWN
            crawls = not accepted[lane] or lanes.alpha[lane] < _SHORT
            lanes.crawled[lane] = lanes.crawled[lane] + 1 if crawls else 0
            if not accepted[lane]:
                penalty[lane] = 1.0
            if search.adapt_damping(damping, lane, accepted[lane]):
                status[lane] = STALLED


@compiled(nogil=True, error_model="numpy")
def _evaluate_point(frame, tile, lanes):  # written: sets; lanes' theta, objective, violation, stationarity, converged
    """Choose active sets, measure the point, and mark the lanes that meet the first-order conditions."""
    point.merit_parts(frame, tile, lanes.theta, lanes.objective, lanes.violation)
    point.choose_sets(frame, tile)
    point.stationarity_of(frame, tile, lanes.stationarity)
    for lane in range(LANES):
        lanes.converged[lane] = (
            lanes.violation[lane] <= lanes.tolerance[lane] and lanes.stationarity[lane] <= lanes.allowed[lane]
        )


@compiled(nogil=True, error_model="numpy")
def _know_curvature(frame, tile, second):  # written: second
    """Before the first factorization: the Hessian is the identity if the multipliers of nonlinear rows are zero."""
    hessian_row, lam = frame.hessian_row, tile.multiplier
    second[:] = HOLDS
    if len(hessian_row) > 0:
        for i in range(len(lam)):
            if lam[i] != 0.0:
                second[i % LANES] = UNKNOWN


@compiled(nogil=True, error_model="numpy")
def _search_curvature(frame, plan, tile, status, lanes, stop):  # written: lanes' second, searched, wanted
    """Where factors belong to D alone, search at an answer for negative curvature along the laws."""
    second, wanted = lanes.second, lanes.wanted
    any_wanted = False
    for lane in range(LANES):
        wanted[lane] = False
        if status[lane] == RUNNING and second[lane] == HOLDS:
            second[lane] = UNKNOWN  # a step's conjugate gradients see only a few directions
            wanted[lane] = lanes.converged[lane]
            any_wanted = any_wanted or wanted[lane]
    if any_wanted:
        check_curvature(frame, plan, tile, lanes.shift, wanted, second, stop)
        for lane in range(LANES):
            lanes.searched[lane] = lanes.searched[lane] or (wanted[lane] and second[lane] == UNKNOWN)


@compiled(nogil=True, error_model="numpy")
def _near_last_factorization(frame, tile, lane):
    """Whether a lane, and the diagonal of its Hessian, are close to where its factors were computed.

    Multipliers are not compared: those of redundant rows may be huge and cancel in the Hessian.
    """
    x, before, weight, inverse = tile.x, tile.previous, tile.diagonal, tile.inverse
    moved, far, turned = 0.0, 1.0, 0
    for j in range(len(x) // LANES):
        i = j * LANES + lane
        moved, far = max(moved, abs(x[i] - before[i])), max(far, abs(x[i]))
        if inverse[i] != 0.0 and frame.coupled == 0:  # otherwise held at a bound, or not that of the Hessian
            was = 1.0 / inverse[i]
            if abs(weight[i] - was) > _DIAGONAL_CHANGE * abs(was) + 2.0 * _FLAT:
                turned = 1
    return turned == 0 and moved <= _NEAR * far


@compiled(nogil=True, error_model="numpy")
def _push_off(frame, tile, lane, times):  # written: step, direction (one lane)
    """Push a lane off a saddle by a hundredth of its size, along negative curvature if it is known, else without symmetry."""
    x, target, step = tile.x, tile.target, tile.step
    size = 0.0
    for j in range(len(x) // LANES):
        size = max(size, abs(x[j * LANES + lane]), abs(target[j * LANES + lane]))
    size = size if size > 0.0 else 1.0
    fill_lane(tile.direction, lane, 0.0)
    if frame.coupled == 1:
        along, largest = tile.conjugate, 1e-300
        for j in range(len(x) // LANES):
            largest = max(largest, abs(along[j * LANES + lane]))
        for j in range(len(x) // LANES):
            step[j * LANES + lane] = _PUSH * size * along[j * LANES + lane] / largest
    else:
        for j in range(len(x) // LANES):
            step[j * LANES + lane] = _PUSH * size * point.scattered(j, times)


@compiled(nogil=True, error_model="numpy")
def _predict(frame, tile, lanes):  # written: lanes' penalty, decrease, rounding
    """Raise the penalty above the multipliers; predict the decrease of the merit function, and the rounding of θ.

    Row r is known to ε‖J_r‖|x|, and all rows together to the root of their number times that of Σ‖J_r‖², or better.
    """
    theta, penalty, slopes, sizes = lanes.theta, lanes.penalty, lanes.slopes, lanes.sizes
    x, target, step, lam, direction = tile.x, tile.target, tile.step, tile.multiplier, tile.direction
    ptr, column, gram = frame.gram_ptr, frame.gram_column, frame.gram
    slope, largest, delta = full(0.0), full(0.0), load(tile.regularization, 0)
    row_size, row_weight, norm = tile.row_size, tile.row_weight, tile.row_norm
    far, norms = full(0.0), full(0.0)
    for j in range(len(x) // LANES):
        slope = fma(fnma(full(1.0), load(target, j), load(x, j)), load(step, j), slope)
        size = absolute(load(x, j))
        far = pick(size, far, far, size)
    for r in range(len(ptr) - 1):
        moved = mul(delta, load(direction, r))
        for p in range(ptr[r], ptr[r + 1]):
            moved = fma(full(gram[p]), load(direction, column[p]), moved)
        slope = fma(load(lam, r), moved, slope)
        size = mul(load(row_size, r), absolute(add(load(lam, r), load(direction, r))))
        largest = pick(size, largest, largest, size)
        norms = fma(mul(load(row_weight, r), load(row_weight, r)), load(norm, r), norms)
    store(lanes.rounding, 0, mul(mul(full(_EPSILON), far), root(mul(full(float(len(ptr) - 1)), norms))))
    store(slopes, 0, slope)
    store(sizes, 0, largest)
    for lane in range(LANES):
        penalty[lane] = max(penalty[lane], 1.1 * sizes[lane])
        if theta[lane] > 0.0 and slopes[lane] > 0.5 * penalty[lane] * theta[lane]:
            penalty[lane] = 2.0 * slopes[lane] / theta[lane]
        lanes.decrease[lane] = slopes[lane] - penalty[lane] * theta[lane]


@compiled(nogil=True, error_model="numpy")
def _search(code, frame, plan, settings, stop, tile, status, lanes):
    """Backtrack per lane on the ℓ1 merit function, or by a filter.

    A length that is rejected for its violation is tried again with a correction.
    Every length is corrected, not only the full one: on a nonlinear law a straight step is off by its square.
    Written: x, multiplier, residual, cells, step and direction (as taken), their plain copies; lanes' accepted and more.
    """
    search.remember(tile)
    copy(tile.residual, tile.previous_residual)
    theta, objective, penalty, alpha = lanes.theta, lanes.objective, lanes.penalty, lanes.alpha
    trials = settings.trials
    new_theta, new_objective, accepted = lanes.new_theta, lanes.new_objective, lanes.accepted
    corrected, wanted = lanes.corrected, lanes.wanted
    alpha[:], corrected[:], wanted[:] = 1.0, False, False
    for lane in range(LANES):
        accepted[lane] = status[lane] != RUNNING
        if accepted[lane]:
            search.stay(tile, lane)
    copy(tile.step, tile.plain_step)
    copy(tile.direction, tile.plain_direction)
    for _ in range(max(trials, 1)):
        search.take_step(tile, full(1.0))
        point.residual_at(code, frame, tile)
        point.merit_parts(frame, tile, new_theta, new_objective, lanes.new_worst)
        open_lanes, any_wanted = False, False
        for lane in range(LANES):
            wanted[lane] = False
            if accepted[lane]:
                continue
            merit = objective[lane] + penalty[lane] * theta[lane]
            new_merit = new_objective[lane] + penalty[lane] * new_theta[lane]
            slack = _NOISE * (abs(merit) + abs(objective[lane]))
            slack += penalty[lane] * min(
                lanes.rounding[lane], new_theta[lane]
            )  # with steep rows more than the whole step gains
            if (trials == 0 or lanes.pushed[lane]) and math.isfinite(new_merit):
                accepted[lane] = True
                continue
            if settings.filtered == 1:
                accepted[lane] = search.passes_filter(lanes, lane)
            else:
                accepted[lane] = new_merit <= merit + _ARMIJO * alpha[lane] * min(lanes.decrease[lane], 0.0) + slack
            if accepted[lane]:
                continue
            open_lanes = True
            if not corrected[lane] and new_theta[lane] >= theta[lane] and math.isfinite(new_theta[lane]):
                corrected[lane] = wanted[lane] = any_wanted = True
                continue
            corrected[lane] = False
            alpha[lane] *= 0.5
            search.scale_step(tile, lane, alpha[lane])
        if not open_lanes or stop[0] != 0:
            break
        if any_wanted:
            correct(frame, plan, tile, alpha, wanted)
    stretched, restored = False, False
    for lane in range(LANES):
        if not accepted[lane]:
            restored = True
            search.go_back(tile, lane)
        full_step = accepted[lane] and status[lane] == RUNNING and alpha[lane] == 1.0
        doubled = trials > 0 and settings.filtered == 0 and not lanes.pushed[lane]
        wanted[lane] = full_step and lanes.convex[lane] > 0.0 and doubled
        stretched = stretched or wanted[lane]
    if stretched:
        _stretch(code, frame, plan, tile, lanes)
    elif restored:
        point.residual_at(code, frame, tile)


@compiled(nogil=True, error_model="numpy")
def _stretch(code, frame, plan, tile, lanes):
    """Double the full steps of `wanted` lanes while that lowers the merit: a convexified Hessian makes them short.

    Written: lanes' wanted, alpha, merit and more, x, multiplier, residual, cells, step, direction.
    """
    going, alpha, merit, penalty = lanes.wanted, lanes.alpha, lanes.merit, lanes.penalty
    new_objective, new_theta = lanes.new_objective, lanes.new_theta
    for lane in range(LANES):
        merit[lane] = new_objective[lane] + penalty[lane] * new_theta[lane]
    for _ in range(_DOUBLINGS):
        any_going = False
        for lane in range(LANES):
            if going[lane]:
                any_going = True
                alpha[lane] *= 2.0
                copy_lane(tile.step, tile.best_step, lane)
                copy_lane(tile.direction, tile.best_direction, lane)
                search.scale_step(tile, lane, alpha[lane])
                search.take_step_of(tile, lane)
        if not any_going:
            break
        point.residual_at(code, frame, tile)
        correct(frame, plan, tile, alpha, going)
        for lane in range(LANES):
            if going[lane]:
                search.take_step_of(tile, lane)
        point.residual_at(code, frame, tile)
        point.merit_parts(frame, tile, new_theta, new_objective, lanes.new_worst)
        for lane in range(LANES):
            if going[lane]:
                new_merit = new_objective[lane] + penalty[lane] * new_theta[lane]
                if new_merit < merit[lane] - _NOISE * abs(merit[lane]):
                    merit[lane] = new_merit
                    continue
                going[lane] = False
                copy_lane(tile.best_step, tile.step, lane)
                copy_lane(tile.best_direction, tile.direction, lane)
                search.take_step_of(tile, lane)
    point.residual_at(code, frame, tile)
