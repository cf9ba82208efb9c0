"""What Newton's kernel knows of the point it is at: residual, derivatives, active sets, merit, how far it is off.

One tile at a time. May import the program and the layout of memory; knows nothing of linear algebra.
"""

from __future__ import annotations

import numpy as np

from snapfm.kernels.callback import NO_CALLBACK, call_back
from snapfm.kernels.compiling import compiled
from snapfm.kernels.layout import (
    ACTIVE,
    ADJOINT,
    BEND_COLUMN,
    BEND_ROW,
    BENDS,
    CELLS,
    COLUMN,
    COLUMN_ENTRY,
    COLUMN_PTR,
    COLUMN_ROW,
    EQUALITY,
    GIVE,
    GRAM,
    GRAM_COLUMN,
    GRAM_PTR,
    IDLE,
    JACOBIAN,
    LEFT,
    LOWER,
    MULTIPLIER,
    NORM,
    PARTIAL,
    PLACE,
    RESIDUAL,
    RIGHT,
    ROW_PTR,
    ROW_SIZE,
    ROW_WEIGHT,
    ROWS,
    SHIFT,
    SLOPE,
    SLOTS,
    TARGET,
    TO_BOUND,
    TO_DIFFERENTIATE,
    TO_EVALUATE,
    UNIT,
    UPPER,
    WEIGHT,
    X,
)  # fmt: skip
from snapfm.kernels.operations import LANES
from snapfm.kernels.packs import absolute, add, fma, fnma, full, load, mul, pick, store
from snapfm.kernels.program import tile_bends, tile_partials, tile_slopes, tile_values
from snapfm.kernels.sections import section

_NUDGE = 1e-2  # size of the push away from a point where a broken row has no slope
_TINY = 1e-30  # stands in for a slope of zero in a quotient


@compiled(nogil=True, error_model="numpy")
def residual_at(code, frame, memory, at):  # read: x, λ, shift; written: cells, rows, residual
    """residual = h(x) + shift − Gλ − give·λ, with h of x in its own unit and the rest in the lane's (layout.UNIT)."""
    place, x, cells = section(frame.table, frame.table_at, PLACE), section(memory, at, X), section(memory, at, CELLS)
    unit, inverse = load(section(memory, at, UNIT), 0), load(section(memory, at, UNIT), 1)
    for j in range(len(place)):
        store(cells, place[j], mul(unit, load(x, j)))
    rows = section(memory, at, ROWS)
    if code.callback == NO_CALLBACK:
        tile_values(code, cells, rows)
    else:
        call_back(code.callback, TO_EVALUATE, memory)
    residual, shift, lam = section(memory, at, RESIDUAL), section(memory, at, SHIFT), section(memory, at, MULTIPLIER)
    ptr, column = section(frame.table, frame.table_at, GRAM_PTR), section(frame.table, frame.table_at, GRAM_COLUMN)
    gram = section(frame.weight, frame.weight_at, GRAM)
    give = load(section(memory, at, GIVE), 0)
    for r in range(len(ptr) - 1):
        total = fma(inverse, load(rows, r), load(shift, r))
        for p in range(ptr[r], ptr[r + 1]):
            total = fnma(full(gram[p]), load(lam, column[p]), total)
        total = fnma(give, load(lam, r), total)
        store(residual, r, total)


@compiled(nogil=True, error_model="numpy")
def derivatives_at(code, frame, memory, at):
    """J, Σλ∇²h, the slope x − x̂ + Jᵀλ, the diagonal of W and ‖J_r‖². Read: cells, x, λ; written: those."""
    partial, jacobian, lam = (
        section(memory, at, PARTIAL),
        section(memory, at, JACOBIAN),
        section(memory, at, MULTIPLIER),
    )
    left, right, bends = section(memory, at, LEFT), section(memory, at, RIGHT), section(memory, at, BENDS)
    if code.callback == NO_CALLBACK:
        tile_partials(code, section(memory, at, CELLS), True, partial)
        tile_slopes(code, partial, section(memory, at, SLOTS), left, right, jacobian)
        tile_bends(code, lam, left, right, partial, section(memory, at, ADJOINT), bends)
    else:
        call_back(code.callback, TO_DIFFERENTIATE, memory)
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
    unit = load(section(memory, at, UNIT), 0)
    for h in range(len(bend_row)):
        bend = mul(unit, load(bends, h))  # multipliers are in the lane's unit
        store(bends, h, bend)
        if bend_row[h] == bend_column[h]:
            store(weight, bend_row[h], add(load(weight, bend_row[h]), bend))
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


@compiled(nogil=True, error_model="numpy")
def size_rows(memory, at, ordinary):  # read: residual, norm; written: row_size, row_weight
    """Measure every row by the larger of ‖J_r‖ and |h_r|: how far it is off, in steps of the field's size.

    Rows of sizes from `ordinary` to one over it are left as they are: 1 measures all.
    """
    residual, norm = section(memory, at, RESIDUAL), section(memory, at, NORM)
    size, weight = section(memory, at, ROW_SIZE), section(memory, at, ROW_WEIGHT)
    for i in range(len(residual)):
        found = max(np.sqrt(norm[i]), abs(residual[i]))
        if ordinary < found < 1.0 / ordinary or not _TINY < found < 1.0 / _TINY:  # or without slope, or not a number
            found = 1.0
        size[i], weight[i] = found, 1.0 / found


