"""Restoration: minimize the violation alone, without regard to distance, until the laws hold or nothing lowers it further.

Levenberg–Marquardt on ½‖h₊‖² of one part, eight samples at once, each for itself. It ends at a feasible point,
from which kernels.newton can go on, or where ‖Jᵀh₊‖ vanishes beside ‖J‖‖h₊‖ with h₊ ≠ 0: a stationary point of the
violation, which is what "locally infeasible" means (math.md, eq. infeasible). Imports kernels only.
"""

from __future__ import annotations

import math

import numpy as np

from snapfm.kernels.direction import RUNNING, augmented_direction, factorize, schur_direction
from snapfm.kernels.layout import load_tile, new_lanes, store_tile
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import full
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import derivatives_at, residual_at, size_rows
from snapfm.kernels.search import begin, go_back, remember, stay, take_step

FEASIBLE, INFEASIBLE, LIMIT, BROKEN = 0, 1, 3, 4  # errors.Status

# Damping of a step, relative to the largest ‖J_r‖². Where slopes vanish but the violation does not, a short step needs 1/‖J‖²
# of it. _FAR⁻² is the largest useful value; _MOST is two orders beyond.
_FIRST, _LEAST, _MOST = 1e-3, 1e-12, 1e14
_STATIONARY = 1e-7  # ‖Jᵀh₊‖ below this share of ‖J‖‖h₊‖ counts as zero
_TINY = 1e-30  # least ‖J_r‖²
_FAR = 1e-6  # or below this share of ‖h₊‖², where slopes vanish: no step of a million times the field's size would help


@compiled(nogil=True, error_model="numpy")
def restore_tiles(code, frame, plan, tolerance, limits, stop, live, space, at, work, status, iterations):
    """Lower the violation in all tiles; see newton.solve_tiles. Written: space, status, iterations (tiles, …)."""
    lanes = new_lanes()
    for k in range(len(space)):
        tile = load_tile(code, frame, space[k], at, work)
        restore_tile(
            code, frame, plan, tolerance, limits[k], stop, live[k], tile, lanes, status[k], iterations[k]
        )  # fmt: skip
        store_tile(code, frame, tile, space[k])


@compiled(nogil=True, error_model="numpy")
def restore_tile(code, frame, plan, tolerance, limits, stop, live, tile, lanes, status, iterations):
    """Lower the violation in one tile; see restore_tiles. Written: tile, lanes, status, iterations."""
    barrier, damping, none = tile.barrier, lanes.damping, lanes.shift
    size, old, worst, norm = lanes.theta, lanes.new_theta, lanes.violation, lanes.sizes
    damping[:], none[:], norm[:] = _FIRST, 0.0, 1.0
    most = begin(live, limits, status, iterations)
    tile.idle[:], tile.to_bound[:] = 0.0, np.nan
    if frame.bounded == 1:
        clip(tile)
    residual_at(code, frame, tile)
    inverse, row_size = tile.unit, tile.row_size
    for iteration in range(most + 1):
        derivatives_at(code, frame, tile)
        if iteration == 0:
            size_rows(tile, 1.0)
        mark_broken(frame, tile, size, worst)
        running = False
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            allowed = tolerance * inverse[LANES + lane]
            pull, norms = pull_of(frame, tile, lane)
            norm[lane] = norms
            if not math.isfinite(size[lane]):
                status[lane] = BROKEN
            elif worst[lane] <= 0.1 * allowed:
                status[lane] = FEASIBLE
            elif pull <= max(_STATIONARY * _STATIONARY * norms, _FAR * _FAR * size[lane]) * size[lane]:
                status[lane] = FEASIBLE if worst[lane] <= allowed else INFEASIBLE
            elif iteration >= limits[lane] or damping[lane] > _MOST or stop[0] != 0:
                status[lane] = LIMIT
            else:
                running = True
                iterations[lane] += 1
        if not running:
            break
        if frame.bounded == 1:
            _hold(frame, tile)
        tile.diagonal[:], tile.gradient[:], tile.hessian[:] = 1.0, 0.0, 0.0
        for i in range(len(barrier)):
            barrier[i] = damping[i % LANES] * norm[i % LANES] * row_size[i] ** 2
        factorize(frame, plan, tile, none, status, lanes.convex, lanes.negative, stop)
        if stop[0] != 0:
            continue  # ends above
        if frame.augmented == 1:
            augmented_direction(frame, plan, tile)
        else:  # D is W: its Hessian is zero
            schur_direction(frame, plan, tile)
        remember(tile)
        for lane in range(LANES):
            old[lane] = size[lane]
            if status[lane] != RUNNING:
                stay(tile, lane)
        take_step(tile, full(1.0))
        if frame.bounded == 1:
            clip(tile)
        residual_at(code, frame, tile)
        mark_broken(frame, tile, size, worst)
        for lane in range(LANES):
            if status[lane] == RUNNING and not size[lane] < old[lane]:
                go_back(tile, lane)
                damping[lane] *= 10.0
            elif status[lane] == RUNNING:
                damping[lane] = max(_LEAST, 0.1 * damping[lane])
        residual_at(code, frame, tile)
    barrier[:] = 0.0


