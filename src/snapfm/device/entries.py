"""Entries of the PTX: what a launch starts. Each deals samples out to teams and calls a kernel of snapfm.kernels on each.

Compiled by device.build, which loads the kernels for CUDA first; nothing else imports this file. Arguments are integers
(addresses, counts) and floats. Structure comes as one descriptor: the address of integers that device.descriptors has written, in
the order of the functions below. Team number t works on samples t, t + teams, …, in memory number t.
"""

from __future__ import annotations

from numba import cuda
from numba.cuda import types

from snapfm.kernels.batches import evaluate_tile, pull_tile, substitute_tile
from snapfm.kernels.compiling import compiled
from snapfm.kernels.coordinates import condense_line, expand_line
from snapfm.kernels.filter import FILTER
from snapfm.kernels.layout import KEPT, Frame, Lanes, Settings, Tile
from snapfm.kernels.newton import solve_tile
from snapfm.kernels.panels import Schedule
from snapfm.kernels.program import Code
from snapfm.kernels.runs import Runs, add_products, add_transposed
from snapfm.kernels.sections import (  # type: ignore[attr-defined]
    index_at,
    index_grid_at,
    table_at,
    values_at,
    values_grid_at,
)
from snapfm.kernels.teams import join, leads, team

_WIDEST = 64  # integers of the longest descriptor
_REALS, _COUNTS, _FLAGS = 21, 7, 8  # of Lanes


@compiled()
def _index(spec, k):
    return index_at(spec[k], spec[k + 1])


@compiled()
def _values(spec, k):
    return values_at(spec[k], spec[k + 1])


@compiled()
def _code(spec, k):
    return Code(
        spec[k], table_at(spec[k + 1], spec[k + 2]), _index(spec, k + 3), _values(spec, k + 5), _index(spec, k + 7), 0
    )


@compiled()
def _frame(spec, k):
    return Frame(
        table_at(spec[k], spec[k + 1]), _index(spec, k + 2), _values(spec, k + 4), _index(spec, k + 6), spec[k + 8],
        spec[k + 9], spec[k + 10], spec[k + 11], spec[k + 12], 0,
    )  # fmt: skip


@compiled()
def _schedule(spec, k):
    return Schedule(
        _index(spec, k), _index(spec, k + 2), _index(spec, k + 4), _index(spec, k + 6), _index(spec, k + 8),
        _index(spec, k + 10), _index(spec, k + 12), index_grid_at(spec[k + 14], spec[k + 15], spec[k + 16]),
        _index(spec, k + 17), _index(spec, k + 19), _index(spec, k + 21), _index(spec, k + 23), _index(spec, k + 25),
        _index(spec, k + 27),
    )  # fmt: skip


@compiled()
def _runs(spec, k):
    return Runs(_index(spec, k), _index(spec, k + 2), _index(spec, k + 4), _index(spec, k + 6), _values(spec, k + 8))


@compiled()
def _samples(count):
    """Return the samples of this team."""
    return range(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y, count, cuda.gridDim.x * cuda.blockDim.y)


@compiled()
def _team():
    """Return the number of this team."""
    return cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y


def newton(
    spec_at, count, tolerance, stationarity, polish, ordinary, trials, filtered, patience, limit, space, work, status_at,
    iterations_at, second_at,
):  # fmt: skip
    """Solve systems: kernels.newton. Descriptor: Code, Frame, Schedule, where the sections of a tile's memory begin."""
    spec = index_at(spec_at, _WIDEST)
    code, frame, plan, at = _code(spec, 0), _frame(spec, 10), _schedule(spec, 24), _index(spec, 53)
    settings = Settings(tolerance, stationarity, polish, ordinary, trials, filtered, patience)
    r, n = cuda.local.array(_REALS, types.float64), cuda.local.array(_COUNTS, types.int64)
    f = cuda.local.array(_FLAGS, types.boolean)
    theta, objective = cuda.local.array(FILTER, types.float64), cuda.local.array(FILTER, types.float64)
    limits, stop, live = (
        cuda.local.array(1, types.int64),
        cuda.local.array(1, types.int64),
        cuda.local.array(1, types.boolean),
    )
    limits[0], stop[0], live[0] = limit, 0, True
    lanes = Lanes(
        r[0:1], r[1:2], r[2:3], r[3:4], r[4:5], r[5:6], r[6:7], r[7:8], r[8:9], r[9:10], r[10:11], r[11:12], r[12:13],
        r[13:14], r[14:15], r[15:16], r[16:17], r[17:18], n[0:1], n[1:2], n[2:3], f[0:1], f[1:2], f[2:3], f[3:4], f[4:5],
        f[5:6], theta, objective, n[3:4], r[18:19], f[6:7], n[4:5],
    )  # fmt: skip
    kept, whole = at[KEPT], at[len(at) - 1]
    status, iterations, second = index_at(status_at, count), index_at(iterations_at, count), index_at(second_at, count)
    scratch = values_at(work + 8 * _team() * whole, whole)
    for sample in _samples(count):
        tile = Tile(values_at(space + 8 * sample * kept, kept), scratch, at)
        solve_tile(code, frame, plan, settings, limits, stop, live, tile, lanes, n[5:6], n[6:7])
        if leads():
            status[sample], iterations[sample], second[sample] = n[5], n[6], lanes.second[0]