@compiled(nogil=True, error_model="numpy")
def nudge(frame, memory, at, tolerance):  # read: tolerance, by lane; written: x, where a broken row has no slope
    """Push x off points where a broken row's slope vanishes (a quadratic at its centre): no step could start there."""
    residual, x, norm = section(memory, at, RESIDUAL), section(memory, at, X), section(memory, at, NORM)
    equality = section(frame.table, frame.table_at, EQUALITY)
    ptr, column = section(frame.table, frame.table_at, ROW_PTR), section(frame.table, frame.table_at, COLUMN)
    pushed = np.zeros(len(x), np.bool_)
    any_pushed = False
    for r in range(len(equality)):
        for lane in range(LANES):
            h = residual[r * LANES + lane]
            broken = abs(h) > tolerance[lane] if equality[r] == 1 else h > tolerance[lane]
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


@compiled(nogil=True, error_model="numpy")
def choose_sets(frame, memory, at):  # written: active, idle (λ of idle rows), to_bound
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


@compiled(nogil=True, error_model="numpy")
def settle(memory, at, arrived):  # read: arrived; written: x
    """Set what is held at a bound to the bound itself; say whether that moved anything.

    Steps leave rounding, or as much as the gap allows, and many small distances add up in a row: whether the laws still
    hold has to be looked at afterwards.
    """
    x, slope, to_bound = section(memory, at, X), section(memory, at, SLOPE), section(memory, at, TO_BOUND)
    lower, upper = section(memory, at, LOWER), section(memory, at, UPPER)
    moved = False
    for i in range(len(x)):
        if arrived[i % LANES] and to_bound[i] == to_bound[i]:
            bound = upper[i] if x[i] - slope[i] > upper[i] else lower[i]
            moved = moved or x[i] != bound
            x[i] = bound
    return moved


@compiled(nogil=True, error_model="numpy")
def merit_parts(frame, memory, at, theta, objective, violation):  # written: the last three
    """Per lane: ℓ1 violation of rows measured by their size, objective, and largest violation as it is."""
    residual, lam = section(memory, at, RESIDUAL), section(memory, at, MULTIPLIER)
    equality = section(frame.table, frame.table_at, EQUALITY)
    ptr, column = section(frame.table, frame.table_at, GRAM_PTR), section(frame.table, frame.table_at, GRAM_COLUMN)
    gram = section(frame.weight, frame.weight_at, GRAM)
    total, worst, value, zero = full(0.0), full(0.0), full(0.0), full(0.0)
    give, row_weight = load(section(memory, at, GIVE), 0), section(memory, at, ROW_WEIGHT)
    for r in range(len(equality)):
        h = load(residual, r)
        size = absolute(h) if equality[r] == 1 else pick(h, zero, zero, h)
        total = fma(load(row_weight, r), size, total)
        worst = pick(size, worst, worst, size)
        moved = mul(give, load(lam, r))
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
    store(violation, 0, pick(total, total, worst, total))  # a maximum forgets NaN, a sum does not


@compiled(nogil=True, error_model="numpy")
def gap_of(frame, memory, at, gap):  # written: gap
    """Per lane: how far stationarity and complementarity are off."""
    slope, to_bound = section(memory, at, SLOPE), section(memory, at, TO_BOUND)
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
            if not (size <= gap[i % LANES] or np.isnan(gap[i % LANES])):
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
                    if not (off <= gap[lane] or np.isnan(gap[lane])):
                        gap[lane] = off


@compiled(nogil=True, error_model="numpy")
def pull_of(frame, memory, at, lane):
    """Of one lane, with rows measured by their size: ‖Jᵀh₊‖² over all unknowns that can move, and the largest ‖J_r‖²."""
    residual, jacobian, norm = section(memory, at, RESIDUAL), section(memory, at, JACOBIAN), section(memory, at, NORM)
    equality = section(frame.table, frame.table_at, EQUALITY)
    gram_ptr, gram_column = (
        section(frame.table, frame.table_at, GRAM_PTR),
        section(frame.table, frame.table_at, GRAM_COLUMN),
    )
    gram = section(frame.weight, frame.weight_at, GRAM)
    broken, row_weight = np.zeros(len(equality)), section(memory, at, ROW_WEIGHT)
    pull, norms = 0.0, _TINY
    for r in range(len(equality)):
        h = residual[r * LANES + lane]
        weight = row_weight[r * LANES + lane] ** 2
        broken[r] = weight * h if equality[r] == 1 or h > 0.0 else 0.0
        norms = max(norms, weight * norm[r * LANES + lane])
    for r in range(len(equality)):
        for p in range(gram_ptr[r], gram_ptr[r + 1]):
            pull += broken[r] * gram[p] * broken[gram_column[p]]
    ptr, row = section(frame.table, frame.table_at, COLUMN_PTR), section(frame.table, frame.table_at, COLUMN_ROW)
    entry = section(frame.table, frame.table_at, COLUMN_ENTRY)
    x, lower, upper = section(memory, at, X), section(memory, at, LOWER), section(memory, at, UPPER)
    for j in range(len(ptr) - 1):
        total = 0.0
        for p in range(ptr[j], ptr[j + 1]):
            total += jacobian[entry[p] * LANES + lane] * broken[row[p]]
        i = j * LANES + lane
        # at a bound, a pull outwards moves nothing
        if frame.bounded == 1 and ((total > 0.0 and x[i] <= lower[i]) or (total < 0.0 and x[i] >= upper[i])):
            total = 0.0
        pull += total * total
    return pull, norms
