"""Solve with factors in float32, refined against the matrix in float64 until the answer is as good as float64 gives.

Consumes a Schedule, factors by tile of sixteen lanes, and the matrix by half a tile, eight lanes, as `keep` lays it
down; writes solutions, and per side and lane how accurate each is. A lane that stalls is said so and gets its
right-hand side back instead of an answer. No lane touches another: a lane that is done or has stalled stays as it is
while its neighbours go on. May import kernels.packs, kernels.panels and kernels.triangular only.

Accurate means a small backward error row by row, max |b - A x|_i / (‖A_i‖₁ ‖x‖∞ + |b_i|): x then solves a system whose
every row differs from the given one by rounding, however rows are scaled against each other.
"""

from __future__ import annotations

import numpy as np

from snapfm.kernels.compiling import compiled
from snapfm.kernels.packs import (
    SINGLE_WIDTH,
    WIDTH,
    absolute,
    add,
    div,
    fma,
    fnma,
    full,
    load,
    mul,
    narrow,
    pick,
    put,
    store,
    take,
    widen_high,
    widen_low,
)
from snapfm.kernels.triangular import substitute

HALVES = SINGLE_WIDTH // WIDTH
WORK = 5  # vectors that half a tile needs: answer, right-hand side, its residual, trial, residual of the trial
_ERROR, _LIVE, _LARGEST = range(3)
STATE = 3  # packs that half a tile needs: backward error, whether it is still refined, its largest residual

# A round has to divide the error by four. From 1 (no answer at all) to rounding that is 26 rounds at the very most; a
# lane that needs more than a few has a condition at which float32 is no economy.
_SHRINK = 0.25
# Below this error no round is worth its time. Long rows may not come that far; they go on until they stall.
BEST = 4 * float(np.finfo(np.float64).eps)


@compiled(nogil=True, error_model="numpy")
def keep(plan, values, lanes, matrix, norms):
    """Lay down values (nnz * lanes) by half a tile. Written: matrix (halves, nnz), norms (halves, slots): ‖A_i‖₁."""
    halves = (lanes + WIDTH - 1) // WIDTH
    for half in range(halves):
        _keep_half(plan, values, lanes, half, matrix[half], norms[half])


