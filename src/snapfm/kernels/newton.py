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
from numba import njit, prange

from snapfm.kernels.ldl import _tile as factorize_tile
from snapfm.kernels.operations import LANES
from snapfm.kernels.packs import add, fma, fnma, full, load, mul, store
from snapfm.kernels.program import tile_bends, tile_slopes, tile_values
from snapfm.kernels.substitution import _tile as solve_tile

Index = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]

RUNNING, CONVERGED, INFEASIBLE, STALLED, LIMIT, BROKEN = -1, 0, 1, 2, 3, 4  # errors.Status, and still at work

_ARMIJO = 1e-4  # share of the predicted decrease that a step has to deliver
_HALVINGS = 25  # of a step before it counts as failed
_FIRST_DAMPING, _LAST_DAMPING = 1e-2, 1e8  # of W, after failed steps
_LEAST_CURVATURE = 1e-2  # stands in for W where the true one has the wrong inertia
_NOISE = 64 * 2.220446049250313e-16  # rounding of the merit function, relative
_PIVOT = 1e-14  # a pivot below this share of its scale is a dependent row
_VANISHED = 1e-7  # ‖Jᵀh‖ below this share of ‖J‖‖h‖: a stationary point of the violation
_CONVEX_TRIALS = 12  # of growing convexity, before a factorisation is taken as it is
_NUDGE = 1e-2  # size of the push away from a point where a broken row has no slope


class Frame(NamedTuple):
    """The structure of a system that iterations need; v unknowns, m rows, entries of J by rows."""

    place: Index  # (v,) cell of each unknown among the program's inputs
    varying: Index  # entries of J that change
    row_ptr: Index  # (m + 1,) J by rows
    column: Index
    column_ptr: Index  # (v + 1,) J by columns
    column_row: Index
    column_entry: Index
    gram_ptr: Index  # (m + 1,) G, symmetric, by rows
    gram_column: Index
    gram_value: Values
    bend_row: Index  # lower triangle of the Hessian
    bend_column: Index
    augmented: int  # 0: the matrix is JW⁻¹Jᵀ + G; 1: [[W, Jᵀ], [J, −G]]
    entry_row: Index  # lower triangle of the matrix
    entry_column: Index
    entry_constant: Values  # its constant part
    term_ptr: Index  # (entries + 1,) Schur: products J[left]·J[right]/W; augmented: J or Hessian entries
    term_left: Index
    term_right: Index
    equality: Index  # (m,) 1 where the row must vanish
    mixed: int  # whether any row is an inequality
    bounded: int  # whether any unknown has limits


class Memory(NamedTuple):
    """The workspace of all tiles; every array is (tiles, packs × LANES)."""

    cells: Values
    rows: Values
    slots: Values
    left: Values
    right: Values
    partial: Values
    adjoint: Values
    bends: Values
    jacobian: Values
    scaled: Values  # J/W by entry
    x: Values
    target: Values
    lower: Values
    upper: Values
    slope: Values  # x − x̂ + Jᵀλ
    weight: Values  # W where diagonal
    inverse_weight: Values
    step: Values
    corrected: Values
    multiplier: Values
    direction: Values
    corrected_direction: Values
    shift: Values
    residual: Values
    active: Values  # 1 where a row takes part
    held: Values  # 1 where a bound holds an unknown
    matrix: Values
    rhs: Values
    factor: Values
    pivots: Values
    kept: Values  # empty: nothing is refined
    scale: Values
    tally: Values
    work: Values