@compiled(nogil=True, error_model="numpy")
def clip(tile):  # written: x
    """Move x inside its bounds."""
    x, lower, upper = tile.x, tile.lower, tile.upper
    for i in range(len(x)):
        x[i] = min(max(x[i], lower[i]), upper[i])


@compiled(nogil=True, error_model="numpy")
def _hold(frame, tile):  # written: to_bound
    """Hold the unknowns that are at a bound and would be moved through it."""
    x, lower, upper, to_bound, jacobian = tile.x, tile.lower, tile.upper, tile.to_bound, tile.jacobian
    residual, active, row_weight = tile.residual, tile.active, tile.row_weight
    ptr, row, entry = frame.column_ptr, frame.column_row, frame.column_entry
    for j in range(len(ptr) - 1):
        for lane in range(LANES):
            i, pull = j * LANES + lane, 0.0
            for p in range(ptr[j], ptr[j + 1]):
                r = row[p] * LANES + lane
                pull += jacobian[entry[p] * LANES + lane] * active[r] * row_weight[r] ** 2 * residual[r]
            out = (pull > 0.0 and x[i] <= lower[i]) or (pull < 0.0 and x[i] >= upper[i])
            to_bound[i] = 0.0 if out else np.nan


@compiled(nogil=True, error_model="numpy")
def mark_broken(frame, tile, size, worst):  # written: active, size, worst
    """Mark the broken rows; compute per lane Σh₊² of rows relative to their size, and max h₊, unscaled."""
    residual, active, equality, row_weight = tile.residual, tile.active, frame.equality, tile.row_weight
    for lane in range(LANES):
        total, largest = 0.0, 0.0
        for r in range(len(equality)):
            h = residual[r * LANES + lane]
            # an inequality that holds takes part only where it is broken; NaN counts as broken
            broken = equality[r] == 1 or not h <= 0.0
            active[r * LANES + lane] = 1.0 if broken else 0.0
            if broken:
                total += (row_weight[r * LANES + lane] * h) ** 2
                largest = abs(h) if not abs(h) <= largest else largest
        size[lane], worst[lane] = total, largest


@compiled(nogil=True, error_model="numpy")
def pull_of(frame, tile, lane):  # read: active; written: plain_direction, one lane
    """Return of one lane, with rows relative to their size, ‖Jᵀh₊‖² over the unknowns that can move, and the largest ‖J_r‖²."""
    residual, jacobian, norm, active = tile.residual, tile.jacobian, tile.row_norm, tile.active
    gram_ptr, gram_column, gram, row_weight = frame.gram_ptr, frame.gram_column, frame.gram, tile.row_weight
    broken = tile.plain_direction  # free until conjugate gradients
    pull, norms = 0.0, _TINY
    for r in range(len(gram_ptr) - 1):
        i = r * LANES + lane
        weight = row_weight[i] ** 2
        broken[i] = weight * residual[i] if active[i] == 1.0 else 0.0
        norms = max(norms, weight * norm[i])
    for r in range(len(gram_ptr) - 1):
        for p in range(gram_ptr[r], gram_ptr[r + 1]):
            pull += broken[r * LANES + lane] * gram[p] * broken[gram_column[p] * LANES + lane]
    ptr, row, entry = frame.column_ptr, frame.column_row, frame.column_entry
    x, lower, upper = tile.x, tile.lower, tile.upper
    for j in range(len(ptr) - 1):
        total = 0.0
        for p in range(ptr[j], ptr[j + 1]):
            total += jacobian[entry[p] * LANES + lane] * broken[row[p] * LANES + lane]
        i = j * LANES + lane
        # at a bound, a pull outwards moves nothing
        if frame.bounded == 1 and ((total > 0.0 and x[i] <= lower[i]) or (total < 0.0 and x[i] >= upper[i])):
            total = 0.0
        pull += total * total
    return pull, norms