@compiled(nogil=True, error_model="numpy")
def _keep_half(plan, values, lanes, half, matrix, norms):  # written: matrix, norms
    start = half * WIDTH
    count = min(WIDTH, lanes - start)
    for k in range(len(norms) // WIDTH):
        store(norms, k, full(0.0))
    for p in range(len(plan.entry_row)):
        row, column = plan.entry_row[p], plan.entry_column[p]
        entry = take(values, plan.entry_from[p] * lanes + start, count)
        store(matrix, p, entry)
        store(norms, row, add(load(norms, row), absolute(entry)))
        if row != column:
            store(norms, column, add(load(norms, column), absolute(entry)))


@compiled(nogil=True, error_model="numpy")
def solve(
    plan,  # read, down to lanes; usable (lanes,) is 1, or 0 in lanes not to be tried
    factor,
    inverse,
    matrix,
    norms,
    usable,
    shared,
    enough,
    rhs,
    sides,
    lanes,
    work,  # written: (tiles, HALVES, WORK, slots) of float64
    correction,  # (tiles, slots) of float32
    state,  # (tiles, HALVES, STATE)
    out,  # as rhs, may be rhs
    error,  # (sides * lanes)
):
    """Solve for every side and lane; `shared` uses the first lane's factor for all.

    `error` above `enough`, infinity included, marks what has not been solved; `out` is then what rhs was.
    """
    tiles = (lanes + SINGLE_WIDTH - 1) // SINGLE_WIDTH
    for tile in range(tiles):
        f = 0 if shared else tile
        _solve_tile(
            plan, factor[f], inverse[f], matrix, norms, usable, shared, enough, rhs, sides, lanes, tile,
            work[tile], correction[tile], state[tile], out, error,
        )  # fmt: skip


@compiled(nogil=True, error_model="numpy")
def _solve_tile(
    plan, factor, inverse, matrix, norms, usable, shared, enough, rhs, sides, lanes, tile,
    work, correction, state, out, error,
):  # fmt: skip
    """Solve one tile; see solve. Written: work, correction, state, out, error."""
    slot, zero = plan.slot, full(0.0)
    halves = HALVES if lanes - tile * SINGLE_WIDTH > WIDTH else 1
    first = np.int64(0) if shared else HALVES * tile  # half a tile of the matrix; shared ones hold one lane eight times
    step = np.int64(0) if shared else np.int64(1)
    for side in range(sides):
        for h in range(halves):
            start = tile * SINGLE_WIDTH + h * WIDTH
            count = min(WIDTH, lanes - start)
            x, b = work[h, 0], work[h, 1]
            for k in range(len(x) // WIDTH):  # phantoms stay zero
                store(x, k, zero)
                store(b, k, zero)
            for i in range(len(slot)):
                store(b, slot[i], take(rhs, (i * sides + side) * lanes + start, count))
            tried = full(usable[0]) if shared else take(usable, start, count)
            _begin(b, tried, work[h, 2], state[h])
        while _any_live(state, halves):
            _narrowed(work, state, halves, correction)
            substitute(plan, factor, inverse, correction)
            for h in range(halves):
                _correct(correction, h, state[h], work[h, 0], work[h, 3])
                place = first + step * h
                _accept(plan, matrix[place], norms[place], work[h], state[h])
        for h in range(halves):
            start = tile * SINGLE_WIDTH + h * WIDTH
            count = min(WIDTH, lanes - start)
            x, b, reached, wanted = work[h, 0], work[h, 1], load(state[h], _ERROR), full(enough)
            put(error, side * lanes + start, count, reached)
            for i in range(len(slot)):
                answer = pick(reached, wanted, load(x, slot[i]), load(b, slot[i]))
                put(out, (i * sides + side) * lanes + start, count, answer)


@compiled(nogil=True, error_model="numpy")
def _begin(b, tried, residual, state):  # written: residual, state
    """Begin with no answer: the residual is b, all of it wrong. A lane that is not to be tried is not live."""
    largest = full(0.0)
    for k in range(len(b) // WIDTH):
        store(residual, k, load(b, k))
        largest = _larger(absolute(load(b, k)), largest)
    store(state, _ERROR, pick(full(1.0), tried, full(1.0), full(np.inf)))
    store(state, _LIVE, tried)
    store(state, _LARGEST, largest)


@compiled(nogil=True, error_model="numpy")
def _any_live(state, halves):  # written: nothing
    """Whether any lane is still refined."""
    for h in range(halves):
        for lane in range(WIDTH):
            if state[h, _LIVE * WIDTH + lane] > 0.0:
                return True
    return False


@compiled(nogil=True, error_model="numpy")
def _narrowed(work, state, halves, correction):  # written: correction
    """Round the residuals to float32, each lane's largest scaled to 1: the range of float32 is short."""
    low, high = work[0, 2], work[halves - 1, 2]
    low_scale, high_scale = _inverse(state[0]), _inverse(state[halves - 1])
    for k in range(len(low) // WIDTH):
        store(correction, k, narrow(mul(load(low, k), low_scale), mul(load(high, k), high_scale)))


@compiled(nogil=True, error_model="numpy")
def _inverse(state):  # written: nothing
    """1 / largest residual, or 0 where there is none."""
    largest = load(state, _LARGEST)
    return pick(largest, full(0.0), full(0.0), div(full(1.0), largest))


@compiled(nogil=True, error_model="numpy")
def _correct(correction, half, state, x, trial):  # written: trial
    """Try the answer with its correction, scaled back."""
    largest = load(state, _LARGEST)
    for k in range(len(x) // WIDTH):
        single = load(correction, k)
        double = widen_low(single) if half == 0 else widen_high(single)
        store(trial, k, fma(double, largest, load(x, k)))


@compiled(nogil=True, error_model="numpy")
def _accept(plan, matrix, norms, work, state):  # written: work, state
    """Take the trial in live lanes where its error has shrunk as it should; other lanes are done, or have stalled."""
    x, b, residual, trial, left = work[0], work[1], work[2], work[3], work[4]
    zero, one = full(0.0), full(1.0)
    new, largest = _backward_error(plan, matrix, norms, b, trial, left)
    old, best = load(state, _ERROR), full(BEST)
    asked = _larger(mul(full(_SHRINK), old), best)
    asked = pick(one, load(state, _LIVE), asked, full(-1.0))
    for k in range(len(x) // WIDTH):
        store(x, k, pick(new, asked, load(trial, k), load(x, k)))
        store(residual, k, pick(new, asked, load(left, k), load(residual, k)))
    store(state, _ERROR, pick(new, asked, new, old))
    store(state, _LARGEST, pick(new, asked, largest, load(state, _LARGEST)))
    store(state, _LIVE, pick(new, asked, pick(new, best, zero, one), zero))


@compiled(nogil=True, error_model="numpy")
def _backward_error(plan, matrix, norms, b, x, out):  # written: out
    """out = b - A x; gives its backward error, row by row, and its largest size, infinite where not a number."""
    peak = full(0.0)
    for k in range(len(x) // WIDTH):
        store(out, k, load(b, k))
        peak = _larger(absolute(load(x, k)), peak)
    for p in range(len(plan.entry_row)):
        row, column, entry = plan.entry_row[p], plan.entry_column[p], load(matrix, p)
        store(out, row, fnma(entry, load(x, column), load(out, row)))
        if row != column:
            store(out, column, fnma(entry, load(x, row), load(out, column)))
    error, largest = full(0.0), full(0.0)
    for k in range(len(x) // WIDTH):
        size = absolute(load(out, k))
        scale = fma(load(norms, k), peak, absolute(load(b, k)))
        largest = _larger(size, largest)
        error = _larger(pick(size, full(0.0), full(0.0), div(size, scale)), error)
    return error, largest


@compiled(nogil=True, error_model="numpy")
def _larger(a, b):  # written: nothing
    """The larger of both, infinity where `a` is not a number; `b` is one."""
    a = pick(a, full(np.inf), a, full(np.inf))
    return pick(a, b, b, a)