def rotate(spec_at, count, width, field, back):
    """Rotate pairs, backwards if `back` is −1: kernels.coordinates. Descriptor: first, second, cos, sin."""
    spec = index_at(spec_at, _WIDEST)
    first, second, cos, sin = _index(spec, 0), _index(spec, 2), _values(spec, 4), _values(spec, 6)
    for sample in _samples(count):
        line = values_at(field + 8 * sample * width, width)
        for k in team(len(first)):
            one, other, turn = line[first[k]], line[second[k]], back * sin[k]
            line[first[k]] = cos[k] * one + turn * other
            line[second[k]] = cos[k] * other - turn * one


def condense(spec_at, count, width, field, memory):
    """Condense groups: kernels.coordinates. Descriptor: Runs, ptr, first. Memory: three numbers a group."""
    spec = index_at(spec_at, _WIDEST)
    runs, ptr, first = _runs(spec, 0), _index(spec, 10), spec[12]
    groups = len(ptr) - 1
    own = memory + 24 * groups * _team()
    mean, rest = values_at(own, groups), values_at(own + 8 * groups, groups)
    square = values_at(own + 16 * groups, groups)
    for sample in _samples(count):
        condense_line(runs, ptr, first, values_at(field + 8 * sample * width, width), mean, rest, square)


def expand(spec_at, count, width, start, field, memory):
    """Expand groups: kernels.coordinates. Descriptor: Runs, ptr, members, first. Memory: three numbers a group."""
    spec = index_at(spec_at, _WIDEST)
    runs, ptr, members, first = _runs(spec, 0), _index(spec, 10), _index(spec, 12), spec[14]
    groups = len(ptr) - 1
    own = memory + 24 * groups * _team()
    middle, mean = values_at(own, groups), values_at(own + 8 * groups, groups)
    stretch = values_at(own + 16 * groups, groups)
    for sample in _samples(count):
        begin, line = values_at(start + 8 * sample * width, width), values_at(field + 8 * sample * width, width)
        expand_line(runs, ptr, members, first, begin, line, middle, mean, stretch)


def substitute(spec_at, count, width, field, known, externals, cells, memory):
    """Substitute one level: kernels.batches. Descriptor: Code, inputs, outside, unknowns, weights. Memory: cells and rows."""
    spec = index_at(spec_at, _WIDEST)
    code, unknowns, weights = _code(spec, 0), _index(spec, 16), _values(spec, 18)
    inputs, outside = index_grid_at(spec[10], spec[11], spec[12]), index_grid_at(spec[13], spec[14], spec[15])
    own = memory + 8 * (cells + len(unknowns)) * _team()
    cell, row = values_at(own, cells), values_at(own + 8 * cells, len(unknowns))
    fields, params = values_grid_at(field, count, width), values_grid_at(externals, count, known)
    for sample in _samples(count):
        substitute_tile(code, inputs, outside, params, unknowns, weights, fields, sample, cell, row)


def evaluate(spec_at, count, width, field, known, externals, cells, memory, rows, out):
    """Evaluate rows: kernels.batches. Descriptor: Code, inputs, outside. Memory: cells and rows."""
    spec = index_at(spec_at, _WIDEST)
    code = _code(spec, 0)
    inputs, outside = index_grid_at(spec[10], spec[11], spec[12]), index_grid_at(spec[13], spec[14], spec[15])
    own = memory + 8 * (cells + rows) * _team()
    cell, row = values_at(own, cells), values_at(own + 8 * cells, rows)
    fields, params = values_grid_at(field, count, width), values_grid_at(externals, count, known)
    found = values_grid_at(out, count, rows)
    for sample in _samples(count):
        evaluate_tile(code, inputs, outside, params, fields, sample, cell, row, found)
        join()


def pull(spec_at, count, width, field, known, externals, cells, memory, height, multipliers, rest):
    """Add Jᵀλ: kernels.batches. Descriptor: Code, inputs, outside, index. Memory: 7 numbers a cell, two a row."""
    spec = index_at(spec_at, _WIDEST)
    code, index = _code(spec, 0), index_grid_at(spec[16], spec[17], spec[18])
    inputs, outside = index_grid_at(spec[10], spec[11], spec[12]), index_grid_at(spec[13], spec[14], spec[15])
    rows = spec[18]
    own = memory + 8 * (7 * cells + 2 * rows) * _team()
    cell, adjoint = values_at(own, cells), values_at(own + 8 * cells, cells)
    partial, row = values_at(own + 16 * cells, 5 * cells), values_at(own + 56 * cells, rows)
    weight = values_at(own + 56 * cells + 8 * rows, rows)
    fields, params = values_grid_at(field, count, width), values_grid_at(externals, count, known)
    lam, left = values_grid_at(multipliers, count, height), values_grid_at(rest, count, width)
    parts = spec[17]
    for sample in _samples(count):
        for part in range(parts):
            pull_tile(
                code, inputs, outside, params, index, lam, fields, sample * parts + part, cell, row, weight, partial, adjoint,
                left,
            )  # fmt: skip
            join()


def products(spec_at, count, width, field, rows, out):
    """Add matrix · field to out: kernels.runs. Descriptor: Runs."""
    spec = index_at(spec_at, _WIDEST)
    runs = _runs(spec, 0)
    for sample in _samples(count):
        add_products(runs, values_at(field + 8 * sample * width, width), values_at(out + 8 * sample * rows, rows))


def transposed(spec_at, count, width, field, rows, weight):
    """Add matrixᵀ · weight to field: kernels.runs. Descriptor: Runs."""
    spec = index_at(spec_at, _WIDEST)
    runs = _runs(spec, 0)
    for sample in _samples(count):
        add_transposed(runs, values_at(weight + 8 * sample * rows, rows), values_at(field + 8 * sample * width, width))


ENTRIES = (newton, rotate, condense, expand, substitute, evaluate, pull, products, transposed)
