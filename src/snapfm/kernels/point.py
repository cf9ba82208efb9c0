"""Evaluate one tile at its current point: residual, derivatives, active sets, merit function, stationarity.

May import the program and the layout of memory; must not import linear algebra.
"""

from __future__ import annotations

import math

import numpy as np

from snapfm.kernels import layout
from snapfm.kernels.callback import NO_CALLBACK, call_back
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import absolute, add, fma, fnma, full, load, mul, pick, store
from snapfm.kernels.operations import LANES
from snapfm.kernels.program import tile_hessian, tile_partials, tile_slopes, tile_values

_NUDGE = 1e-2  # size of the push away from a point where a broken row has no slope
_SLOPELESS = 1e-5  # a row with a smaller slope, for a residual of one, is flat: a step would be as many fields long
_TINY = 1e-30  # stands in for a slope of zero in a quotient
_GOLDEN = 0.6180339887498949


@compiled(nogil=True, error_model="numpy")
def residual_at(code, frame, tile):  # read: x, λ, shift; written: cells, rows, residual
    """residual = h(x) + shift − Gλ − δλ, with h of x in its own unit and the rest in the lane's (layout.UNIT)."""
    place, x, cells = frame.place, tile.x, tile.cells
    unit, inverse = load(tile.unit, 0), load(tile.unit, 1)
    for j in range(len(place)):
        store(cells, place[j], mul(unit, load(x, j)))
    rows = tile.rows
    if code.callback == NO_CALLBACK:
        tile_values(code, cells, rows)
    else:
        call_back(code.callback, layout.TO_EVALUATE, tile.memory)
    residual, shift, lam, ptr, column = tile.residual, tile.shift, tile.multiplier, frame.gram_ptr, frame.gram_column
    gram = frame.gram
    delta = load(tile.regularization, 0)
    for r in range(len(ptr) - 1):
        total = fma(inverse, load(rows, r), load(shift, r))
        for p in range(ptr[r], ptr[r + 1]):
            total = fnma(full(gram[p]), load(lam, column[p]), total)
        total = fnma(delta, load(lam, r), total)
        store(residual, r, total)


@compiled(nogil=True, error_model="numpy")
def derivatives_at(code, frame, tile):
    """Compute J, Σλ∇²h, the gradient x − x̂ + Jᵀλ, the diagonal of W and ‖J_r‖². Read: cells, x, λ; written: those."""
    partial, jacobian, lam = tile.partial, tile.jacobian, tile.multiplier
    left, right, hessian = tile.left, tile.right, tile.hessian
    if code.callback == NO_CALLBACK:
        tile_partials(code, tile.cells, True, partial)
        tile_slopes(code, partial, tile.slots, left, right, jacobian)
        tile_hessian(code, lam, left, right, partial, tile.adjoint, hessian)
    else:
        call_back(code.callback, layout.TO_DIFFERENTIATE, tile.memory)
    x, target, slope, weight = tile.x, tile.target, tile.gradient, tile.diagonal
    ptr, row, entry = frame.column_ptr, frame.column_row, frame.column_entry
    for j in range(len(ptr) - 1):
        total = fnma(full(1.0), load(target, j), load(x, j))
        for p in range(ptr[j], ptr[j + 1]):
            total = fma(load(jacobian, entry[p]), load(lam, row[p]), total)
        store(slope, j, total)
        store(weight, j, full(1.0))
    hessian_row, hessian_column = frame.hessian_row, frame.hessian_column
    unit = load(tile.unit, 0)
    for h in range(len(hessian_row)):
        scaled = mul(unit, load(hessian, h))  # multipliers are in the lane's unit
        store(hessian, h, scaled)
        if hessian_row[h] == hessian_column[h]:
            store(weight, hessian_row[h], add(load(weight, hessian_row[h]), scaled))
    norm, row_ptr, gram_ptr, gram_column = tile.row_norm, frame.row_ptr, frame.gram_ptr, frame.gram_column
    gram = frame.gram
    for r in range(len(row_ptr) - 1):
        total = full(0.0)
        for p in range(row_ptr[r], row_ptr[r + 1]):
            total = fma(load(jacobian, p), load(jacobian, p), total)
        for p in range(gram_ptr[r], gram_ptr[r + 1]):
            if gram_column[p] == r:
                total = add(total, full(gram[p]))
        store(norm, r, total)


