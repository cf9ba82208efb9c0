"""The Newton step of one tile: assemble the KKT matrix, correct its inertia, factorize, solve, second-order correction.

The matrix is JD⁻¹Jᵀ + G (Schur) or [[W, Jᵀ], [J, −G]] (augmented); rows outside the active set and unknowns
held at a bound are replaced by those of the identity, so that the pattern never changes.
"""

from __future__ import annotations

from snapfm.kernels import layout
from snapfm.kernels.callback import NO_CALLBACK, call_back
from snapfm.kernels.factor.ldl import factorize_tile, solve_tile
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import absolute, add, fma, fnma, full, load, mul, pick, store
from snapfm.kernels.operations import LANES

RUNNING = -1  # status of a lane that is not done
_LEAST_DIAGONAL = 1e-11  # see least_diagonal
_ORDINARY, _LEAST_SHARE = 1e-6, 1e-10  # square of a row's size below which it is a share of that, and the least share

_LEAST_CURVATURE = 1e-2  # stands in for W where the true one has the wrong inertia
_SMALLEST_CURVATURE = 1e-8  # W nearer to zero than this counts as this
# Added to the Schur complement where its inertia is wrong, as a share of ‖J_r‖². Rows that depend on each other near an answer
# have pivots of rounding, or of the violation, with any sign. Only if that does not help is W made convex.
_SOFT = 1e-8
_CONVEX_TRIALS = 12  # of growing convexity; the last factorization is used as it is
_ROUNDING = 8 * 2.220446049250313e-16  # of a sum, relative to the sizes of its terms
_PIVOT = 1e-14  # a pivot below this share of its scale belongs to a dependent row


@compiled(nogil=True, error_model="numpy")
def least_diagonal(norm):
    """Return δ for a row of ‖J_r‖² = norm: the augmented matrix's lower block is −G − δ.

    It keeps dependent rows factorable and is too small to change a step: beside the slopes of a small row, not only beside one.
    """
    return _LEAST_DIAGONAL * max(min(norm / _ORDINARY, 1.0), _LEAST_SHARE)


@compiled(nogil=True, error_model="numpy")
def factorize(frame, plan, tile, damping, status, convex, negative, stop):
    """Assemble and factorize; lanes of wrong inertia are made convex and the tile is factorized again.

    Ends without factors once stop[0] is not zero: check it before using them.
    Written: inverse, scaled, matrix, factor, pivots, scale, tally; convex (what was added), negative.
    """
    convex[:] = 0.0
    tally, rows = tile.tally, len(frame.equality)
    for _ in range(_CONVEX_TRIALS):
        factorize_once(frame, plan, tile, damping, status, convex, negative, stop)
        if stop[0] != 0:
            return
        again = False
        for lane in range(LANES):
            if status[lane] != RUNNING:
                continue
            if frame.augmented == 0:  # as many negative pivots as negative W: the reduced curvature is positive
                if convex[lane] <= 0.0 and int(tally[lane]) != negative[lane]:
                    convex[lane] = 1.0 if convex[lane] < 0.0 else -_SOFT
                    again = True
            elif int(tally[lane] + tally[LANES + lane]) != rows:  # one negative pivot per row, a weak one if dependent
                convex[lane] = max(_LEAST_CURVATURE, 10.0 * convex[lane])
                again = True
        if not again:
            break


@compiled(nogil=True, error_model="numpy")
def factorize_once(frame, plan, tile, damping, status, convex, negative, stop):
    """Assemble and factorize with the curvature that is asked for, whatever the inertia; see factorize."""
    _weigh(frame, tile, damping, convex, negative)
    if frame.augmented == 0:
        _assemble_schur(frame, tile, convex)
    else:
        _assemble_augmented(frame, tile, damping, convex)
    tally = tile.tally
    if frame.callback == NO_CALLBACK:
        factorize_tile(
            plan, tile.matrix, LANES, 0, frame.augmented == 1, _PIVOT, tile.factor, tile.pivots, tile.scale, tally, stop
        )  # fmt: skip
        return
    for lane in range(LANES):  # marks the lanes to factorize; the answer takes its place
        tally[lane] = 1.0 if status[lane] == RUNNING else 0.0
    call_back(frame.callback, layout.TO_FACTORIZE, tile.memory)


