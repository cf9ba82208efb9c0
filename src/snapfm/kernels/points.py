"""Totals over many points (math.md, eq. totals): minimize the Lagrangian point by point, eight points at a time, and add up.

One pass reads a field of one sample and a few multipliers. Every tile of points makes Newton steps of its own until it is
stationary, while its numbers are in the nearest cache. What a pass returns is as long as the rows: their values, the slopes of
these by multipliers, and the value of the Lagrangian. Points are added up in chunks, always in the same order. Functions of a
tile are inlined: passing their arrays took as long as their arithmetic. Imports kernels only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from snapfm.arrays import Index, Table, Values
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import absolute, add, div, fma, fnma, full, load, mul, pick, store
from snapfm.kernels.numba.sections import outlive, section, sectioned, unowned
from snapfm.kernels.operations import LANES
from snapfm.kernels.program import Code, tile_hessian, tile_partials, tile_slopes, tile_values

_CHUNK = 512  # tiles that are added up lane by lane before lanes are
_LEAST_PIVOT = 1e-8  # of W: where it is smaller, W is not convex; û alone gives 1
_CONVEX = 0.5  # takes the place of smaller pivots in a step
_REDUCED = 0.05  # share of the remainder of a tile that its steps may leave: the next pass begins with what is left
VALUE, REMAINDER, PIVOT = -3, -2, -1  # the last of the sums: ½|u − û|² at the minimum, largest remainder, least pivot

# A tile's memory, in packs: sections of the program; what the sample has; the KKT system of the tile's points, k unknowns each.
WORK = (
    "cells rows partial slots left right entries adjoint curvature "
    "multiplier target lower upper "
    # J and a right side below it (rows + 1, k); L⁻¹ times these lines; W, factorized (k, k); 1 where no limit holds an unknown
    "lines turned hessian pivot free "
    "right_side "  # (k,)
    "total"  # of a chunk
)


class Points(NamedTuple):
    """The points of one structure: their program, and where its derivatives by the k unknowns of a point go."""

    code: Code
    constants: Values  # Jacobian entries, whole; those that vary are overwritten
    entry: Table  # their places in J (rows, k)
    bend: Table  # places of the Hessian's entries in W (k, k)
    inputs: Index  # (points, k)
    outside: Index  # (points, …) params
    starts: Index  # where sections of a tile's memory begin


@sectioned(("memory", "starts", WORK))
class _Work(NamedTuple):
    """The memory of one tile."""

    memory: Values
    starts: Index

    def __getattr__(self, name: str) -> Any:
        return section(self, name)


def sections(cells: int, slots: int, points: Points, rows: int) -> list[int]:
    """Return the lengths of the sections of a tile's memory, for programs of so many cells and slots."""
    ops, k = cells - points.code.first, points.inputs.shape[1]
    sizes = {
        "cells": cells, "rows": rows, "partial": 5 * ops, "slots": slots + 1, "left": slots, "right": slots,
        "entries": len(points.constants), "adjoint": ops, "curvature": len(points.bend), "multiplier": rows, "target": k,
        "lower": k, "upper": k, "lines": (rows + 1) * k, "turned": (rows + 1) * k, "hessian": k * k, "pivot": 2, "free": k,
        "right_side": k, "total": sums_of(rows) + REMAINDER,
    }  # fmt: skip
    return [LANES * sizes[name] for name in WORK.split()]


def sums_of(rows: int) -> int:
    """Return how many sums there are of so many rows: row, J W⁻¹ g, the lower triangle of J W⁻¹ Jᵀ, and three more."""
    return 2 * rows + rows * (rows + 1) // 2 - VALUE