@compiled(nogil=True, error_model="numpy")
def size_rows(tile, ordinary):  # read: residual, norm; written: row_size, row_weight
    """Set the size of every row, the larger of ‖J_r‖ and |h_r|.

    Sizes from `ordinary` to one over it are replaced by 1; with `ordinary` = 1 none is.
    """
    residual, norm, size, weight = tile.residual, tile.row_norm, tile.row_size, tile.row_weight
    for i in range(len(residual)):
        found = max(math.sqrt(norm[i]), abs(residual[i]))
        if ordinary < found < 1.0 / ordinary or not _TINY < found < 1.0 / _TINY:  # or without slope, or not a number
            found = 1.0
        size[i], weight[i] = found, 1.0 / found


@compiled(nogil=True, error_model="numpy")
def nudge(frame, tile, tolerance):  # read: tolerance, by lane; written: x, where a broken row has no slope; active
    """Push x off points where a broken row's slope vanishes (a quadratic at its center): no step could start there.

    Return whether there is such a row: the point has to be evaluated again.
    """
    residual, x, norm, equality = tile.residual, tile.x, tile.row_norm, frame.equality
    flat, found = tile.active, 0  # not chosen yet: its memory is free
    for r in range(len(equality)):
        for lane in range(LANES):
            h = residual[r * LANES + lane]
            broken = abs(h) > tolerance[lane] if equality[r] == 1 else h > tolerance[lane]
            pushes = broken and norm[r * LANES + lane] < (_SLOPELESS * min(abs(h), 1.0)) ** 2
            flat[r * LANES + lane] = 1.0 if pushes else 0.0
            found |= pushes
    if found == 0:
        return False
    ptr, row = frame.column_ptr, frame.column_row
    for j in range(len(ptr) - 1):
        for lane in range(LANES):
            for p in range(ptr[j], ptr[j + 1]):
                if flat[row[p] * LANES + lane] == 1.0:
                    x[j * LANES + lane] += _NUDGE * scattered(j, 1)
                    break
    return True


@compiled(nogil=True, error_model="numpy", forceinline=True)
def scattered(k, times):
    """Return a number from −1 to 1, from a fixed scatter without symmetry: fractional parts of multiples of the golden ratio."""
    return 2.0 * ((_GOLDEN * (k + 1) * times) % 1.0) - 1.0


@compiled(nogil=True, error_model="numpy")
def choose_sets(frame, tile):  # written: active, idle (λ of idle rows), to_bound
    """Choose the active set: rows and bounds whose multiplier would have the right sign if they were held."""
    active, idle, lam, residual, norm = tile.active, tile.idle, tile.multiplier, tile.residual, tile.row_norm
    equality = frame.equality
    for r in range(len(equality)):
        for lane in range(LANES):
            i = r * LANES + lane
            # h/‖J‖² is what the row's own step would add to its multiplier
            takes_part = equality[r] == 1 or lam[i] + residual[i] / max(norm[i], _TINY) > 0.0
            active[i] = 1.0 if takes_part else 0.0
            idle[i] = 0.0 if takes_part else lam[i]
    to_bound = tile.to_bound
    if frame.bounded == 1:
        x, slope, lower, upper = tile.x, tile.gradient, tile.lower, tile.upper
        for i in range(len(x)):
            wish = x[i] - slope[i]
            to_bound[i] = upper[i] - x[i] if wish > upper[i] else (lower[i] - x[i] if wish < lower[i] else np.nan)