@njit(cache=True, nogil=True, parallel=True, error_model="numpy")
def solve_tiles(  # type: ignore[no-untyped-def]
    code, flow, frame, plan, signs, tolerance, gap_tolerance, limit, live, memory, status, iterations
):  # read: the rest; written: memory, status and iterations (tiles, LANES)
    """Solve all tiles; `live` (tiles, LANES) marks lanes that hold a sample."""
    for number in prange(len(status)):
        tile = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        _solve(
            code, flow, frame, plan, signs, tolerance, gap_tolerance, limit, live[tile], memory, tile, status[tile],
            iterations[tile],
        )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _solve(  # type: ignore[no-untyped-def]
    code, flow, frame, plan, signs, tolerance, gap_tolerance, limit, live, memory, tile, status, iterations
):
    m, v = len(frame.row_ptr) - 1, len(frame.place)
    x, lam = memory.x[tile], memory.multiplier[tile]
    damping, penalty = np.zeros(LANES), np.ones(LANES)
    theta, objective, violation, gap = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    alpha, merit, decrease = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    failures = np.zeros(LANES, np.int64)
    for lane in range(LANES):
        status[lane] = RUNNING if live[lane] else CONVERGED
        iterations[lane] = 0
    _place(frame, x, memory.cells[tile])
    _residual(code, frame, memory, tile)
    for iteration in range(limit + 1):
        _derivatives(code, flow, frame, memory, tile)
        if iteration == 0 and _nudge(frame, memory, tile, tolerance):
            _place(frame, x, memory.cells[tile])
            _residual(code, frame, memory, tile)
            _derivatives(code, flow, frame, memory, tile)
        _sets(frame, memory, tile)
        _measure(frame, memory, tile, theta, objective, violation, gap)
        running = False
        for lane in range(LANES):
            if status[lane] == RUNNING:
                if not (np.isfinite(violation[lane]) and np.isfinite(gap[lane])):
                    status[lane] = BROKEN
                elif violation[lane] <= tolerance and gap[lane] <= gap_tolerance:
                    status[lane] = CONVERGED
                elif iteration == limit:
                    status[lane] = LIMIT
                else:
                    running = True
                    iterations[lane] += 1
        if not running:
            break
        _factorize(frame, plan, signs, memory, tile, damping, status)
        _direction(frame, plan, memory, tile)
        _predict(frame, memory, tile, theta, penalty, decrease)
        accepted = _search(code, frame, plan, memory, tile, status, theta, objective, penalty, decrease, alpha, merit)
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            if accepted[lane]:
                failures[lane] = 0
                damping[lane] = 0.0 if damping[lane] <= _FIRST_DAMPING else 0.1 * damping[lane]
            else:
                failures[lane] += 1
                damping[lane] = max(_FIRST_DAMPING, 10.0 * damping[lane])
                penalty[lane] = 1.0
                if damping[lane] > _LAST_DAMPING:
                    status[lane] = INFEASIBLE if _vanished(frame, memory, tile, lane, tolerance) else STALLED
    for lane in range(LANES):
        if status[lane] == LIMIT and _vanished(frame, memory, tile, lane, tolerance):
            status[lane] = INFEASIBLE


@njit(cache=True, nogil=True, error_model="numpy")
def _place(frame, x, cells):  # type: ignore[no-untyped-def]  # written: cells (inputs)
    for j in range(len(frame.place)):
        store(cells, frame.place[j], load(x, j))


@njit(cache=True, nogil=True, error_model="numpy")
def _residual(code, frame, memory, tile):  # type: ignore[no-untyped-def]  # written: cells, rows, residual
    """residual = h(x) + shift − Gλ at the cells' x and the current λ."""
    rows, residual = memory.rows[tile], memory.residual[tile]
    tile_values(code, memory.cells[tile], rows)
    lam, shift = memory.multiplier[tile], memory.shift[tile]
    for r in range(len(frame.row_ptr) - 1):
        total = add(load(rows, r), load(shift, r))
        for p in range(frame.gram_ptr[r], frame.gram_ptr[r + 1]):
            total = fnma(full(frame.gram_value[p]), load(lam, frame.gram_column[p]), total)
        store(residual, r, total)


