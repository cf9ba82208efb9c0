"""The linearized problem of one part at its answer: what the field does when û moves (math.md, eq. adjoint).

    [[W, Jᵀ], [J, −G]] (w, ν) = (g, −shift)

over the active rows and the unknowns that are not held at a bound, with the true W and no line search. Eight samples at once.
Where factors belong to a matrix nearby (dependent rows, conjugate gradients), solves are repeated with what is left. Imports
kernels only.
"""

from __future__ import annotations

import math

import numpy as np

from snapfm.kernels.coupled import add_image, newton_direction
from snapfm.kernels.direction import RUNNING, factorize_once, least_diagonal
from snapfm.kernels.layout import load_tile, new_lanes, store_tile
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import fma, fnma, full, load, mul, store
from snapfm.kernels.numba.sections import outlive, unowned
from snapfm.kernels.operations import LANES
from snapfm.kernels.point import derivatives_at, residual_at

_SOFT = (
    1e-13  # on the diagonal, relative to ‖J_r‖²: keeps dependent rows factorable; repeated solves remove what it costs
)
_ACTIVE = 1e-9  # a row that pushes with more than this share of the largest push belongs to an active inequality
_SOLVES = 8  # at most; the first is exact to rounding where factors are those of the very matrix
_EXACT = 4e-15  # of the answer: what is left is rounding
_USEFUL = 0.5  # what another solve has to leave of the error, to be followed by one more
_TINY = 1e-30


@compiled(nogil=True, error_model="numpy")
def linearized_tiles(code, frame, plan, stop, live, space, at, work, errors):
    """Solve in all tiles; `live` marks lanes that hold a sample. (tiles, …) each.

    Read: the answer in X, its λ in MULTIPLIER, g in TARGET, what eliminated unknowns add to the rows in SHIFT. Written: w in
    X, ν in MULTIPLIER, and errors, what is left of the equations relative to g and the answer; NaN where that is not finite.
    """
    owned = new_lanes()
    code, frame, plan, lanes = unowned(code), unowned(frame), unowned(plan), unowned(owned)
    for k in range(len(space)):
        tile = load_tile(code, frame, space[k], at, work)
        _linearized_tile(code, frame, plan, unowned(stop), unowned(live[k]), tile, lanes, unowned(errors[k]))
        store_tile(code, frame, tile, space[k])
    outlive(owned)


@compiled(nogil=True, error_model="numpy")
def _linearized_tile(code, frame, plan, stop, live, tile, lanes, errors):  # written: tile, lanes, errors
    """Solve one tile; see linearized_tiles."""
    status, going, error = lanes.second, lanes.wanted, lanes.violation
    residual_at(code, frame, tile)
    derivatives_at(code, frame, tile)
    _choose_held(frame, tile)
    tile.x[:], tile.multiplier[:] = 0.0, 0.0
    for lane in range(LANES):
        status[lane] = RUNNING if live[lane] else 0
        going[lane] = live[lane]
        lanes.damping[lane], lanes.convex[lane], errors[lane] = 0.0, 0.0, math.inf
    factorize_once(frame, plan, tile, lanes.damping, status, lanes.convex, lanes.negative, stop)
    for solves in range(_SOLVES + 1):
        _remainder(frame, tile, error)
        waiting = False
        for lane in range(LANES):
            if not going[lane]:
                continue
            useful = error[lane] < _USEFUL * errors[lane]
            if solves > 0 and not useful and not error[lane] <= errors[lane]:  # worse: take the last step back
                _move(tile, lane, -1.0)
                error[lane] = errors[lane]
            errors[lane] = error[lane]
            going[lane] = (useful or solves == 0) and error[lane] > _EXACT
            waiting = waiting or going[lane]
        if not waiting or stop[0] != 0 or solves == _SOLVES:
            return
        for lane in range(LANES):
            if not going[lane]:
                status[lane] = 0
        newton_direction(frame, plan, tile, lanes.damping, status, lanes.convex, stop)
        for lane in range(LANES):
            if going[lane]:
                _move(tile, lane, 1.0)


