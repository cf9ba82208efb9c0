"""March: solve steps of square blocks for eight samples at once, and find their multipliers.

Newton's method with a line search per block. Factors are kept from step to step while they contract; each lane decides for
itself when it needs a new one, so that its bits do not depend on its neighbors. solve.march calls it step by step;
what fails here is left to solve.step_solver. Imports kernels only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from snapfm.arrays import Index, Mask, Values
from snapfm.kernels.batches import fill_cells
from snapfm.kernels.factor.lu import Elimination, blend, factorize, solve, solve_transposed
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import load, store
from snapfm.kernels.numba.sections import allocator
from snapfm.kernels.operations import LANES
from snapfm.kernels.program import Code, tile_partials, tile_slopes, tile_values

SOLVED, OUT_OF_ITERATIONS, FAILED, NOT_BEGUN = range(4)  # how a sample ends a step

USEFUL = 0.5  # a Newton step along an old factor that reduces less is not taken
_SUFFICIENT = (
    1e-4  # decrease of the residual's square that a Newton step has to achieve, relative to what its slope promises
)
_HALVINGS = 20  # of a Newton step, before Newton's method gives up
_SOLVES = 8  # with one factor, before a multiplier system gets a factor of its own
_REFINED = 1e-13  # remainder of a multiplier system, relative to its right side, that is rounding
_ACCURATE = 1e-10  # remainder beyond which a multiplier system is left to solve.step_solver


class Structure(NamedTuple):
    """What steps with the same structure share."""

    code: Code
    cells: int
    slots: int
    constants: Values  # Jacobian values that never change
    constant: bool  # whether that is all of them
    row: Index  # of every Jacobian entry
    column: Index
    own: Index  # inputs, params counted first, that are the step's own unknowns
    before: Index  # those that are the same unknowns one step earlier, or nothing
    starts: Index  # of the blocks
    keep: float  # a factor that reduces the residual to at most this share is kept
    plan: Elimination


class Rule(NamedTuple):
    """When a sample is solved."""

    goal: float  # largest |row| at which iterations end
    tolerance: float  # largest |row| that is accepted where rounding allows no less
    polish: bool  # whether one more Newton step follows
    limit: int


class StepMemory(NamedTuple):
    """Memory of one tile: of the program, its entries and factor, and vectors over rows (m) and blocks."""

    cells: Values
    rows: Values
    partial: Values
    slope: Values
    left: Values
    right: Values
    entries: Values
    scratch: Values  # a factor
    work: Values  # two vectors
    step: Values
    x: Values
    found: Values
    merit: Values  # of blocks
    base: Values
    length: Values


class StepLanes(NamedTuple):
    """Working numbers of one tile, one per lane and name."""

    live: Mask  # lanes that hold a sample that takes part
    going: Mask
    wanting: Mask
    fresh: Mask  # the factor is that of the present point
    final: Mask
    searching: Mask
    have: Mask  # a factor, from this step or an earlier one
    ended: Index
    used: Index
    size: Values
    scale: Values


@compiled(nogil=True)
def _step_memory(one):
    """Allocate the memory of a tile."""
    m, blocks, slots = len(one.own) * LANES, (len(one.starts) - 1) * LANES, one.slots * LANES
    return StepMemory(
        cells=np.empty(one.cells * LANES), rows=np.empty(m), partial=np.empty(5 * LANES * max(one.cells - one.code.first, 0)),
        slope=np.empty(slots + LANES), left=np.empty(slots), right=np.empty(slots), entries=np.empty(len(one.row) * LANES),
        scratch=np.empty(m + 2 * len(one.plan.places) * LANES), work=np.empty(2 * m), step=np.empty(m), x=np.empty(m),
        found=np.empty(m), merit=np.empty(blocks), base=np.empty(blocks), length=np.empty(blocks),
    )  # fmt: skip


_step_lanes = allocator(StepLanes, LANES)


@compiled(nogil=True, error_model="numpy")
def solve_step(
    one, rule, inputs, outside, params, unknowns, start, field, past, known, have, factors, stop, ended, used
):
    """Solve one step. Samples whose `ended` is not NOT_BEGUN are left alone.

    Read: inputs (1, …), outside (1, …), params (b, …), unknowns, start û (b, n), past (b, m) solutions two steps before, if
    known, stop. Written: field (b, n), past, have (b,) and factors (tiles, …) for the next step, ended and used (b,).
    """
    memory, lanes = _step_memory(one), _step_lanes()
    for tile in range(len(factors)):
        first = tile * LANES
        count = min(LANES, len(field) - first)
        for lane in range(LANES):
            sample = first + min(lane, count - 1)
            lanes.have[lane], lanes.used[lane] = have[sample], used[sample]
            lanes.ended[lane] = ended[sample] if lane < count else SOLVED
        solve_step_tile(
            one, rule, inputs, outside, params, unknowns, start, field, past, known, factors[tile], stop, first, memory, lanes
        )  # fmt: skip
        for lane in range(count):
            sample = first + lane
            have[sample], ended[sample], used[sample] = lanes.have[lane], lanes.ended[lane], lanes.used[lane]


@compiled(nogil=True, error_model="numpy")
def solve_step_tile(
    one, rule, inputs, outside, params, unknowns, start, field, past, known, factor, stop, first, memory, lanes
):
    """Solve one step for samples first .. first + LANES − 1; see solve_step.

    Written: field, past, factor; lanes' have, ended and used; `memory` and the rest of `lanes` are used as memory.
    """
    m, blocks = len(one.own), len(one.starts) - 1
    cells, rows, entries, x, work = memory.cells, memory.rows, memory.entries, memory.x, memory.work
    going, wanting, fresh, final = lanes.going, lanes.wanting, lanes.fresh, lanes.final
    count, live = min(LANES, len(field) - first), False
    for lane in range(LANES):
        going[lane] = lanes.ended[lane] == NOT_BEGUN
        live |= going[lane]
        final[lane], fresh[lane] = False, one.constant
    if not live:
        return
    fill_cells(inputs, outside, field, params, first, cells)
    _begin(one, start, unknowns, first, count, past, known, memory)
    _place(one, x, cells)
    tile_values(one.code, cells, rows)
    _fill_constants(one, entries)
    while True:
        live, new = False, False
        for lane in range(LANES):
            wanting[lane] = False
            if not going[lane]:
                continue
            size = _largest(rows, m, lane)
            met = size <= rule.goal
            if met:
                lanes.ended[lane] = SOLVED
            if not math.isfinite(size):
                going[lane], lanes.ended[lane] = False, FAILED
            elif met and (final[lane] or not rule.polish or size == 0.0 or not lanes.have[lane]):
                going[lane] = False
            elif lanes.used[lane] >= rule.limit or stop[0] != 0:
                going[lane] = False
                if not met:
                    lanes.ended[lane] = OUT_OF_ITERATIONS
            else:
                final[lane] |= met
                wanting[lane] = not lanes.have[lane]
                new |= wanting[lane]
                live = True
        if not live:
            break
        if new:
            if not one.constant:
                tile_partials(one.code, cells, False, memory.partial)
                tile_slopes(one.code, memory.partial, memory.slope, memory.left, memory.right, entries)
            factorize(one.plan, entries, memory.scratch, work)
            blend(wanting, memory.scratch, factor)
            for lane in range(LANES):
                if wanting[lane]:
                    lanes.have[lane], fresh[lane] = True, True
        for k in range(m):
            for lane in range(LANES):
                work[k * LANES + lane] = -rows[one.plan.row[k] * LANES + lane]
        solve(one.plan, factor, work)
        for k in range(m):
            for lane in range(LANES):
                memory.step[one.plan.column[k] * LANES + lane] = work[k * LANES + lane]
        _merits(one.starts, rows, memory.base)
        _search(one, rule, memory, lanes)
        for lane in range(LANES):
            if not going[lane]:
                continue
            lanes.used[lane] += 1
            was, now = 0.0, 0.0
            for b in range(blocks):
                was += memory.base[b * LANES + lane]
                now += memory.merit[b * LANES + lane]
            reduced = math.sqrt(now / was)
            if fresh[lane] and not reduced <= USEFUL:  # of this very point: no other factor does better
                small = _largest(rows, m, lane) <= rule.tolerance
                if small or not reduced < 1.0:
                    going[lane] = False
                    lanes.ended[lane] = SOLVED if small else FAILED
            if not one.constant:
                fresh[lane] = False
                if not reduced <= one.keep and not final[lane]:
                    lanes.have[lane] = False
    for lane in range(count):
        sample = first + lane
        if lanes.ended[lane] == SOLVED:
            for k in range(len(one.before)):
                past[sample, k] = cells[(1 + one.before[k]) * LANES + lane]
            for k in range(m):
                field[sample, unknowns[k]] = x[k * LANES + lane]


@compiled(nogil=True, error_model="numpy")
def _fill_constants(one, entries):  # written: entries
    for k in range(len(one.constants)):
        for lane in range(LANES):
            entries[k * LANES + lane] = one.constants[k]


@compiled(nogil=True, error_model="numpy")
def _begin(one, start, unknowns, first, count, past, known, memory):
    """Choose for each block the start with the least residual: û, the step before, or what continues the two before.

    Written: x; cells, rows, merit and base are used as memory.
    """
    cells, rows, x, merit, least = memory.cells, memory.rows, memory.x, memory.merit, memory.base
    m, blocks = len(one.own), len(one.starts) - 1
    starts = 1 if len(one.before) == 0 or one.constant else 3 if known else 2
    for b in range(blocks * LANES):
        least[b] = np.inf
    for k in range(m):
        for lane in range(LANES):
            value = start[first + min(lane, count - 1), unknowns[k]]
            x[k * LANES + lane] = value if math.isfinite(value) else 0.0
    if starts == 1:
        return
    for number in range(starts):
        for k in range(m):
            for lane in range(LANES):
                sample = first + min(lane, count - 1)
                value = start[sample, unknowns[k]]
                if number > 0:
                    value = cells[(1 + one.before[k]) * LANES + lane]
                if number > 1:
                    value = 2.0 * value - past[sample, k]
                cells[(1 + one.own[k]) * LANES + lane] = value
        tile_values(one.code, cells, rows)
        _merits(one.starts, rows, merit)
        for b in range(blocks):
            for lane in range(LANES):
                if merit[b * LANES + lane] < least[b * LANES + lane]:  # not where it is NaN
                    least[b * LANES + lane] = merit[b * LANES + lane]
                    for k in range(one.starts[b], one.starts[b + 1]):
                        x[k * LANES + lane] = cells[(1 + one.own[k]) * LANES + lane]


@compiled(nogil=True, error_model="numpy")
def _search(one, rule, memory, lanes):
    """Go along Newton steps as far as each block's residual shrinks; along old factors all the way or not at all.

    Read: going, fresh, step, base (merits before). Written: x, cells and rows at the new point, merit; found, length, searching.
    """
    cells, rows, x, found, step = memory.cells, memory.rows, memory.x, memory.found, memory.step
    merit, base, length = memory.merit, memory.base, memory.length
    going, fresh, searching = lanes.going, lanes.fresh, lanes.searching
    m, blocks = len(one.own), len(one.starts) - 1
    for b in range(blocks * LANES):
        length[b] = 1.0
    for k in range(m):
        store(found, k, load(rows, k))
    left = 0
    for lane in range(LANES):
        searching[lane] = going[lane]
        left += going[lane]
    for halving in range(_HALVINGS + 1):
        if left == 0:
            break
        for b in range(blocks):
            for k in range(one.starts[b], one.starts[b + 1]):
                for lane in range(LANES):
                    far = length[b * LANES + lane] if searching[lane] else 0.0
                    moved = x[k * LANES + lane] + far * step[k * LANES + lane] if far != 0.0 else x[k * LANES + lane]
                    cells[(1 + one.own[k]) * LANES + lane] = moved
        tile_values(one.code, cells, rows)
        _merits(one.starts, rows, merit)
        shorter = 0.5 if halving + 1 < _HALVINGS else 0.0  # at last blocks that no length helps stay where they are
        for lane in range(LANES):
            if not searching[lane]:
                continue
            short = 0
            for b in range(blocks):
                at = b * LANES + lane
                enough = (1.0 - 2.0 * _SUFFICIENT * length[at]) * base[at]
                rounding = (one.starts[b + 1] - one.starts[b]) * rule.goal**2
                if not (merit[at] <= enough or merit[at] <= rounding or length[at] == 0.0):
                    short = 1
                    length[at] *= shorter
            whole = short == 0
            if whole:
                for k in range(m):
                    x[k * LANES + lane] = cells[(1 + one.own[k]) * LANES + lane]
                    found[k * LANES + lane] = rows[k * LANES + lane]
            if whole or not fresh[lane]:
                searching[lane] = False
                left -= 1
    for k in range(m):
        store(rows, k, load(found, k))
    _place(one, x, cells)
    _merits(one.starts, rows, merit)


@compiled(nogil=True, error_model="numpy")
def determine_step(one, inputs, outside, params, unknowns, index, field, rest, live, have, factors, multipliers, ended):
    """Solve Jᵀλ = −rest for the multipliers of one step, with corrections.

    Read: field (b, n), rest (b, n), live (b,), index: the step's rows. Written: multipliers (b, m), have, factors, and ended
    (b,): SOLVED, or FAILED where what is left is not rounding.
    """
    memory, lanes = _step_memory(one), _step_lanes()
    for tile in range(len(factors)):
        first = tile * LANES
        count = min(LANES, len(field) - first)
        for lane in range(LANES):
            sample = first + min(lane, count - 1)
            lanes.have[lane], lanes.live[lane], lanes.ended[lane] = have[sample], lane < count and live[sample], SOLVED
        determine_step_tile(
            one, inputs, outside, params, unknowns, index, field, rest, factors[tile], multipliers, first, memory, lanes
        )  # fmt: skip
        for lane in range(count):
            have[first + lane] = lanes.have[lane]
            if lanes.live[lane]:
                ended[first + lane] = lanes.ended[lane]


@compiled(nogil=True, error_model="numpy")
def determine_step_tile(
    one, inputs, outside, params, unknowns, index, field, rest, factor, multipliers, first, memory, lanes
):
    """Find the multipliers of samples first .. first + LANES − 1 whose lanes are `live`; see determine_step.

    Written: multipliers, factor; lanes' have and ended; `memory` and the rest of `lanes` are used as memory.
    """
    m = len(one.own)
    cells, rows, entries, wanted, found = memory.cells, memory.rows, memory.entries, memory.x, memory.found
    live, size, scale, wanting = lanes.live, lanes.size, lanes.scale, lanes.wanting
    count, busy = min(LANES, len(field) - first), False
    for lane in range(LANES):
        busy |= live[lane]
    if not busy:
        return
    _fill_constants(one, entries)
    if not one.constant:
        fill_cells(inputs, outside, field, params, first, cells)
        tile_values(one.code, cells, rows)
        tile_partials(one.code, cells, False, memory.partial)
        tile_slopes(one.code, memory.partial, memory.slope, memory.left, memory.right, entries)
    for k in range(m):
        for lane in range(LANES):
            wanted[k * LANES + lane] = -rest[first + min(lane, count - 1), unknowns[k]]
    for lane in range(LANES):
        scale[lane] = _largest(wanted, m, lane)
        wanting[lane] = live[lane] and not lanes.have[lane]
    for attempt in range(2):  # with the factors there are, then with those of these very matrices
        new = False
        for lane in range(LANES):
            new |= wanting[lane]
        if new:
            factorize(one.plan, entries, memory.scratch, memory.work)
            blend(wanting, memory.scratch, factor)
            for lane in range(LANES):
                if wanting[lane]:
                    lanes.have[lane] = True
        if new or attempt == 0:
            _correct(one, factor, attempt == 1, memory, lanes)
        for lane in range(LANES):
            if live[lane]:
                wanting[lane] = not size[lane] <= _REFINED * scale[lane]
    for lane in range(count):
        if live[lane]:
            lanes.ended[lane] = SOLVED if size[lane] <= _ACCURATE * scale[lane] else FAILED
            for k in range(m):
                multipliers[first + lane, index[k]] = found[k * LANES + lane]


@compiled(nogil=True, error_model="numpy")
def _correct(one, factor, some, memory, lanes):
    """Solve Aᵀ found = x, correcting while that helps; with `some` only the lanes that `wanting` marks.

    Read: factor, entries, x, scale; written: found, size of the remainder; step (the remainder) and work are memory.
    """
    entries, wanted, found, remainder, work = memory.entries, memory.x, memory.found, memory.step, memory.work
    going, size, scale = lanes.going, lanes.size, lanes.scale
    m = len(one.own)
    for lane in range(LANES):
        going[lane] = lanes.wanting[lane] or not some
        if not going[lane]:
            continue
        size[lane] = scale[lane]
        for k in range(m):
            found[k * LANES + lane], remainder[k * LANES + lane] = 0.0, wanted[k * LANES + lane]
    for _ in range(_SOLVES):
        left = 0
        for lane in range(LANES):
            going[lane] &= size[lane] > _REFINED * scale[lane]
            left += going[lane]
        if left == 0:
            break
        for k in range(m):
            for lane in range(LANES):
                work[k * LANES + lane] = remainder[one.plan.column[k] * LANES + lane]
        solve_transposed(one.plan, factor, work)
        for k in range(m):
            for lane in range(LANES):
                if going[lane]:
                    found[one.plan.row[k] * LANES + lane] += work[k * LANES + lane]
            store(remainder, k, load(wanted, k))
        for e in range(len(one.row)):
            for lane in range(LANES):
                remainder[one.column[e] * LANES + lane] -= entries[e * LANES + lane] * found[one.row[e] * LANES + lane]
        for lane in range(LANES):
            if going[lane]:
                now = _largest(remainder, m, lane)
                going[lane] = now < USEFUL * size[lane]
                size[lane] = now


@compiled(nogil=True, error_model="numpy")
def _merits(starts, rows, merit):
    """Sum the squares of each block's rows. Written: merit."""
    for b in range(len(starts) - 1):
        for lane in range(LANES):
            merit[b * LANES + lane] = 0.0
        for k in range(starts[b], starts[b + 1]):
            for lane in range(LANES):
                merit[b * LANES + lane] += rows[k * LANES + lane] ** 2


@compiled(nogil=True, error_model="numpy")
def _place(one, x, cells):
    """Write a step's own unknowns into the cells. Written: cells."""
    for k in range(len(one.own)):
        for lane in range(LANES):
            cells[(1 + one.own[k]) * LANES + lane] = x[k * LANES + lane]


@compiled(nogil=True, error_model="numpy")
def _largest(packs, count, lane):
    """Return the largest size in one lane; NaN if one is NaN."""
    largest = 0.0
    for k in range(count):
        size = abs(packs[k * LANES + lane])
        if not size <= largest:
            largest = size
            if math.isnan(size):
                break
    return largest