@njit(cache=True, nogil=True, error_model="numpy")
def _derivatives(code, flow, frame, memory, tile):  # type: ignore[no-untyped-def]  # written: slopes, bends, J, slope, W
    """J at the cells' x, Σλ∇²h, and the slope x − x̂ + Jᵀλ of the Lagrangian."""
    jacobian, lam = memory.jacobian[tile], memory.multiplier[tile]
    tile_slopes(
        code, flow, frame.varying, memory.cells[tile], memory.slots[tile], memory.left[tile], memory.right[tile],
        memory.partial[tile], jacobian,
    )  # fmt: skip
    tile_bends(
        code, flow, lam, memory.left[tile], memory.right[tile], memory.partial[tile], memory.adjoint[tile],
        memory.bends[tile],
    )  # fmt: skip
    x, target, slope, weight = memory.x[tile], memory.target[tile], memory.slope[tile], memory.weight[tile]
    for j in range(len(frame.place)):
        total = fnma(full(1.0), load(target, j), load(x, j))
        for p in range(frame.column_ptr[j], frame.column_ptr[j + 1]):
            total = fma(load(jacobian, frame.column_entry[p]), load(lam, frame.column_row[p]), total)
        store(slope, j, total)
        store(weight, j, full(1.0))
    for h in range(len(frame.bend_row)):
        if frame.bend_row[h] == frame.bend_column[h]:
            j = frame.bend_row[h]
            store(weight, j, add(load(weight, j), load(memory.bends[tile], h)))


@njit(cache=True, nogil=True, error_model="numpy")
def _row_norm(frame, memory, tile, r, lane):  # type: ignore[no-untyped-def]
    """‖J_r‖² of one row, eliminated unknowns included."""
    total = 0.0
    jacobian = memory.jacobian[tile]
    for p in range(frame.row_ptr[r], frame.row_ptr[r + 1]):
        total += jacobian[p * LANES + lane] ** 2
    for p in range(frame.gram_ptr[r], frame.gram_ptr[r + 1]):
        if frame.gram_column[p] == r:
            total += frame.gram_value[p]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _nudge(frame, memory, tile, tolerance):  # type: ignore[no-untyped-def]  # written: x, where a broken row has no slope
    """Push x off points where a broken row's slope vanishes (a quadratic at its centre): no step could start there."""
    pushed = False
    residual, x, jacobian = memory.residual[tile], memory.x[tile], memory.jacobian[tile]
    for lane in range(LANES):
        stuck = False
        for r in range(len(frame.row_ptr) - 1):
            h = residual[r * LANES + lane]
            broken = abs(h) > tolerance if frame.equality[r] == 1 else h > tolerance
            # the slope a push of this size would see: below it the row is flat for all purposes
            if broken and _row_norm(frame, memory, tile, r, lane) < (1e-3 * _NUDGE) ** 2:
                stuck = True
                for p in range(frame.row_ptr[r], frame.row_ptr[r + 1]):
                    j = frame.column[p]
                    # a fixed scatter with no symmetry: fractional parts of multiples of the golden ratio
                    x[j * LANES + lane] += _NUDGE * (2.0 * ((0.6180339887498949 * (j + 1)) % 1.0) - 1.0)
                    jacobian[p * LANES + lane] = 1.0  # so that a second row does not push the same unknown again
        pushed = pushed or stuck
    return pushed


@njit(cache=True, nogil=True, error_model="numpy")
def _sets(frame, memory, tile):  # type: ignore[no-untyped-def]  # written: active, held
    """Choose the rows and bounds that take part: those whose multiplier, were they held, would have the right sign."""
    active, held = memory.active[tile], memory.held[tile]
    lam, residual = memory.multiplier[tile], memory.residual[tile]
    for r in range(len(frame.row_ptr) - 1):
        for lane in range(LANES):
            i = r * LANES + lane
            if frame.equality[r] == 1:
                active[i] = 1.0
            else:
                # h/‖J‖² is what the row's own step would add to its multiplier
                size = max(_row_norm(frame, memory, tile, r, lane), 1e-30)
                active[i] = 1.0 if lam[i] + residual[i] / size > 0.0 else 0.0
    if frame.bounded == 1:
        x, slope = memory.x[tile], memory.slope[tile]
        lower, upper = memory.lower[tile], memory.upper[tile]
        for i in range(len(x)):
            wish = x[i] - slope[i]
            held[i] = 1.0 if wish > upper[i] or wish < lower[i] else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _measure(frame, memory, tile, theta, objective, violation, gap):  # type: ignore[no-untyped-def]
    """Per lane: ℓ1 violation, objective, largest violation, and how far stationarity is off. Written: those four."""
    _merit_parts(frame, memory, tile, memory.x[tile], theta, objective, violation)
    lam, active, slope, held = memory.multiplier[tile], memory.active[tile], memory.slope[tile], memory.held[tile]
    residual, x = memory.residual[tile], memory.x[tile]
    for lane in range(LANES):
        worst = 0.0
        for j in range(len(frame.place)):
            i = j * LANES + lane
            if frame.bounded == 1 and held[i] > 0.0:
                bound = memory.upper[tile, i] if x[i] - slope[i] > memory.upper[tile, i] else memory.lower[tile, i]
                size = abs(x[i] - bound)
            else:
                size = abs(slope[i])
            worst = size if not size <= worst else worst
        for r in range(len(frame.row_ptr) - 1):
            if frame.equality[r] == 0:
                i = r * LANES + lane
                # an inactive row's multiplier has to vanish, an active one's residual too (complementarity)
                norm = np.sqrt(max(_row_norm(frame, memory, tile, r, lane), 1e-30))
                size = abs(lam[i]) * norm if active[i] == 0.0 else abs(residual[i]) / norm
                worst = size if not size <= worst else worst
        gap[lane] = worst