@compiled(nogil=True, error_model="numpy")
def _move(tile, lane, sign):  # written: x, multiplier, one lane
    x, step, lam, direction = tile.x, tile.step, tile.multiplier, tile.direction
    for j in range(len(x) // LANES):
        x[j * LANES + lane] += sign * step[j * LANES + lane]
    for r in range(len(lam) // LANES):
        lam[r * LANES + lane] += sign * direction[r * LANES + lane]


@compiled(nogil=True, error_model="numpy")
def _choose_held(frame, tile):  # written: active, idle, to_bound, barrier
    """Mark active rows and held unknowns as the answer has them, and put a soft diagonal that suits each row."""
    x, lam, norm, active, idle, barrier = tile.x, tile.multiplier, tile.row_norm, tile.active, tile.idle, tile.barrier
    equality = frame.equality
    for lane in range(LANES):
        most = 1.0
        for r in range(len(equality)):
            most = max(most, abs(lam[r * LANES + lane]) * math.sqrt(norm[r * LANES + lane]))
        for r in range(len(equality)):
            i = r * LANES + lane
            takes_part = equality[r] == 1 or lam[i] * math.sqrt(norm[i]) > _ACTIVE * most
            active[i], idle[i] = 1.0 if takes_part else 0.0, 0.0
            given = least_diagonal(norm[i]) if frame.augmented == 1 else 0.0  # is in the matrix already
            barrier[i] = _SOFT * norm[i] - given
    if frame.bounded == 1:
        lower, upper, to_bound = tile.lower, tile.upper, tile.to_bound
        for i in range(len(x)):
            to_bound[i] = 0.0 if x[i] >= upper[i] or x[i] <= lower[i] else np.nan


@compiled(nogil=True, error_model="numpy")
def _remainder(frame, tile, error):  # read: w in X, ν in MULTIPLIER; written: gradient, residual, error by lane
    """Compute what is left, as a Newton step reads it: gradient = −(g − Ww − Jᵀν), residual = shift + Jw − Gν."""
    w, nu, g, shift, norm = tile.x, tile.multiplier, tile.target, tile.shift, tile.row_norm
    gradient, residual, jacobian = tile.gradient, tile.residual, tile.jacobian
    for i in range(len(g)):
        gradient[i] = -g[i]
    add_image(frame, tile, full(0.0), w, nu, gradient)
    row_ptr, column, gram_ptr, gram_column = frame.row_ptr, frame.column, frame.gram_ptr, frame.gram_column
    gram, active = frame.gram, tile.active
    for r in range(len(row_ptr) - 1):
        total = load(shift, r)
        for p in range(row_ptr[r], row_ptr[r + 1]):
            total = fma(load(jacobian, p), load(w, column[p]), total)
        for p in range(gram_ptr[r], gram_ptr[r + 1]):
            total = fnma(full(gram[p]), load(nu, gram_column[p]), total)
        store(residual, r, mul(load(active, r), total))
    to_bound = tile.to_bound
    if frame.bounded == 1:
        for i in range(len(to_bound)):
            if to_bound[i] == to_bound[i]:
                gradient[i] = 0.0
    for lane in range(LANES):
        left, size, total = 0.0, _TINY, 0.0
        for j in range(len(g) // LANES):
            i = j * LANES + lane
            left, total = max(left, abs(gradient[i])), total + gradient[i]
            size = max(size, abs(g[i]), abs(w[i]))
        for r in range(len(row_ptr) - 1):
            i = r * LANES + lane
            slope = math.sqrt(max(norm[i], _TINY))
            left, total = max(left, abs(residual[i]) / slope), total + residual[i]
            size = max(size, abs(shift[i]) / slope, abs(nu[i]) * slope)
        error[lane] = left / size if math.isfinite(total) else math.nan