@compiled(nogil=True, error_model="numpy")
def minimize(points, params, multipliers, u_hat, lower, upper, goal, rounds, start, u, sums):
    """Minimize ½|u − û|² + λᵀrow within the limits at every point, beginning at `start`. One sample: (1, …) each.

    Steps end where the remainder is below `goal` or a share of what it was, or after `rounds`. An unknown whose lower limit is
    above its upper one keeps its value. Read: the others; written: u, sums (see sums_of) of the rows over these points.
    """
    owned = _begin(points, multipliers)
    points, work = unowned(points), unowned(owned)
    params, u_hat, lower, upper = unowned(params), unowned(u_hat), unowned(lower), unowned(upper)
    start, u, sums = unowned(start), unowned(u), unowned(sums)
    for first in range(0, len(points.inputs), LANES):
        count = _enter(points, params, first, start, u_hat, lower, upper, work)
        _clip(points, work)
        enough = goal
        for step in range(rounds):
            _derivatives(points, work)
            _gradient(points, work)
            worst = _hold(points, True, work)
            if step == 0:
                enough = max(goal, _REDUCED * worst)
            _factorize(points, True, work)
            if worst <= enough or step == rounds - 1:
                _add(points, count, worst, work, sums)
                break
            _step(points, work)
        _leave(points, first, count, work.cells, points.code.first - points.inputs.shape[1], u)
        if (first // LANES) % _CHUNK == _CHUNK - 1:
            _flush(work.total, sums)
    _flush(work.total, sums)
    outlive(owned)


@compiled(nogil=True, error_model="numpy")
def linearize(points, params, multipliers, g, lower, upper, nu, u, w, sums):
    """w = W⁻¹(g − Jᵀν) at the unknowns that no limit holds, zero at others; Jw is the second part of the sums.

    One sample: (1, …) each, at the answer u. Read: the others; written: w, sums.
    """
    owned = _begin(points, multipliers)
    points, work, k = unowned(points), unowned(owned), points.inputs.shape[1]
    for first in range(0, len(points.inputs), LANES):
        count = _enter(points, params, first, u, g, lower, upper, work)
        _derivatives(points, work)
        for i in range(k):
            total = load(work.target, i)
            for r in range(nu.shape[1]):
                total = fnma(full(nu[0, r]), load(work.lines, r * k + i), total)
            store(work.right_side, i, total)
        _hold(points, False, work)
        _factorize(points, False, work)
        _add(points, count, 0.0, work, sums)
        _solve(k, work)
        _leave(points, first, count, work.right_side, 0, w)
        if (first // LANES) % _CHUNK == _CHUNK - 1:
            _flush(work.total, sums)
    _flush(work.total, sums)
    outlive(owned)


@compiled(nogil=True, error_model="numpy")
def _begin(points, multipliers):
    """Allocate the memory of a tile, and write what all tiles share."""
    memory = np.zeros(points.starts[-1] + LANES)
    memory = memory[-(memory.ctypes.data // memory.itemsize) % LANES :]  # packs begin where lines of the cache do
    work = _Work(memory, points.starts)
    for r in range(multipliers.shape[1]):
        store(work.multiplier, r, full(multipliers[0, r]))
    for p in range(len(points.constants)):
        store(work.entries, p, full(points.constants[p]))
    store(work.cells, 0, full(1.0))
    return work


@compiled(nogil=True, error_model="numpy", inline="always")
def _enter(points, params, first, start, target, lower, upper, work):  # written: cells, target, lower, upper
    """Read a tile of points; return how many there are. The last of them fills the lanes beyond."""
    inputs, outside, cells = points.inputs, points.outside, work.cells
    given, low, high = work.target, work.lower, work.upper
    count, known = min(LANES, len(inputs) - first), (1 + outside.shape[1]) * LANES
    for lane in range(LANES):
        point = first + min(lane, count - 1)
        for i in range(outside.shape[1]):
            cells[(1 + i) * LANES + lane] = params[0, outside[point, i]]
        for i in range(inputs.shape[1]):
            own, at = inputs[point, i], i * LANES + lane
            cells[known + at] = start[0, own]
            given[at], low[at], high[at] = target[0, own], lower[own], upper[own]
    return count


@compiled(nogil=True, error_model="numpy", inline="always")
def _leave(points, first, count, found, place, field):  # written: field
    """Write a tile's unknowns, which begin at a pack."""
    inputs = points.inputs
    for lane in range(count):
        for i in range(inputs.shape[1]):
            field[0, inputs[first + lane, i]] = found[(place + i) * LANES + lane]


@compiled(nogil=True, error_model="numpy", inline="always")
def _clip(points, work):  # written: cells
    """Bring unknowns within their limits; those whose limits cross are known."""
    k = points.inputs.shape[1]
    for i in range(k):
        place = points.code.first - k + i
        x, low, high = load(work.cells, place), load(work.lower, i), load(work.upper, i)
        inside = pick(x, low, low, pick(high, x, high, x))
        store(work.cells, place, pick(low, high, inside, x))


@compiled(nogil=True, error_model="numpy", inline="always")
def _derivatives(points, work):  # written: all of the program, lines, hessian
    """Evaluate the rows of a tile, J, and the lower triangle of W = I + Σλ∇²row."""
    code, k = points.code, points.inputs.shape[1]
    lines, hessian, entry, bend = work.lines, work.hessian, points.entry, points.bend
    entries, curvature = work.entries, work.curvature
    tile_values(code, work.cells, work.rows)
    tile_partials(code, work.cells, True, work.partial)
    tile_slopes(code, work.partial, work.slots, work.left, work.right, work.entries)
    tile_hessian(code, work.multiplier, work.left, work.right, work.partial, work.adjoint, work.curvature)
    for p in range(len(lines) // LANES):
        store(lines, p, full(0.0))
    for p in range(len(entry)):
        store(lines, entry[p], load(entries, p))
    for i in range(k):
        for j in range(i):
            store(hessian, i * k + j, full(0.0))
        store(hessian, i * k + i, full(1.0))
    for p in range(len(bend)):
        store(hessian, bend[p], add(load(hessian, bend[p]), load(curvature, p)))


@compiled(nogil=True, error_model="numpy", inline="always")
def _gradient(points, work):  # written: right_side
    """Compute u − û + Jᵀλ."""
    k, multiplier, lines, right = points.inputs.shape[1], work.multiplier, work.lines, work.right_side
    cells, target, first, height = work.cells, work.target, points.code.first - k, len(multiplier) // LANES
    for i in range(k):
        total = fnma(full(1.0), load(target, i), load(cells, first + i))
        for r in range(height):
            total = fma(load(multiplier, r), load(lines, r * k + i), total)
        store(right, i, total)


@compiled(nogil=True, error_model="numpy", inline="always")
def _hold(points, pushed, work):  # written: free, right_side, lines, hessian
    """Take what limits hold out of the equations; return the largest number of the right side that is left.

    With `pushed`, a limit holds what the right side, a gradient, pushes against it; without, all that is there.
    """
    k, height, free, hessian = points.inputs.shape[1], len(work.multiplier) // LANES, work.free, work.hessian
    cells, first, lower, upper, right = work.cells, points.code.first - k, work.lower, work.upper, work.right_side
    pivot, lines = work.pivot, work.lines
    zero, one = full(0.0), full(1.0)
    largest, all_free = zero, one
    for i in range(k):
        x, low, high, g = load(cells, first + i), load(lower, i), load(upper, i), load(right, i)
        at_low = pick(g, zero, one, zero) if pushed else zero
        at_high = pick(zero, g, one, zero) if pushed else zero
        moves = pick(high, low, zero, mul(pick(x, low, at_low, one), pick(high, x, at_high, one)))
        store(free, i, moves)
        all_free = mul(all_free, moves)
        g = pick(moves, zero, zero, g)
        store(right, i, g)
        size = absolute(g)
        largest = pick(size, largest, largest, size)
    store(pivot, 0, largest)
    store(pivot, 1, all_free)
    worst, held = 0.0, False
    for lane in range(LANES):
        if not pivot[lane] <= worst:
            worst = pivot[lane]
        held |= pivot[LANES + lane] == 0.0
    if held:
        for i in range(k):
            moves = load(free, i)
            for r in range(height):
                store(lines, r * k + i, pick(moves, zero, zero, load(lines, r * k + i)))
            for j in range(i):
                both = mul(moves, load(free, j))
                store(hessian, i * k + j, pick(both, zero, zero, load(hessian, i * k + j)))
            store(hessian, i * k + i, pick(moves, zero, one, load(hessian, i * k + i)))
    return worst


@compiled(nogil=True, error_model="numpy", inline="always")
def _factorize(points, convexify, work):  # written: hessian, pivot
    """W = LDLᵀ in place, D⁻¹ on the diagonal and LD above it. With `convexify`, pivots that are not positive are replaced."""
    k, h = points.inputs.shape[1], work.hessian
    least = full(1.0)
    for j in range(k):
        inverse = least
        for i in range(j, k):
            total = load(h, i * k + j)
            for q in range(j):
                total = fnma(load(h, q * k + i), load(h, j * k + q), total)
            if i == j:
                least = pick(least, total, least, total)
                if convexify:
                    total = pick(total, full(_LEAST_PIVOT), full(_CONVEX), total)
                inverse = div(full(1.0), total)
                store(h, j * k + j, inverse)
            else:
                store(h, j * k + i, total)
                store(h, i * k + j, mul(total, inverse))
    store(work.pivot, 0, least)


@compiled(nogil=True, error_model="numpy")
def _solve(k, work):  # written: right_side
    """Solve with W."""
    h, x = work.hessian, work.right_side
    for i in range(k):
        total = load(x, i)
        for q in range(i):
            total = fnma(load(h, i * k + q), load(x, q), total)
        store(x, i, total)
    for n in range(k):
        i = max(k - 1 - n, 0)
        total = mul(load(x, i), load(h, i * k + i))
        for q in range(i + 1, k):
            total = fnma(load(h, q * k + i), load(x, q), total)
        store(x, i, total)


@compiled(nogil=True, error_model="numpy", inline="always")
def _step(points, work):  # written: right_side, cells
    """Make Newton's step, within the limits."""
    k, cells, free, right = points.inputs.shape[1], work.cells, work.free, work.right_side
    first = points.code.first - k
    _solve(k, work)
    for i in range(k):
        store(cells, first + i, fnma(load(free, i), load(right, i), load(cells, first + i)))
    _clip(points, work)


@compiled(nogil=True, error_model="numpy", inline="always")
def _add(points, count, worst, work, sums):  # written: lines, turned, total, the last two of sums
    """Add what a tile's first `count` lanes have."""
    k, height, h = points.inputs.shape[1], len(work.multiplier) // LANES, work.hessian
    lines, turned, right, rows, total = work.lines, work.turned, work.right_side, work.rows, work.total
    target, cells, pivot, first = work.target, work.cells, work.pivot, points.code.first - k
    for lane in range(LANES):
        pivot[LANES + lane] = 1.0 if lane < count else 0.0
        sums[PIVOT] = min(sums[PIVOT], pivot[lane])
    if not worst <= sums[REMAINDER]:
        sums[REMAINDER] = worst
    there = load(pivot, 1)
    for i in range(k):
        store(lines, height * k + i, load(right, i))
    for r in range(height + 1):  # z = L⁻¹ line, and D⁻¹z in place of the line
        for i in range(k):
            z = load(lines, r * k + i)
            for q in range(i):
                z = fnma(load(h, i * k + q), load(turned, r * k + q), z)
            store(turned, r * k + i, z)
        for i in range(k):
            store(lines, r * k + i, mul(load(turned, r * k + i), load(h, i * k + i)))
    place = 2 * height
    for r in range(height):
        _sum(r, load(rows, r), there, total)
        _sum(height + r, _product(k, lines, r, turned, height), there, total)
        for s in range(r + 1):
            _sum(place, _product(k, lines, r, turned, s), there, total)
            place += 1
    # ½|u − û|² − ½ gᵀW⁻¹g: what the Lagrangian without its rows has at its minimum, to third order.
    value = mul(full(-1.0), _product(k, lines, height, turned, height))
    for i in range(k):
        off = fnma(full(1.0), load(target, i), load(cells, first + i))
        value = fma(off, off, value)
    _sum(place, mul(full(0.5), value), there, total)


@compiled(nogil=True, error_model="numpy")
def _product(k, lines, r, turned, s):
    """Multiply line r of one array with line s of another."""
    found = full(0.0)
    for i in range(k):
        found = fma(load(lines, r * k + i), load(turned, s * k + i), found)
    return found


@compiled(nogil=True, error_model="numpy")
def _sum(place, value, there, total):  # written: total
    """Add the lanes of a pack that hold points."""
    zero = full(0.0)
    store(total, place, add(load(total, place), pick(there, zero, zero, value)))


@compiled(nogil=True, error_model="numpy")
def _flush(total, sums):  # written: total, sums
    """Add up the lanes of a chunk."""
    for n in range(len(total) // LANES):
        for lane in range(LANES):
            sums[n] += total[n * LANES + lane]
    total[:] = 0.0