@njit(cache=True, nogil=True, error_model="numpy")
def _merit_parts(frame, memory, tile, x, theta, objective, violation):  # type: ignore[no-untyped-def]
    """ℓ1 violation, objective and largest violation of x with the current residual and λ. Written: those three."""
    residual, lam, target = memory.residual[tile], memory.multiplier[tile], memory.target[tile]
    for lane in range(LANES):
        total, worst, value = 0.0, 0.0, 0.0
        for r in range(len(frame.row_ptr) - 1):
            h = residual[r * LANES + lane]
            size = abs(h) if frame.equality[r] == 1 else (h if h > 0.0 or h != h else 0.0)
            total += size
            worst = size if not size <= worst else worst
            moved = 0.0
            for p in range(frame.gram_ptr[r], frame.gram_ptr[r + 1]):
                moved += frame.gram_value[p] * lam[frame.gram_column[p] * LANES + lane]
            value += lam[r * LANES + lane] * moved
        for j in range(len(frame.place)):
            i = j * LANES + lane
            away = x[i] - target[i]
            value += away * away
            if frame.bounded == 1:
                excess = max(max(x[i] - memory.upper[tile, i], memory.lower[tile, i] - x[i]), 0.0)
                total += excess
                worst = max(worst, excess)
        theta[lane], objective[lane], violation[lane] = total, 0.5 * value, worst


@njit(cache=True, nogil=True, error_model="numpy")
def _factorize(frame, plan, signs, memory, tile, damping, status):  # type: ignore[no-untyped-def]
    """Assemble and factorise; lanes of wrong inertia are made convex and the tile is done again.

    Written: inverse_weight, scaled, matrix, factor, pivots, tally.
    """
    convex = np.zeros(LANES)
    for attempt in range(_CONVEX_TRIALS):
        negative = _weigh(frame, memory, tile, damping, convex)
        if frame.augmented == 0:
            _assemble_schur(frame, memory, tile)
        else:
            _assemble_augmented(frame, memory, tile, damping, convex)
        factorize_tile(
            plan, memory.matrix[tile], LANES, 0, signs, frame.augmented == 1, _PIVOT, np.inf, memory.factor[tile],
            memory.pivots[tile], memory.kept[tile], memory.scale[tile], memory.tally[tile],
        )  # fmt: skip
        again = False
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            if frame.augmented == 0:  # as many negative pivots as negative W: the reduced curvature is positive
                if convex[lane] == 0.0 and int(memory.tally[tile, lane]) != negative[lane]:
                    convex[lane] = 1.0
                    again = True
            elif memory.tally[tile, LANES + lane] > 0.0:  # pivots of the wrong sign were met
                convex[lane] = max(_LEAST_CURVATURE, 10.0 * convex[lane])
                again = True
        if not again:
            break


