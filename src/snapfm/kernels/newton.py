"""Newton's method on the optimality system of one part, eight samples of a tile at once, each stopping for itself.

    min ½‖x − x̂‖² + ½ λᵀGλ   subject to   h(x) + shift − Gλ = 0 (or ≤ 0),   lower ≤ x ≤ upper

(math.md, eq. reduced; G stands for the unknowns that were eliminated.) Exact curvature; active sets for inequalities and
bounds; a line search on the ℓ1 merit function with second-order correction; wrong inertia is repaired per sample. The
driver owns all memory; lanes that are done keep their numbers, whatever their neighbours still do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from snapfm.kernels.ldl import factorize_tile
from snapfm.kernels.operations import LANES
from snapfm.kernels.packs import absolute, add, fma, fnma, full, load, mul, pick, store
from snapfm.kernels.program import Code, tile_bends, tile_partials, tile_slopes, tile_values
from snapfm.kernels.sections import section
from snapfm.kernels.substitution import solve_tile

Index = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

RUNNING, CONVERGED, INFEASIBLE, STALLED, LIMIT, BROKEN = -1, 0, 1, 2, 3, 4  # errors.Status, and still at work

_ARMIJO = 1e-4  # share of the predicted decrease that a step has to deliver
_HALVINGS = 25  # of a step before it counts as failed
_FIRST_DAMPING, _LAST_DAMPING = 1e-2, 1e8  # of W, after failed steps
_LEAST_CURVATURE = 1e-2  # stands in for W where the true one has the wrong inertia
_SMALLEST_CURVATURE = 1e-8  # W nearer to zero than this counts as this
_CONVEX_TRIALS = 12  # of growing convexity, before a factorisation is taken as it is
_NOISE = 64 * 2.220446049250313e-16  # rounding of the merit function, relative
_PIVOT = 1e-14  # a pivot below this share of its scale is a dependent row
_VANISHED = 1e-7  # ‖Jᵀh‖ below this share of ‖J‖‖h‖: a stationary point of the violation
_NUDGE = 1e-2  # size of the push away from a point where a broken row has no slope
_TINY = 1e-30

# Sections of Frame.table: cell of each unknown; J by rows; J by columns (row and entry); G by rows; lower triangle of the
# Hessian; lower triangle of the matrix and, per entry, what it sums up; which rows must vanish.
PLACE, ROW_PTR, COLUMN, COLUMN_PTR, COLUMN_ROW, COLUMN_ENTRY, GRAM_PTR, GRAM_COLUMN = range(8)
BEND_ROW, BEND_COLUMN, ENTRY_ROW, ENTRY_COLUMN, TERM_PTR, TERM_LEFT, TERM_RIGHT, EQUALITY = range(8, 16)
# Sections of Frame.weight.
GRAM, ENTRY_CONSTANT = range(2)

# Sections of a tile's memory, in packs: program state, unknowns (V), rows (M), matrix.
CELLS, ROWS, SLOTS, LEFT, RIGHT, PARTIAL, ADJOINT, BENDS, JACOBIAN, SCALED = range(10)
X, TARGET, LOWER, UPPER, SLOPE, WEIGHT, INVERSE, STEP, PLAIN_STEP, TO_BOUND, BEFORE = range(10, 21)
MULTIPLIER, DIRECTION, PLAIN_DIRECTION, SHIFT, RESIDUAL, ACTIVE, IDLE, NORM, BEFORE_MULTIPLIER = range(21, 30)
MATRIX, RHS, FACTOR, PIVOTS, SCALE, TALLY, WORK, KEPT = range(30, 38)
SECTIONS = 38


class Frame(NamedTuple):
    """The structure of a system that iterations need. `augmented`: the matrix is [[W, Jᵀ], [J, −G]], else JW⁻¹Jᵀ + G."""

    table: Index
    table_at: Index
    weight: Values
    weight_at: Index
    augmented: int
    mixed: int  # whether any row is an inequality
    bounded: int  # whether any unknown has limits


class Settings(NamedTuple):
    """When to stop."""

    tolerance: float  # of the violation
    gap: float  # of the stationarity
    limit: int  # iterations


__all__ = ["Code", "Frame", "Settings", "solve_tiles"]


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
    _residual(code, frame, memory, at)
    for iteration in range(settings.limit + 1):
        _derivatives(code, frame, memory, at)
        if iteration == 0 and _nudge(frame, memory, at, settings.tolerance):
            _residual(code, frame, memory, at)
            _derivatives(code, frame, memory, at)
        _sets(frame, memory, at)
        _merit(frame, memory, at, theta, objective, violation)
        _gap(frame, memory, at, gap)
        running = False
        for lane in range(LANES):
            if status[lane] == RUNNING:
                if not (np.isfinite(violation[lane]) and np.isfinite(gap[lane])):
                    status[lane] = BROKEN
                elif violation[lane] <= settings.tolerance and gap[lane] <= settings.gap:
                    status[lane] = CONVERGED
                elif iteration == settings.limit:
                    status[lane] = INFEASIBLE if _vanished(frame, memory, at, lane, settings.tolerance) else LIMIT
                else:
                    running = True
                    iterations[lane] += 1
        if not running:
            break
        _factorize(frame, plan, signs, memory, at, damping, status)
        if frame.augmented == 0:
            _schur_direction(frame, plan, memory, at)
        else:
            _augmented_direction(frame, plan, memory, at)
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
                    vanished = _vanished(frame, memory, at, lane, settings.tolerance)
                    status[lane] = INFEASIBLE if vanished else STALLED


@njit(cache=True, nogil=True, error_model="numpy")
def _residual(code, frame, memory, at):  # read: x, λ, shift; written: cells, rows, residual
    """residual = h(x) + shift − Gλ."""
    place, x, cells = section(frame.table, frame.table_at, PLACE), section(memory, at, X), section(memory, at, CELLS)
    for j in range(len(place)):
        store(cells, place[j], load(x, j))
    rows = section(memory, at, ROWS)
    tile_values(code, cells, rows)
    residual, shift, lam = section(memory, at, RESIDUAL), section(memory, at, SHIFT), section(memory, at, MULTIPLIER)
    ptr, column = section(frame.table, frame.table_at, GRAM_PTR), section(frame.table, frame.table_at, GRAM_COLUMN)
    gram = section(frame.weight, frame.weight_at, GRAM)
    for r in range(len(ptr) - 1):
        total = add(load(rows, r), load(shift, r))
        for p in range(ptr[r], ptr[r + 1]):
            total = fnma(full(gram[p]), load(lam, column[p]), total)
        store(residual, r, total)


@njit(cache=True, nogil=True, error_model="numpy")
def _derivatives(code, frame, memory, at):
    """J, Σλ∇²h, the slope x − x̂ + Jᵀλ, the diagonal of W and ‖J_r‖². Read: cells, x, λ; written: those."""
    partial, jacobian, lam = (
        section(memory, at, PARTIAL),
        section(memory, at, JACOBIAN),
        section(memory, at, MULTIPLIER),
    )
    left, right, bends = section(memory, at, LEFT), section(memory, at, RIGHT), section(memory, at, BENDS)
    tile_partials(code, section(memory, at, CELLS), partial)
    tile_slopes(code, partial, section(memory, at, SLOTS), left, right, jacobian)
    tile_bends(code, lam, left, right, partial, section(memory, at, ADJOINT), bends)
    x, target = section(memory, at, X), section(memory, at, TARGET)
    slope, weight = section(memory, at, SLOPE), section(memory, at, WEIGHT)
    ptr, row = section(frame.table, frame.table_at, COLUMN_PTR), section(frame.table, frame.table_at, COLUMN_ROW)
    entry = section(frame.table, frame.table_at, COLUMN_ENTRY)
    for j in range(len(ptr) - 1):
        total = fnma(full(1.0), load(target, j), load(x, j))
        for p in range(ptr[j], ptr[j + 1]):
            total = fma(load(jacobian, entry[p]), load(lam, row[p]), total)
        store(slope, j, total)
        store(weight, j, full(1.0))
    bend_row, bend_column = (
        section(frame.table, frame.table_at, BEND_ROW),
        section(frame.table, frame.table_at, BEND_COLUMN),
    )
    for h in range(len(bend_row)):
        if bend_row[h] == bend_column[h]:
            store(weight, bend_row[h], add(load(weight, bend_row[h]), load(bends, h)))
    norm = section(memory, at, NORM)
    row_ptr = section(frame.table, frame.table_at, ROW_PTR)
    gram_ptr, gram_column = (
        section(frame.table, frame.table_at, GRAM_PTR),
        section(frame.table, frame.table_at, GRAM_COLUMN),
    )
    gram = section(frame.weight, frame.weight_at, GRAM)
    for r in range(len(row_ptr) - 1):
        total = full(0.0)
        for p in range(row_ptr[r], row_ptr[r + 1]):
            total = fma(load(jacobian, p), load(jacobian, p), total)
        for p in range(gram_ptr[r], gram_ptr[r + 1]):
            if gram_column[p] == r:
                total = add(total, full(gram[p]))
        store(norm, r, total)


@njit(cache=True, nogil=True, error_model="numpy")
def _nudge(frame, memory, at, tolerance):  # written: x, where a broken row has no slope
    """Push x off points where a broken row's slope vanishes (a quadratic at its centre): no step could start there."""
    residual, x, norm = section(memory, at, RESIDUAL), section(memory, at, X), section(memory, at, NORM)
    equality = section(frame.table, frame.table_at, EQUALITY)
    ptr, column = section(frame.table, frame.table_at, ROW_PTR), section(frame.table, frame.table_at, COLUMN)
    pushed = np.zeros(len(x), np.bool_)
    any_pushed = False
    for r in range(len(equality)):
        for lane in range(LANES):
            h = residual[r * LANES + lane]
            broken = abs(h) > tolerance if equality[r] == 1 else h > tolerance
            # the slope a push of this size would see: below it the row is flat for all purposes
            if broken and norm[r * LANES + lane] < (1e-3 * _NUDGE) ** 2:
                for p in range(ptr[r], ptr[r + 1]):
                    i = column[p] * LANES + lane
                    if not pushed[i]:
                        # a fixed scatter with no symmetry: fractional parts of multiples of the golden ratio
                        x[i] += _NUDGE * (2.0 * ((0.6180339887498949 * (column[p] + 1)) % 1.0) - 1.0)
                        pushed[i] = True
                        any_pushed = True
    return any_pushed