@compiled(nogil=True, error_model="numpy")
def _weigh(frame, tile, damping, convex, negative):  # written: inverse, negative
    """Invert the diagonal W, damped, made positive in `convex` lanes, infinite where a bound holds; count negative ones.

    Where the Hessian is coupled, a positive diagonal stands in for W; the identity, where factors are shared.
    """
    weight, inverse, to_bound = tile.diagonal, tile.inverse, tile.to_bound
    negative[:] = 0
    if frame.shared == 1:  # a callback has these factors
        for j in range(len(weight) // LANES):
            store(inverse, j, full(1.0))
        return
    if frame.coupled == 1:
        spread_of(frame, tile, inverse)
    for j in range(len(weight) // LANES):
        for lane in range(LANES):
            i = j * LANES + lane
            w = weight[i] + damping[lane]
            if frame.coupled == 1:  # a preconditioner: positive, and at least as large as half of what W has beside it
                w = max(w, 0.5 * inverse[i], _LEAST_CURVATURE)
            w = max(abs(w), _LEAST_CURVATURE) if convex[lane] > 0.0 else w
            w = _SMALLEST_CURVATURE if abs(w) < _SMALLEST_CURVATURE else w
            held = frame.bounded == 1 and to_bound[i] == to_bound[i]
            inverse[i] = 0.0 if held else 1.0 / w
            negative[lane] += 1 if inverse[i] < 0.0 else 0


@compiled(nogil=True, error_model="numpy")
def spread_of(frame, tile, spread):  # written: spread
    """Sum up per unknown the sizes of the Hessian's entries off the diagonal."""
    hessian, row, column = tile.hessian, frame.hessian_row, frame.hessian_column
    for j in range(len(spread) // LANES):
        store(spread, j, full(0.0))
    for h in range(len(row)):
        i, j = row[h], column[h]
        if i != j:
            size = absolute(load(hessian, h))
            store(spread, i, add(load(spread, i), size))
            store(spread, j, add(load(spread, j), size))


@compiled(nogil=True, error_model="numpy")
def _assemble_schur(frame, tile, convex):  # written: scaled, matrix
    """JW⁻¹Jᵀ + G, with idle rows replaced by those of the identity; lanes that are not `convex` have softer rows."""
    jacobian, scaled, matrix, inverse, active = tile.jacobian, tile.scaled, tile.matrix, tile.inverse, tile.active
    barrier, column = tile.barrier, frame.column
    for p in range(len(column)):
        store(scaled, p, mul(load(jacobian, p), load(inverse, column[p])))
    rows, columns, ptr, constant = frame.entry_row, frame.entry_column, frame.term_ptr, frame.entry_constant
    left, right, norm = frame.term_left, frame.term_right, tile.row_norm
    soft = pick(load(convex, 0), full(0.0), fnma(load(convex, 0), full(1.0), full(0.0)), full(0.0))
    for s in range(len(rows)):
        total = full(constant[s])
        for t in range(ptr[s], ptr[s + 1]):
            total = fma(load(scaled, left[t]), load(jacobian, right[t]), total)
        if rows[s] == columns[s]:
            total = fma(soft, load(norm, rows[s]), add(total, load(barrier, rows[s])))
        if frame.mixed == 1:
            here = load(active, rows[s])
            if rows[s] == columns[s]:
                total = fma(here, total, fnma(full(1.0), here, full(1.0)))
            else:
                total = mul(total, mul(here, load(active, columns[s])))
        store(matrix, s, total)


@compiled(nogil=True, error_model="numpy")
def _assemble_augmented(frame, tile, damping, convex):  # written: matrix
    """[[W, Jᵀ], [J, −G − δ]], with idle rows and held unknowns replaced by those of ∓ the identity."""
    jacobian, hessian, matrix, active, to_bound = tile.jacobian, tile.hessian, tile.matrix, tile.active, tile.to_bound
    barrier, more, rows, columns = tile.barrier, tile.bound_weight, frame.entry_row, frame.entry_column
    ptr, constant, left, right = frame.term_ptr, frame.entry_constant, frame.term_left, frame.term_right
    v, norm = len(frame.place), tile.row_norm
    for s in range(len(rows)):
        i, j = rows[s], columns[s]
        total = full(constant[s])
        for t in range(ptr[s], ptr[s + 1]):
            total = add(total, load(hessian if right[t] == 1 else jacobian, left[t]))
        store(matrix, s, total)
        for lane in range(LANES):
            here = s * LANES + lane
            if i == j and i < v:
                matrix[here] += damping[lane] + convex[lane]
            if i == j and i >= v:
                matrix[here] -= least_diagonal(norm[(i - v) * LANES + lane]) + barrier[(i - v) * LANES + lane]
            if frame.bounded == 1:
                if i == j and i < v:
                    matrix[here] += more[i * LANES + lane]
                held_row = i < v and to_bound[i * LANES + lane] == to_bound[i * LANES + lane]
                held_column = j < v and to_bound[j * LANES + lane] == to_bound[j * LANES + lane]
                if held_row or held_column:
                    matrix[here] = 1.0 if i == j else 0.0
            if frame.mixed == 1 and i >= v:
                idle = active[(i - v) * LANES + lane] == 0.0
                if idle or (j >= v and active[(j - v) * LANES + lane] == 0.0):
                    matrix[here] = -1.0 if i == j else 0.0


@compiled(nogil=True, error_model="numpy")
def schur_direction(frame, plan, tile):  # written: direction, step, rhs, plain_step
    """(JW⁻¹Jᵀ + G) dλ = h − JW⁻¹ slope over the active rows, with the multipliers of idle rows already at zero."""
    rhs, residual, scaled = tile.rhs, tile.residual, tile.scaled
    jacobian, active, idle, to_bound, direction = tile.jacobian, tile.active, tile.idle, tile.to_bound, tile.direction
    slope = tile.gradient
    without = tile.plain_step  # free until the search
    ptr, row, entry = frame.column_ptr, frame.column_row, frame.column_entry
    for j in range(len(ptr) - 1):
        total = load(slope, j)
        if frame.mixed == 1:
            for p in range(ptr[j], ptr[j + 1]):
                total = fnma(load(jacobian, entry[p]), load(idle, row[p]), total)
        store(without, j, total)
    row_ptr, column, gram_ptr, gram_column = frame.row_ptr, frame.column, frame.gram_ptr, frame.gram_column
    gram, x, target, shift = frame.gram, tile.x, tile.target, tile.shift
    for r in range(len(row_ptr) - 1):
        total = load(residual, r)
        for p in range(row_ptr[r], row_ptr[r + 1]):
            total = fnma(load(scaled, p), load(without, column[p]), total)
        if frame.mixed == 1:
            for p in range(gram_ptr[r], gram_ptr[r + 1]):
                total = fma(full(gram[p]), load(idle, gram_column[p]), total)
            total = fnma(full(1.0), load(idle, r), mul(load(active, r), total))
        if frame.shared == 1:
            size = absolute(load(shift, r))
            for p in range(row_ptr[r], row_ptr[r + 1]):
                j = column[p]
                moved = add(add(absolute(load(x, j)), absolute(load(target, j))), absolute(load(without, j)))
                size = fma(absolute(load(scaled, p)), moved, size)
            total = without_rounding(total, size)
        store(rhs, r, total)
        if frame.bounded == 1:
            for p in range(row_ptr[r], row_ptr[r + 1]):
                for lane in range(LANES):
                    move = to_bound[column[p] * LANES + lane]
                    if move == move:
                        rhs[r * LANES + lane] += active[r * LANES + lane] * jacobian[p * LANES + lane] * move
    solved(frame, plan, tile, rhs, direction)
    _follow(frame, tile, direction, tile.step)


@compiled(nogil=True, error_model="numpy")
def without_rounding(total, size):
    """Return a sum, or zero where it may be rounding alone; `size` sums up the sizes of its terms. Zeros need no solve."""
    return pick(absolute(total), mul(full(_ROUNDING), size), full(0.0), total)


@compiled(nogil=True, error_model="numpy")
def solved(frame, plan, tile, rhs, out):  # read: rhs, which is the section RHS; written: out, work, rhs
    """Solve with the current factors."""
    if frame.callback != NO_CALLBACK:
        call_back(frame.callback, layout.TO_SOLVE, tile.memory)
        for k in range(len(rhs) // LANES):
            store(out, k, load(rhs, k))
        return
    solve_tile(plan, tile.factor, tile.pivots, rhs, LANES, 0, tile.work, out)


@compiled(nogil=True, error_model="numpy")
def _follow(frame, tile, direction, step):  # written: step
    """dx = −W⁻¹(slope + Jᵀdλ), and to the bound where one holds."""
    slope, jacobian, inverse = tile.gradient, tile.jacobian, tile.inverse
    ptr, row, entry = frame.column_ptr, frame.column_row, frame.column_entry
    for j in range(len(ptr) - 1):
        total = load(slope, j)
        for p in range(ptr[j], ptr[j + 1]):
            total = fma(load(jacobian, entry[p]), load(direction, row[p]), total)
        store(step, j, fnma(total, load(inverse, j), full(0.0)))
    if frame.bounded == 1:
        to_bound = tile.to_bound
        for i in range(len(step)):
            if to_bound[i] == to_bound[i]:
                step[i] = to_bound[i]


@compiled(nogil=True, error_model="numpy")
def augmented_direction(frame, plan, tile):  # written: direction, step, rhs
    """[[W, Jᵀ], [J, −G]] (dx, dλ) = −(slope, h), with known values of idle rows and held unknowns moved to the right."""
    rhs, slope, residual = tile.rhs, tile.gradient, tile.residual
    jacobian, active, idle, to_bound = tile.jacobian, tile.active, tile.idle, tile.to_bound
    ptr, row, entry = frame.column_ptr, frame.column_row, frame.column_entry
    gram_ptr, gram_column, gram = frame.gram_ptr, frame.gram_column, frame.gram
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
        for i in range(v * LANES):
            if to_bound[i] == to_bound[i]:
                rhs[i] = to_bound[i]
        row_ptr, column = frame.row_ptr, frame.column
        for r in range(m):
            for p in range(row_ptr[r], row_ptr[r + 1]):
                for lane in range(LANES):
                    move = to_bound[column[p] * LANES + lane]
                    if move == move and active[r * LANES + lane] > 0.0:
                        rhs[(v + r) * LANES + lane] -= jacobian[p * LANES + lane] * move
        _move_curvature(frame, tile, rhs)
    solved(frame, plan, tile, rhs, rhs)
    step, direction = tile.step, tile.direction
    for j in range(v):
        store(step, j, load(rhs, j))
    for r in range(m):
        store(direction, r, load(rhs, v + r))


@compiled(nogil=True, error_model="numpy")
def _move_curvature(frame, tile, rhs):  # read: hessian, to_bound; written: rhs of unknowns that are not held
    """Move the effect of held unknowns on the gradient of the others, through the Hessian, to the right-hand side."""
    hessian, to_bound, row, column = tile.hessian, tile.to_bound, frame.hessian_row, frame.hessian_column
    for h in range(len(row)):
        for lane in range(LANES):
            i, j, entry = row[h] * LANES + lane, column[h] * LANES + lane, hessian[h * LANES + lane]
            held_row, held_column = to_bound[i] == to_bound[i], to_bound[j] == to_bound[j]
            if held_row and not held_column:
                rhs[j] -= entry * to_bound[i]
            elif held_column and not held_row:
                rhs[i] -= entry * to_bound[j]


@compiled(nogil=True, error_model="numpy")
def correct(frame, plan, tile, alpha, wanted):  # written: rhs; step, direction (lanes that are `wanted`)
    """Second-order correction of a step of length alpha with the same factors: reach the violation the linear model predicts.

    RESIDUAL holds that of the trial point; the linear model predicts (1 − alpha) of the residual before the step.
    """
    rhs, residual, active, step, direction = tile.rhs, tile.residual, tile.active, tile.step, tile.direction
    plain, plain_direction, before = tile.plain_step, tile.plain_direction, tile.previous_residual
    first = 0 if frame.augmented == 0 else len(step)
    sign = 1.0 if frame.augmented == 0 else -1.0
    for i in range(first):
        rhs[i] = 0.0
    for i in range(len(residual)):
        missed = residual[i] - max(1.0 - alpha[i % LANES], 0.0) * before[i]
        rhs[first + i] = sign * active[i] * missed if wanted[i % LANES] else 0.0  # zeros need no solve
    solved(frame, plan, tile, rhs, rhs)
    for i in range(len(direction)):
        if wanted[i % LANES]:
            direction[i] = alpha[i % LANES] * plain_direction[i] + rhs[first + i]
    if frame.augmented == 1:
        for i in range(len(step)):
            if wanted[i % LANES]:
                step[i] = alpha[i % LANES] * plain[i] + rhs[i]
        return
    jacobian, inverse, ptr, row = tile.jacobian, tile.inverse, frame.column_ptr, frame.column_row
    entry = frame.column_entry
    for j in range(len(ptr) - 1):
        for lane in range(LANES):
            if wanted[lane]:
                total = 0.0
                for p in range(ptr[j], ptr[j + 1]):
                    total += jacobian[entry[p] * LANES + lane] * rhs[row[p] * LANES + lane]
                i = j * LANES + lane
                step[i] = alpha[lane] * plain[i] - inverse[i] * total