@njit(cache=True, nogil=True, error_model="numpy")
def _weigh(frame, memory, tile, damping, convex):  # type: ignore[no-untyped-def]  # written: inverse_weight
    """Invert the diagonal W, damped; made positive in `convex` lanes. Gives the number of negative ones per lane."""
    weight, inverse, held = memory.weight[tile], memory.inverse_weight[tile], memory.held[tile]
    negative = np.zeros(LANES, np.int64)
    for j in range(len(frame.place)):
        for lane in range(LANES):
            i = j * LANES + lane
            w = weight[i] + damping[lane]
            if convex[lane] > 0.0:
                w = max(abs(w), _LEAST_CURVATURE)
            elif abs(w) < 1e-8:
                w = 1e-8
            inverse[i] = 1.0 / w
            if frame.bounded == 1 and held[i] > 0.0:
                inverse[i] = 0.0
            elif w < 0.0:
                negative[lane] += 1
    return negative


@njit(cache=True, nogil=True, error_model="numpy")
def _assemble_schur(frame, memory, tile):  # type: ignore[no-untyped-def]  # written: scaled, matrix
    """JW⁻¹Jᵀ + G, with idle rows replaced by those of the identity."""
    jacobian, scaled, matrix = memory.jacobian[tile], memory.scaled[tile], memory.matrix[tile]
    inverse, active = memory.inverse_weight[tile], memory.active[tile]
    for p in range(len(frame.column)):
        store(scaled, p, mul(load(jacobian, p), load(inverse, frame.column[p])))
    for s in range(len(frame.entry_row)):
        total = full(frame.entry_constant[s])
        for t in range(frame.term_ptr[s], frame.term_ptr[s + 1]):
            total = fma(load(scaled, frame.term_left[t]), load(jacobian, frame.term_right[t]), total)
        store(matrix, s, total)
        if frame.mixed == 1:
            i, j = frame.entry_row[s], frame.entry_column[s]
            for lane in range(LANES):
                if active[i * LANES + lane] == 0.0 or active[j * LANES + lane] == 0.0:
                    matrix[s * LANES + lane] = 1.0 if i == j else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _assemble_augmented(frame, memory, tile, damping, convex):  # type: ignore[no-untyped-def]  # written: matrix
    """[[W, Jᵀ], [J, −G]], with idle rows and held unknowns replaced by those of ∓ the identity."""
    jacobian, bends, matrix = memory.jacobian[tile], memory.bends[tile], memory.matrix[tile]
    active, held = memory.active[tile], memory.held[tile]
    v = len(frame.place)
    for s in range(len(frame.entry_row)):
        i, j = frame.entry_row[s], frame.entry_column[s]
        total = full(frame.entry_constant[s])
        for t in range(frame.term_ptr[s], frame.term_ptr[s + 1]):
            if frame.term_right[t] == 1:
                total = add(total, load(bends, frame.term_left[t]))
            else:
                total = add(total, load(jacobian, frame.term_left[t]))
        store(matrix, s, total)
        for lane in range(LANES):
            at = s * LANES + lane
            if i == j and i < v:
                matrix[at] += damping[lane] + convex[lane]
            if frame.bounded == 1:
                if (i < v and held[i * LANES + lane] > 0.0) or (j < v and held[j * LANES + lane] > 0.0):
                    matrix[at] = 1.0 if i == j else 0.0
            if frame.mixed == 1 and i >= v:
                idle = active[(i - v) * LANES + lane] == 0.0
                if idle or (j >= v and active[(j - v) * LANES + lane] == 0.0):
                    matrix[at] = -1.0 if i == j else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def _direction(frame, plan, memory, tile):  # type: ignore[no-untyped-def]  # written: step, direction, rhs, work
    """Solve for the Newton step of x and λ."""
    if frame.augmented == 0:
        _schur_direction(frame, plan, memory, tile)
    else:
        _augmented_direction(frame, plan, memory, tile)


@njit(cache=True, nogil=True, error_model="numpy")
def _to_bound(memory, tile, i):  # type: ignore[no-untyped-def]
    """How far a held unknown is from its bound."""
    x, slope = memory.x[tile, i], memory.slope[tile, i]
    upper = memory.upper[tile, i]
    return (upper if x - slope > upper else memory.lower[tile, i]) - x