@njit(cache=True, nogil=True, error_model="numpy")
def _sets(frame, memory, at):  # written: active, idle (λ of idle rows), to_bound
    """Choose the rows and bounds that take part: those whose multiplier, were they held, would have the right sign."""
    active, idle, lam = section(memory, at, ACTIVE), section(memory, at, IDLE), section(memory, at, MULTIPLIER)
    residual, norm = section(memory, at, RESIDUAL), section(memory, at, NORM)
    equality = section(frame.table, frame.table_at, EQUALITY)
    for r in range(len(equality)):
        for lane in range(LANES):
            i = r * LANES + lane
            # h/‖J‖² is what the row's own step would add to its multiplier
            takes_part = equality[r] == 1 or lam[i] + residual[i] / max(norm[i], _TINY) > 0.0
            active[i] = 1.0 if takes_part else 0.0
            idle[i] = 0.0 if takes_part else lam[i]
    to_bound = section(memory, at, TO_BOUND)
    if frame.bounded == 1:
        x, slope = section(memory, at, X), section(memory, at, SLOPE)
        lower, upper = section(memory, at, LOWER), section(memory, at, UPPER)
        for i in range(len(x)):
            wish = x[i] - slope[i]
            to_bound[i] = upper[i] - x[i] if wish > upper[i] else (lower[i] - x[i] if wish < lower[i] else np.nan)