@compiled(nogil=True, error_model="numpy")
def snap_to_bounds(tile, arrived):  # read: arrived; written: x
    """Set unknowns held at a bound to the bound itself; return whether any moved.

    Steps leave rounding, or as much as the stationarity allows. Many small distances add up in a row: the laws have to be
    checked again afterwards.
    """
    x, slope, to_bound, lower, upper = tile.x, tile.gradient, tile.to_bound, tile.lower, tile.upper
    moved = 0
    for i in range(len(x)):
        if arrived[i % LANES] and to_bound[i] == to_bound[i]:
            bound = upper[i] if x[i] - slope[i] > upper[i] else lower[i]
            moved |= x[i] != bound
            x[i] = bound
    return moved == 1


@compiled(nogil=True, error_model="numpy")
def merit_parts(frame, tile, theta, objective, violation):  # written: the last three
    """Compute per lane the ℓ1 violation of rows relative to their size, the objective, and the largest violation, unscaled."""
    residual, lam, equality = tile.residual, tile.multiplier, frame.equality
    ptr, column, gram = frame.gram_ptr, frame.gram_column, frame.gram
    total, worst, value, zero = full(0.0), full(0.0), full(0.0), full(0.0)
    delta, row_weight = load(tile.regularization, 0), tile.row_weight
    for r in range(len(equality)):
        h = load(residual, r)
        size = absolute(h) if equality[r] == 1 else pick(h, zero, zero, h)
        total = fma(load(row_weight, r), size, total)
        worst = pick(size, worst, worst, size)
        moved = mul(delta, load(lam, r))
        for p in range(ptr[r], ptr[r + 1]):
            moved = fma(full(gram[p]), load(lam, column[p]), moved)
        value = fma(load(lam, r), moved, value)
    x, target = tile.x, tile.target
    for j in range(len(x) // LANES):
        away = fnma(full(1.0), load(target, j), load(x, j))
        value = fma(away, away, value)
    if frame.bounded == 1:
        lower, upper = tile.lower, tile.upper
        for j in range(len(x) // LANES):
            above, below = fnma(full(1.0), load(upper, j), load(x, j)), fnma(full(1.0), load(x, j), load(lower, j))
            excess = pick(above, below, below, above)
            excess = pick(excess, zero, zero, excess)
            total = add(total, excess)
            worst = pick(excess, worst, worst, excess)
    store(theta, 0, total)
    store(objective, 0, mul(full(0.5), value))
    store(violation, 0, pick(total, total, worst, total))  # a maximum forgets NaN, a sum does not


@compiled(nogil=True, error_model="numpy")
def stationarity_of(frame, tile, gap):  # written: gap
    """Compute per lane the stationarity, with complementarity."""
    slope, to_bound = tile.gradient, tile.to_bound
    worst, total = full(0.0), full(0.0)
    if frame.bounded == 0:
        for j in range(len(slope) // LANES):
            size = absolute(load(slope, j))
            worst = pick(size, worst, worst, size)
            total = add(total, size)
    store(gap, 0, pick(total, total, worst, total))  # a maximum forgets NaN, a sum does not
    if frame.bounded == 1:
        for i in range(len(slope)):
            size = abs(to_bound[i]) if to_bound[i] == to_bound[i] else abs(slope[i])
            if not (size <= gap[i % LANES] or math.isnan(gap[i % LANES])):
                gap[i % LANES] = size
    if frame.mixed == 1:
        active, idle, residual, norm, equality = tile.active, tile.idle, tile.residual, tile.row_norm, frame.equality
        for r in range(len(equality)):
            if equality[r] == 0:
                for lane in range(LANES):
                    i = r * LANES + lane
                    # an idle row's multiplier has to vanish, an active one's residual too
                    size = math.sqrt(max(norm[i], _TINY))
                    off = abs(idle[i]) * size if active[i] == 0.0 else abs(residual[i]) / size
                    if not (off <= gap[lane] or math.isnan(gap[lane])):
                        gap[lane] = off