@njit(cache=True, nogil=True, error_model="numpy")
def _schur_direction(frame, plan, memory, tile):  # type: ignore[no-untyped-def]
    """(JW⁻¹Jᵀ + G) dλ = h − JW⁻¹ slope over the active rows, with the multipliers of idle rows already at zero."""
    rhs, residual, direction = memory.rhs[tile], memory.residual[tile], memory.direction[tile]
    scaled, jacobian, held = memory.scaled[tile], memory.jacobian[tile], memory.held[tile]
    active, lam = memory.active[tile], memory.multiplier[tile]
    slope = memory.corrected[tile]  # free until the correction: the slope without idle rows
    for j in range(len(frame.place)):
        total = load(memory.slope[tile], j)
        store(slope, j, total)
        if frame.mixed == 1:
            for p in range(frame.column_ptr[j], frame.column_ptr[j + 1]):
                for lane in range(LANES):
                    i = frame.column_row[p] * LANES + lane
                    if active[i] == 0.0:
                        slope[j * LANES + lane] -= jacobian[frame.column_entry[p] * LANES + lane] * lam[i]
    for r in range(len(frame.row_ptr) - 1):
        total = load(residual, r)
        for p in range(frame.row_ptr[r], frame.row_ptr[r + 1]):
            total = fnma(load(scaled, p), load(slope, frame.column[p]), total)
        store(rhs, r, total)
        for lane in range(LANES):
            at = r * LANES + lane
            if frame.mixed == 1:
                for p in range(frame.gram_ptr[r], frame.gram_ptr[r + 1]):
                    i = frame.gram_column[p] * LANES + lane
                    if active[i] == 0.0:
                        rhs[at] += frame.gram_value[p] * lam[i]
            if frame.bounded == 1:
                for p in range(frame.row_ptr[r], frame.row_ptr[r + 1]):
                    i = frame.column[p] * LANES + lane
                    if held[i] > 0.0:
                        rhs[at] += jacobian[p * LANES + lane] * _to_bound(memory, tile, i)
            if active[at] == 0.0:
                rhs[at] = -lam[at]
    _solve_masked(plan, memory, tile, rhs, direction)
    _follow(frame, memory, tile, direction, memory.step[tile])


@njit(cache=True, nogil=True, error_model="numpy")
def _solve_masked(plan, memory, tile, rhs, out):  # type: ignore[no-untyped-def]  # written: out, work
    solve_tile(
        plan, memory.factor[tile], memory.pivots[tile], memory.kept[tile], 0, rhs, 1, LANES, 0,
        memory.work[tile].reshape(1, -1), out,
    )  # fmt: skip


@njit(cache=True, nogil=True, error_model="numpy")
def _follow(frame, memory, tile, direction, step):  # type: ignore[no-untyped-def]  # written: step
    """dx = −W⁻¹(slope + Jᵀdλ), and to the bound where one holds."""
    slope, jacobian, inverse = memory.slope[tile], memory.jacobian[tile], memory.inverse_weight[tile]
    held = memory.held[tile]
    for j in range(len(frame.place)):
        total = load(slope, j)
        for p in range(frame.column_ptr[j], frame.column_ptr[j + 1]):
            total = fma(load(jacobian, frame.column_entry[p]), load(direction, frame.column_row[p]), total)
        store(step, j, fnma(total, load(inverse, j), full(0.0)))
        if frame.bounded == 1:
            for lane in range(LANES):
                if held[j * LANES + lane] > 0.0:
                    step[j * LANES + lane] = _to_bound(memory, tile, j * LANES + lane)