@njit(cache=True, nogil=True, error_model="numpy")
def _merit(frame, memory, at, theta, objective, violation):  # written: the last three
    """Per lane: ℓ1 violation, objective and largest violation."""
    residual, lam = section(memory, at, RESIDUAL), section(memory, at, MULTIPLIER)
    equality = section(frame.table, frame.table_at, EQUALITY)
    ptr, column = section(frame.table, frame.table_at, GRAM_PTR), section(frame.table, frame.table_at, GRAM_COLUMN)
    gram = section(frame.weight, frame.weight_at, GRAM)
    total, worst, value, zero = full(0.0), full(0.0), full(0.0), full(0.0)
    for r in range(len(equality)):
        h = load(residual, r)
        size = absolute(h) if equality[r] == 1 else pick(h, zero, zero, h)
        total = add(total, size)
        worst = pick(size, worst, worst, size)  # NaN wins
        moved = full(0.0)
        for p in range(ptr[r], ptr[r + 1]):
            moved = fma(full(gram[p]), load(lam, column[p]), moved)
        value = fma(load(lam, r), moved, value)
    x, target = section(memory, at, X), section(memory, at, TARGET)
    for j in range(len(x) // LANES):
        away = fnma(full(1.0), load(target, j), load(x, j))
        value = fma(away, away, value)
    if frame.bounded == 1:
        lower, upper = section(memory, at, LOWER), section(memory, at, UPPER)
        for j in range(len(x) // LANES):
            above, below = fnma(full(1.0), load(upper, j), load(x, j)), fnma(full(1.0), load(x, j), load(lower, j))
            excess = pick(above, below, below, above)
            excess = pick(excess, zero, zero, excess)
            total = add(total, excess)
            worst = pick(excess, worst, worst, excess)
    store(theta, 0, total)
    store(objective, 0, mul(full(0.5), value))
    store(violation, 0, worst)


@njit(cache=True, nogil=True, error_model="numpy")
def _gap(frame, memory, at, gap):  # written: gap
    """Per lane: how far stationarity and complementarity are off."""
    slope, to_bound = section(memory, at, SLOPE), section(memory, at, TO_BOUND)
    worst = full(0.0)
    if frame.bounded == 0:
        for j in range(len(slope) // LANES):
            size = absolute(load(slope, j))
            worst = pick(size, worst, worst, size)
    store(gap, 0, worst)
    if frame.bounded == 1:
        for i in range(len(slope)):
            size = abs(to_bound[i]) if to_bound[i] == to_bound[i] else abs(slope[i])
            if not size <= gap[i % LANES]:
                gap[i % LANES] = size
    if frame.mixed == 1:
        active, idle = section(memory, at, ACTIVE), section(memory, at, IDLE)
        residual, norm = section(memory, at, RESIDUAL), section(memory, at, NORM)
        equality = section(frame.table, frame.table_at, EQUALITY)
        for r in range(len(equality)):
            if equality[r] == 0:
                for lane in range(LANES):
                    i = r * LANES + lane
                    # an idle row's multiplier has to vanish, an active one's residual too
                    size = np.sqrt(max(norm[i], _TINY))
                    off = abs(idle[i]) * size if active[i] == 0.0 else abs(residual[i]) / size
                    if not off <= gap[lane]:
                        gap[lane] = off


@njit(cache=True, nogil=True, error_model="numpy")
def _factorize(frame, plan, signs, memory, at, damping, status):
    """Assemble and factorise; lanes of wrong inertia are made convex and the tile is done again.

    Written: inverse, scaled, matrix, factor, pivots, scale, tally.
    """
    convex, negative = np.zeros(LANES), np.zeros(LANES, np.int64)
    tally = section(memory, at, TALLY)
    for _ in range(_CONVEX_TRIALS):
        _weigh(frame, memory, at, damping, convex, negative)
        if frame.augmented == 0:
            _assemble_schur(frame, memory, at)
        else:
            _assemble_augmented(frame, memory, at, damping, convex)
        factorize_tile(
            plan, section(memory, at, MATRIX), LANES, 0, signs, frame.augmented == 1, _PIVOT, np.inf,
            section(memory, at, FACTOR), section(memory, at, PIVOTS), section(memory, at, KEPT), section(memory, at, SCALE),
            tally,
        )  # fmt: skip
        again = False
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            if frame.augmented == 0:  # as many negative pivots as negative W: the reduced curvature is positive
                if convex[lane] == 0.0 and int(tally[lane]) != negative[lane]:
                    convex[lane] = 1.0
                    again = True
            elif tally[LANES + lane] > 0.0:  # pivots of the wrong sign were met
                convex[lane] = max(_LEAST_CURVATURE, 10.0 * convex[lane])
                again = True
        if not again:
            break


@njit(cache=True, nogil=True, error_model="numpy")
def _weigh(frame, memory, at, damping, convex, negative):  # written: inverse, negative
    """Invert the diagonal W, damped, made positive in `convex` lanes, infinite where a bound holds; count negative ones."""
    weight, inverse, to_bound = section(memory, at, WEIGHT), section(memory, at, INVERSE), section(memory, at, TO_BOUND)
    negative[:] = 0
    for j in range(len(weight) // LANES):
        for lane in range(LANES):
            i = j * LANES + lane
            w = weight[i] + damping[lane]
            w = max(abs(w), _LEAST_CURVATURE) if convex[lane] > 0.0 else w
            w = _SMALLEST_CURVATURE if abs(w) < _SMALLEST_CURVATURE else w
            held = frame.bounded == 1 and to_bound[i] == to_bound[i]
            inverse[i] = 0.0 if held else 1.0 / w
            negative[lane] += 1 if inverse[i] < 0.0 else 0


@njit(cache=True, nogil=True, error_model="numpy")
def _assemble_schur(frame, memory, at):  # written: scaled, matrix
    """JW⁻¹Jᵀ + G, with idle rows replaced by those of the identity."""
    jacobian, scaled, matrix = section(memory, at, JACOBIAN), section(memory, at, SCALED), section(memory, at, MATRIX)
    inverse, active = section(memory, at, INVERSE), section(memory, at, ACTIVE)
    column = section(frame.table, frame.table_at, COLUMN)
    for p in range(len(column)):
        store(scaled, p, mul(load(jacobian, p), load(inverse, column[p])))
    rows, columns = section(frame.table, frame.table_at, ENTRY_ROW), section(frame.table, frame.table_at, ENTRY_COLUMN)
    ptr, constant = (
        section(frame.table, frame.table_at, TERM_PTR),
        section(frame.weight, frame.weight_at, ENTRY_CONSTANT),
    )
    left, right = section(frame.table, frame.table_at, TERM_LEFT), section(frame.table, frame.table_at, TERM_RIGHT)
    for s in range(len(rows)):
        total = full(constant[s])
        for t in range(ptr[s], ptr[s + 1]):
            total = fma(load(scaled, left[t]), load(jacobian, right[t]), total)
        if frame.mixed == 1:
            here = load(active, rows[s])
            if rows[s] == columns[s]:
                total = fma(here, total, fnma(full(1.0), here, full(1.0)))
            else:
                total = mul(total, mul(here, load(active, columns[s])))
        store(matrix, s, total)


@njit(cache=True, nogil=True, error_model="numpy")
def _assemble_augmented(frame, memory, at, damping, convex):  # written: matrix
    """[[W, Jᵀ], [J, −G]], with idle rows and held unknowns replaced by those of ∓ the identity."""
    jacobian, bends, matrix = section(memory, at, JACOBIAN), section(memory, at, BENDS), section(memory, at, MATRIX)
    active, to_bound = section(memory, at, ACTIVE), section(memory, at, TO_BOUND)
    rows, columns = section(frame.table, frame.table_at, ENTRY_ROW), section(frame.table, frame.table_at, ENTRY_COLUMN)
    ptr, constant = (
        section(frame.table, frame.table_at, TERM_PTR),
        section(frame.weight, frame.weight_at, ENTRY_CONSTANT),
    )
    left, right = section(frame.table, frame.table_at, TERM_LEFT), section(frame.table, frame.table_at, TERM_RIGHT)
    v = len(section(frame.table, frame.table_at, PLACE))
    for s in range(len(rows)):
        i, j = rows[s], columns[s]
        total = full(constant[s])
        for t in range(ptr[s], ptr[s + 1]):
            total = add(total, load(bends if right[t] == 1 else jacobian, left[t]))
        store(matrix, s, total)
        for lane in range(LANES):
            here = s * LANES + lane
            if i == j and i < v:
                matrix[here] += damping[lane] + convex[lane]
            if frame.bounded == 1:
                held_row = i < v and to_bound[i * LANES + lane] == to_bound[i * LANES + lane]
                held_column = j < v and to_bound[j * LANES + lane] == to_bound[j * LANES + lane]
                if held_row or held_column:
                    matrix[here] = 1.0 if i == j else 0.0
            if frame.mixed == 1 and i >= v:
                idle = active[(i - v) * LANES + lane] == 0.0
                if idle or (j >= v and active[(j - v) * LANES + lane] == 0.0):
                    matrix[here] = -1.0 if i == j else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _schur_direction(frame, plan, memory, at):  # written: direction, step, rhs, plain_step
    """(JW⁻¹Jᵀ + G) dλ = h − JW⁻¹ slope over the active rows, with the multipliers of idle rows already at zero."""
    rhs, residual, scaled = section(memory, at, RHS), section(memory, at, RESIDUAL), section(memory, at, SCALED)
    jacobian, active, idle = section(memory, at, JACOBIAN), section(memory, at, ACTIVE), section(memory, at, IDLE)
    to_bound, direction = section(memory, at, TO_BOUND), section(memory, at, DIRECTION)
    slope, without = section(memory, at, SLOPE), section(memory, at, PLAIN_STEP)  # the latter is free until the search
    ptr, row = section(frame.table, frame.table_at, COLUMN_PTR), section(frame.table, frame.table_at, COLUMN_ROW)
    entry = section(frame.table, frame.table_at, COLUMN_ENTRY)
    for j in range(len(ptr) - 1):
        total = load(slope, j)
        if frame.mixed == 1:
            for p in range(ptr[j], ptr[j + 1]):
                total = fnma(load(jacobian, entry[p]), load(idle, row[p]), total)
        store(without, j, total)
    row_ptr, column = section(frame.table, frame.table_at, ROW_PTR), section(frame.table, frame.table_at, COLUMN)
    gram_ptr, gram_column = (
        section(frame.table, frame.table_at, GRAM_PTR),
        section(frame.table, frame.table_at, GRAM_COLUMN),
    )
    gram = section(frame.weight, frame.weight_at, GRAM)
    for r in range(len(row_ptr) - 1):
        total = load(residual, r)
        for p in range(row_ptr[r], row_ptr[r + 1]):
            total = fnma(load(scaled, p), load(without, column[p]), total)
        if frame.mixed == 1:
            for p in range(gram_ptr[r], gram_ptr[r + 1]):
                total = fma(full(gram[p]), load(idle, gram_column[p]), total)
            total = fnma(full(1.0), load(idle, r), mul(load(active, r), total))
        store(rhs, r, total)
        if frame.bounded == 1:
            for p in range(row_ptr[r], row_ptr[r + 1]):
                for lane in range(LANES):
                    move = to_bound[column[p] * LANES + lane]
                    if move == move:
                        rhs[r * LANES + lane] += active[r * LANES + lane] * jacobian[p * LANES + lane] * move
    _solved(plan, memory, at, rhs, direction)
    _follow(frame, memory, at, direction, section(memory, at, STEP))


@njit(cache=True, nogil=True, error_model="numpy")
def _solved(plan, memory, at, rhs, out):  # written: out, work
    work = section(memory, at, WORK)
    solve_tile(
        plan, section(memory, at, FACTOR), section(memory, at, PIVOTS), section(memory, at, KEPT), 0, rhs, 1, LANES, 0,
        work.reshape((1, len(work))), out,
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _follow(frame, memory, at, direction, step):  # written: step
    """dx = −W⁻¹(slope + Jᵀdλ), and to the bound where one holds."""
    slope, jacobian, inverse = section(memory, at, SLOPE), section(memory, at, JACOBIAN), section(memory, at, INVERSE)
    ptr, row = section(frame.table, frame.table_at, COLUMN_PTR), section(frame.table, frame.table_at, COLUMN_ROW)
    entry = section(frame.table, frame.table_at, COLUMN_ENTRY)
    for j in range(len(ptr) - 1):
        total = load(slope, j)
        for p in range(ptr[j], ptr[j + 1]):
            total = fma(load(jacobian, entry[p]), load(direction, row[p]), total)
        store(step, j, fnma(total, load(inverse, j), full(0.0)))
    if frame.bounded == 1:
        to_bound = section(memory, at, TO_BOUND)
        for i in range(len(step)):
            if to_bound[i] == to_bound[i]:
                step[i] = to_bound[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _augmented_direction(frame, plan, memory, at):  # written: direction, step, rhs
    """[[W, Jᵀ], [J, −G]] (dx, dλ) = −(slope, h), with what is known of idle rows and held unknowns moved to the right."""
    rhs, slope, residual = section(memory, at, RHS), section(memory, at, SLOPE), section(memory, at, RESIDUAL)
    jacobian, active, idle = section(memory, at, JACOBIAN), section(memory, at, ACTIVE), section(memory, at, IDLE)
    to_bound = section(memory, at, TO_BOUND)
    ptr, row = section(frame.table, frame.table_at, COLUMN_PTR), section(frame.table, frame.table_at, COLUMN_ROW)
    entry = section(frame.table, frame.table_at, COLUMN_ENTRY)
    gram_ptr, gram_column = (
        section(frame.table, frame.table_at, GRAM_PTR),
        section(frame.table, frame.table_at, GRAM_COLUMN),
    )
    gram = section(frame.weight, frame.weight_at, GRAM)
    v, m, zero = len(ptr) - 1, len(gram_ptr) - 1, full(0.0)
    for j in range(v):
        total = fnma(full(1.0), load(slope, j), zero)
        for p in range(ptr[j], ptr[j + 1]):
            total = fma(load(jacobian, entry[p]), load(idle, row[p]), total)
        store(rhs, j, total)
    for r in range(m):
        total = fnma(full(1.0), load(residual, r), zero)
        for p in range(gram_ptr[r], gram_ptr[r + 1]):
            total = fnma(full(gram[p]), load(idle, gram_column[p]), total)
        store(rhs, v + r, fma(load(active, r), total, load(idle, r)))
    if frame.bounded == 1:
        for j in range(v):
            for lane in range(LANES):
                move = to_bound[j * LANES + lane]
                if move == move:
                    rhs[j * LANES + lane] = move
                    for p in range(ptr[j], ptr[j + 1]):
                        if active[row[p] * LANES + lane] > 0.0:
                            rhs[(v + row[p]) * LANES + lane] -= jacobian[entry[p] * LANES + lane] * move
    _solved(plan, memory, at, rhs, rhs)
    step, direction = section(memory, at, STEP), section(memory, at, DIRECTION)
    step[:] = rhs[: v * LANES]
    direction[:] = rhs[v * LANES :]


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
    before[:], before_lam[:], plain[:], plain_direction[:] = x, lam, step, direction
    new_theta, new_objective, new_worst, alpha = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    accepted, corrected = np.zeros(LANES, np.bool_), np.zeros(LANES, np.bool_)
    for lane in range(LANES):
        accepted[lane] = status[lane] != RUNNING
        alpha[lane] = 0.0 if accepted[lane] else 1.0
    for trial in range(_HALVINGS):
        length = load(alpha, 0)
        for j in range(len(x) // LANES):
            store(x, j, fma(length, load(step, j), load(before, j)))
        for r in range(len(lam) // LANES):
            store(lam, r, fma(length, load(direction, r), load(before_lam, r)))
        _residual(code, frame, memory, at)
        _merit(frame, memory, at, new_theta, new_objective, new_worst)
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
            _correct(frame, plan, memory, at)
        for lane in range(LANES):
            if accepted[lane]:
                continue
            if trial == 0 and new_theta[lane] >= theta[lane] and np.isfinite(new_theta[lane]):
                corrected[lane] = True
            else:
                alpha[lane] *= 0.5
        if trial <= 1:  # corrected lanes try their own direction once, at full length
            for lane in range(LANES):
                use = trial == 0 and corrected[lane]
                if not use:
                    _copy_lane(plain, step, lane)
                    _copy_lane(plain_direction, direction, lane)
    for lane in range(LANES):
        if not accepted[lane]:
            _copy_lane(before, x, lane)
            _copy_lane(before_lam, lam, lane)
    _residual(code, frame, memory, at)
    return accepted


@njit(cache=True, nogil=True, error_model="numpy")
def _copy_lane(source, target, lane):  # written: target, one lane
    for i in range(lane, len(source), LANES):
        target[i] = source[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _correct(frame, plan, memory, at):  # written: step, direction, rhs
    """Second-order correction: take the violation of the full step back out, with the same factors."""
    rhs, residual, active = section(memory, at, RHS), section(memory, at, RESIDUAL), section(memory, at, ACTIVE)
    step, direction = section(memory, at, STEP), section(memory, at, DIRECTION)
    if frame.augmented == 0:
        for i in range(len(residual)):
            rhs[i] = residual[i] * active[i]
        _solved(plan, memory, at, rhs, rhs)
        for i in range(len(direction)):
            direction[i] += rhs[i]
        _follow(frame, memory, at, direction, step)
    else:
        v = len(step)
        rhs[:v] = 0.0
        for i in range(len(residual)):
            rhs[v + i] = -residual[i] * active[i]
        _solved(plan, memory, at, rhs, rhs)
        for i in range(v):
            step[i] += rhs[i]
        for i in range(len(direction)):
            direction[i] += rhs[v + i]


@njit(cache=True, nogil=True, error_model="numpy")
def _vanished(frame, memory, at, lane, tolerance):
    """Whether the violation is stationary here, ‖Jᵀh‖ ≈ 0 with h ≠ 0: proof of local infeasibility."""
    residual, jacobian, norm = section(memory, at, RESIDUAL), section(memory, at, JACOBIAN), section(memory, at, NORM)
    equality = section(frame.table, frame.table_at, EQUALITY)
    gram_ptr, gram_column = (
        section(frame.table, frame.table_at, GRAM_PTR),
        section(frame.table, frame.table_at, GRAM_COLUMN),
    )
    gram = section(frame.weight, frame.weight_at, GRAM)
    broken = np.zeros(len(equality))
    size, pull, norms = 0.0, 0.0, _TINY
    for r in range(len(equality)):
        h = residual[r * LANES + lane]
        broken[r] = h if equality[r] == 1 or h > 0.0 else 0.0
        size += broken[r] * broken[r]
        norms = max(norms, norm[r * LANES + lane])
    for r in range(len(equality)):
        for p in range(gram_ptr[r], gram_ptr[r + 1]):
            pull += broken[r] * gram[p] * broken[gram_column[p]]
    ptr, row = section(frame.table, frame.table_at, COLUMN_PTR), section(frame.table, frame.table_at, COLUMN_ROW)
    entry = section(frame.table, frame.table_at, COLUMN_ENTRY)
    for j in range(len(ptr) - 1):
        total = 0.0
        for p in range(ptr[j], ptr[j + 1]):
            total += jacobian[entry[p] * LANES + lane] * broken[row[p]]
        pull += total * total
    return size > tolerance * tolerance and pull <= _VANISHED * _VANISHED * norms * size