@njit(cache=True, nogil=True, error_model="numpy")
def _augmented_direction(frame, plan, memory, tile):  # type: ignore[no-untyped-def]
    m, v = len(frame.row_ptr) - 1, len(frame.place)
    rhs, slope, residual, lam = memory.rhs[tile], memory.slope[tile], memory.residual[tile], memory.multiplier[tile]
    held, active, jacobian = memory.held[tile], memory.active[tile], memory.jacobian[tile]
    for j in range(v):
        store(rhs, j, fnma(full(1.0), load(slope, j), full(0.0)))
    for r in range(m):
        store(rhs, v + r, fnma(full(1.0), load(residual, r), full(0.0)))
    for lane in range(LANES):
        for r in range(m):
            if active[r * LANES + lane] == 0.0:
                rhs[(v + r) * LANES + lane] = lam[r * LANES + lane]
                for p in range(frame.row_ptr[r], frame.row_ptr[r + 1]):
                    # dλ = −λ is known: its share of the slope moves to the right
                    rhs[frame.column[p] * LANES + lane] += jacobian[p * LANES + lane] * lam[r * LANES + lane]
        if frame.bounded == 1:
            for j in range(v):
                i = j * LANES + lane
                if held[i] > 0.0:
                    move = _to_bound(memory, tile, i)
                    rhs[i] = move
                    for p in range(frame.column_ptr[j], frame.column_ptr[j + 1]):
                        r = frame.column_row[p]
                        if active[r * LANES + lane] > 0.0:
                            rhs[(v + r) * LANES + lane] -= jacobian[frame.column_entry[p] * LANES + lane] * move
    _solve_masked(plan, memory, tile, rhs, rhs)
    for j in range(v):
        store(memory.step[tile], j, load(rhs, j))
    for r in range(m):
        store(memory.direction[tile], r, load(rhs, v + r))


@njit(cache=True, nogil=True, error_model="numpy")
def _predict(frame, memory, tile, theta, penalty, decrease):  # type: ignore[no-untyped-def]
    """Raise the penalty above the multipliers and predict the merit's decrease. Written: penalty, decrease."""
    x, target, step = memory.x[tile], memory.target[tile], memory.step[tile]
    lam, direction = memory.multiplier[tile], memory.direction[tile]
    for lane in range(LANES):
        slope, largest = 0.0, 0.0
        for j in range(len(frame.place)):
            i = j * LANES + lane
            slope += (x[i] - target[i]) * step[i]
        for r in range(len(frame.row_ptr) - 1):
            i = r * LANES + lane
            moved = 0.0
            for p in range(frame.gram_ptr[r], frame.gram_ptr[r + 1]):
                moved += frame.gram_value[p] * direction[frame.gram_column[p] * LANES + lane]
            slope += lam[i] * moved
            largest = max(largest, abs(lam[i] + direction[i]))
        penalty[lane] = max(penalty[lane], 1.1 * largest)
        if theta[lane] > 0.0 and slope > 0.5 * penalty[lane] * theta[lane]:
            penalty[lane] = 2.0 * slope / theta[lane]
        decrease[lane] = slope - penalty[lane] * theta[lane]


@njit(cache=True, nogil=True, error_model="numpy")
def _search(  # type: ignore[no-untyped-def]
    code, frame, plan, memory, tile, status, theta, objective, penalty, decrease, alpha, merit
):  # written: x, multiplier, residual, cells, corrected, corrected_direction
    """Backtrack per lane on the ℓ1 merit function; the first failure of a full step tries a second-order correction."""
    m, v = len(frame.row_ptr) - 1, len(frame.place)
    x, lam = memory.x[tile], memory.multiplier[tile]
    step, direction = memory.step[tile], memory.direction[tile]
    bent, bent_direction = memory.corrected[tile], memory.corrected_direction[tile]
    new_theta, new_objective, new_worst = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    accepted, corrected = np.zeros(LANES, np.bool_), np.zeros(LANES, np.bool_)
    before_x, before_lam = x.copy(), lam.copy()
    for lane in range(LANES):
        merit[lane] = objective[lane] + penalty[lane] * theta[lane]
        alpha[lane] = 1.0 if status[lane] == RUNNING else 0.0
        accepted[lane] = status[lane] != RUNNING
    for trial in range(_HALVINGS):
        for j in range(v):
            for lane in range(LANES):
                i = j * LANES + lane
                x[i] = before_x[i] + alpha[lane] * (bent[i] if corrected[lane] else step[i])
        for r in range(m):
            for lane in range(LANES):
                i = r * LANES + lane
                lam[i] = before_lam[i] + alpha[lane] * (bent_direction[i] if corrected[lane] else direction[i])
        _place(frame, x, memory.cells[tile])
        _residual(code, frame, memory, tile)
        _merit_parts(frame, memory, tile, x, new_theta, new_objective, new_worst)
        open_lanes = False
        for lane in range(LANES):
            if accepted[lane]:
                continue
            new_merit = new_objective[lane] + penalty[lane] * new_theta[lane]
            slack = _NOISE * (abs(merit[lane]) + abs(objective[lane]))
            if new_merit <= merit[lane] + _ARMIJO * alpha[lane] * min(decrease[lane], 0.0) + slack:
                accepted[lane] = True
            else:
                open_lanes = True
        if not open_lanes:
            return accepted
        if trial == 0:
            _correct(frame, plan, memory, tile)
            for lane in range(LANES):
                corrected[lane] = not accepted[lane] and new_theta[lane] >= theta[lane] and np.isfinite(new_theta[lane])
                if not accepted[lane] and not corrected[lane]:
                    alpha[lane] = 0.5
        else:
            for lane in range(LANES):
                if not accepted[lane]:
                    if corrected[lane]:
                        corrected[lane] = False  # back to the plain direction
                        alpha[lane] = 0.5
                    else:
                        alpha[lane] *= 0.5
    for lane in range(LANES):
        if not accepted[lane]:
            alpha[lane] = 0.0
            for j in range(v):
                x[j * LANES + lane] = before_x[j * LANES + lane]
            for r in range(m):
                lam[r * LANES + lane] = before_lam[r * LANES + lane]
    _place(frame, x, memory.cells[tile])
    _residual(code, frame, memory, tile)
    return accepted


@njit(cache=True, nogil=True, error_model="numpy")
def _correct(frame, plan, memory, tile):  # type: ignore[no-untyped-def]  # written: corrected, corrected_direction, rhs
    """Second-order correction: take the violation of the full step back out, with the same factors."""
    m, v = len(frame.row_ptr) - 1, len(frame.place)
    rhs, residual, active = memory.rhs[tile], memory.residual[tile], memory.active[tile]
    first = 0 if frame.augmented == 0 else v
    if frame.augmented == 1:
        for i in range(v * LANES):
            rhs[i] = 0.0
    sign = 1.0 if frame.augmented == 0 else -1.0
    for i in range(m * LANES):
        rhs[first * LANES + i] = sign * residual[i] if active[i] > 0.0 else 0.0
    _solve_masked(plan, memory, tile, rhs, rhs)
    bent, bent_direction = memory.corrected[tile], memory.corrected_direction[tile]
    for i in range(m * LANES):
        bent_direction[i] = memory.direction[tile, i] + rhs[first * LANES + i]
    if frame.augmented == 1:
        for i in range(v * LANES):
            bent[i] = memory.step[tile, i] + rhs[i]
    else:
        _follow(frame, memory, tile, bent_direction, bent)


@njit(cache=True, nogil=True, error_model="numpy")
def _vanished(frame, memory, tile, lane, tolerance):  # type: ignore[no-untyped-def]
    """Whether the violation is stationary here, ‖Jᵀh‖ ≈ 0 with h ≠ 0: proof of local infeasibility."""
    residual, jacobian = memory.residual[tile], memory.jacobian[tile]
    size, pull, norms = 0.0, 0.0, 0.0
    for r in range(len(frame.row_ptr) - 1):
        h = residual[r * LANES + lane]
        h = h if frame.equality[r] == 1 or h > 0.0 else 0.0
        size += h * h
        norms = max(norms, _row_norm(frame, memory, tile, r, lane))
        for p in range(frame.gram_ptr[r], frame.gram_ptr[r + 1]):
            other = residual[frame.gram_column[p] * LANES + lane]
            other = other if frame.equality[frame.gram_column[p]] == 1 or other > 0.0 else 0.0
            pull += h * frame.gram_value[p] * other
    for j in range(len(frame.place)):
        total = 0.0
        for p in range(frame.column_ptr[j], frame.column_ptr[j + 1]):
            h = residual[frame.column_row[p] * LANES + lane]
            h = h if frame.equality[frame.column_row[p]] == 1 or h > 0.0 else 0.0
            total += jacobian[frame.column_entry[p] * LANES + lane] * h
        pull += total * total
    return size > tolerance * tolerance and pull <= (_VANISHED**2) * max(norms, 1e-300) * size
