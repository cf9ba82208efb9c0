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
from snapfm.kernels.lanes import enter_units_tile, gather_lane, leave_units_tile, scatter_lane
from snapfm.kernels.layout import (
    BARRIER,
    CELLS,
    JACOBIAN,
    KEPT,
    LOWER,
    MULTIPLIER,
    SHIFT,
    TARGET,
    UNIT,
    UPPER,
    WEIGHT,
    Frame,
    Lanes,
    Settings,
    Tile,
    X,
)
from snapfm.kernels.ldl import solve_tile as solve_factored
from snapfm.kernels.lu import Elimination
from snapfm.kernels.march import (
    NOT_BEGUN,
    SOLVED,
    Rule,
    StageLanes,
    StageMemory,
    Structure,
    determine_stage_tile,
    solve_stage_tile,
    stage_packs,
)
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
from snapfm.kernels.teams import join, leads, team, team_between

_WIDEST = 64  # integers of the longest descriptor
_REALS, _COUNTS, _FLAGS = 21, 7, 8  # of Lanes
_STAGE_FLAGS = 7  # of StageLanes
_NO_WEIGHT = -1.0  # of a kink: project.kinks
_REFINED = 2  # solves with a factor: the second removes what the first leaves where it is ill-conditioned


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
def _elimination(spec, k):
    return Elimination(
        _index(spec, k), _index(spec, k + 2), _index(spec, k + 4), _index(spec, k + 6), _index(spec, k + 8), _index(spec, k + 10),
        _index(spec, k + 12), _index(spec, k + 14),
    )  # fmt: skip


@compiled()
def _structure(at):
    """Read the descriptor of a structure; where its memory begins follows it."""
    spec = index_at(at, _WIDEST)
    keep = values_at(at + 8 * 25, 1)[0]
    return Structure(
        _code(spec, 0), spec[10], spec[11], _values(spec, 12), spec[14] != 0, _index(spec, 15), _index(spec, 17),
        _index(spec, 19), _index(spec, 21), _index(spec, 23), keep, _elimination(spec, 26),
    )  # fmt: skip


_OFFSET = 42  # of a structure's descriptor: numbers a sample of all structures before


@compiled()
def _kept(one, offset, count, kept):
    """Return what samples keep of one structure: factors, solutions two stages before, and whether there is a factor."""
    packs, before = len(one.plan.row) + 2 * len(one.plan.places), len(one.before)
    begin = kept + 8 * count * offset
    past = begin + 8 * count * packs
    return begin, values_grid_at(past, count, before), index_at(past + 8 * count * before, count)


@compiled()
def _stage_memory(one, begin):
    """Cut the memory of a stage; return where it ends, too."""
    a, b, c, d, e, f, g, h, i, j, k, m, n, o, p = stage_packs(one)
    at = begin
    cells, at = values_at(at, a), at + 8 * a
    rows, at = values_at(at, b), at + 8 * b
    partial, at = values_at(at, c), at + 8 * c
    slope, at = values_at(at, d), at + 8 * d
    left, at = values_at(at, e), at + 8 * e
    right, at = values_at(at, f), at + 8 * f
    entries, at = values_at(at, g), at + 8 * g
    scratch, at = values_at(at, h), at + 8 * h
    work, at = values_at(at, i), at + 8 * i
    step, at = values_at(at, j), at + 8 * j
    x, at = values_at(at, k), at + 8 * k
    found, at = values_at(at, m), at + 8 * m
    merit, at = values_at(at, n), at + 8 * n
    base, at = values_at(at, o), at + 8 * o
    length, at = values_at(at, p), at + 8 * p
    memory = StageMemory(
        cells, rows, partial, slope, left, right, entries, scratch, work, step, x, found, merit, base, length
    )
    return memory, at


@compiled()
def _widest_stage(squares):
    """Return the numbers that a team needs for the largest structure, with the adjoints of march_back."""
    widest = 0
    for k in range(len(squares)):
        one = _structure(squares[k])
        _, end = _stage_memory(one, 0)
        widest = max(widest, end // 8 + one.cells)
    return widest


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


def into_tiles(spec_at, count, width, field, start, known, externals, height, warm, rows, totals, space):
    """Fill what lanes keep and choose their units: kernels.lanes. One team a lane; multipliers are zero without `warm`.

    Descriptor: inputs, outside, unknowns, rows, constants of the Jacobian, lower, upper, where sections begin. `totals` are those
    of eliminated unknowns, by part and row.
    """
    spec = index_at(spec_at, _WIDEST)
    inputs, outside = index_grid_at(spec[0], spec[1], spec[2]), index_grid_at(spec[3], spec[4], spec[5])
    unknowns, index = index_grid_at(spec[6], spec[7], spec[8]), index_grid_at(spec[9], spec[10], spec[11])
    constants, lower, upper, at = _values(spec, 12), _values(spec, 14), _values(spec, 16), _index(spec, 18)
    parts, own, kept = len(unknowns), unknowns.shape[1], at[KEPT]
    samples = count // parts
    fields, starts = values_grid_at(field, samples, width), values_grid_at(start, samples, width)
    params, sums = values_grid_at(externals, samples, known), values_grid_at(totals, samples, rows)
    lanes = values_grid_at(space, count, kept)
    for lane in _samples(count):
        sample, part = lane // parts, lane % parts
        memory = values_at(space + 8 * lane * kept, kept)
        tile = Tile(memory, memory, at)
        if leads():
            memory[at[CELLS]] = 1.0
        gather_lane(fields, inputs, lane, at[CELLS] + 1, lanes, lane)
        gather_lane(params, outside, lane, at[CELLS] + 1 + inputs.shape[1], lanes, lane)
        gather_lane(fields, unknowns, lane, at[X], lanes, lane)
        gather_lane(starts, unknowns, lane, at[TARGET], lanes, lane)
        for k in team(len(constants)):
            memory[at[JACOBIAN] + k] = constants[k]
        for k in team(own if at[LOWER] < at[LOWER + 1] else 0):
            memory[at[LOWER] + k], memory[at[UPPER] + k] = lower[unknowns[part, k]], upper[unknowns[part, k]]
        for r in team(index.shape[1]):
            memory[at[SHIFT] + r] = sums[sample, part * index.shape[1] + r]
            memory[at[MULTIPLIER] + r] = 0.0
        if warm != 0:
            gather_lane(values_grid_at(warm, samples, height), index, lane, at[MULTIPLIER], lanes, lane)
        for k in team_between(at[BARRIER], at[UNIT]):
            memory[k] = 0.0
        for k in team_between(at[WEIGHT], at[WEIGHT + 1]):
            memory[k] = _NO_WEIGHT
        enter_units_tile(tile)


def out_of_tiles(spec_at, count, width, field, height, multipliers, rows, totals, space):
    """Return what lanes found, in the units of the laws: kernels.lanes. One team a lane.

    Descriptor: unknowns, rows, where sections begin. Totals become minus the multipliers, which eliminated unknowns follow from.
    """
    spec = index_at(spec_at, _WIDEST)
    unknowns, index = index_grid_at(spec[0], spec[1], spec[2]), index_grid_at(spec[3], spec[4], spec[5])
    at = _index(spec, 6)
    parts, kept = len(unknowns), at[KEPT]
    samples = count // parts
    fields, lam = values_grid_at(field, samples, width), values_grid_at(multipliers, samples, height)
    sums, lanes = values_grid_at(totals, samples, rows), values_grid_at(space, count, kept)
    for lane in _samples(count):
        sample, part = lane // parts, lane % parts
        memory = values_at(space + 8 * lane * kept, kept)
        leave_units_tile(Tile(memory, memory, at))
        scatter_lane(lanes, lane, at[X], unknowns, fields)
        scatter_lane(lanes, lane, at[MULTIPLIER], index, lam)
        for r in team(index.shape[1]):
            sums[sample, part * index.shape[1] + r] = -memory[at[MULTIPLIER] + r]


def affine(spec_at, count, width, field, rows, base, height, multipliers, memory):
    """Project onto affine rows, with a factor that samples share: kernels.runs and kernels.ldl.

    Descriptor: Runs, index of the rows, diagonal of AAᵀ if that is all, else Schedule, factor and inverse pivots. Memory: two
    numbers a row and one a slot.
    """
    spec = index_at(spec_at, _WIDEST)
    runs, index, diagonal, plan = _runs(spec, 0), _index(spec, 10), _values(spec, 12), _schedule(spec, 14)
    factor, inverse = _values(spec, 43), _values(spec, 45)
    own = memory + 8 * (2 * rows + len(inverse)) * _team()
    residual, step = values_at(own, rows), values_at(own + 8 * rows, rows)
    work = values_at(own + 16 * rows, len(inverse))
    lam, constants = values_grid_at(multipliers, count, height), values_grid_at(base, count, rows)
    for sample in _samples(count):
        line = values_at(field + 8 * sample * width, width)
        for _ in range(1 if len(diagonal) > 0 else _REFINED):
            for r in team(rows):
                residual[r] = constants[sample, r]
            join()
            add_products(runs, line, residual)
            if len(diagonal) > 0:
                for r in team(rows):
                    step[r] = residual[r] / diagonal[r]
            else:
                solve_factored(plan, factor, inverse, residual, 1, 0, work, step)
            for r in team(rows):
                lam[sample, index[r]] += step[r]
                step[r] = -step[r]
            join()
            add_transposed(runs, step, line)


def march(
    spec_at, count, width, start, field, known, externals, goal, tolerance, further, limit, kept, work, ended_at, used_at
):  # fmt: skip
    """Solve all stages of samples: kernels.march. A sample that fails a stage ends there.

    Descriptor: addresses of the descriptors of stages and of structures. Of a stage: which structure, whether an earlier stage
    has left a factor and a solution of that, inputs, outside, unknowns, rows. Of a structure: Structure, then what samples keep
    of those before, in numbers.
    """
    spec = index_at(spec_at, _WIDEST)
    stages, squares = _index(spec, 0), _index(spec, 2)
    starts, fields = values_grid_at(start, count, width), values_grid_at(field, count, width)
    params = values_grid_at(externals, count, known)
    ended, used = index_at(ended_at, count), index_at(used_at, count)
    r, n = cuda.local.array(2, types.float64), cuda.local.array(3, types.int64)
    f = cuda.local.array(_STAGE_FLAGS, types.boolean)
    lanes = StageLanes(
        f[0:1], f[1:2], f[2:3], f[3:4], f[4:5], f[5:6], f[6:7], n[0:1], n[1:2], r[0:1], r[1:2]
    )  # fmt: skip
    n[2] = 0
    size = _widest_stage(squares)
    for sample in _samples(count):
        most, outcome = 1, SOLVED
        for number in range(len(stages)):
            stage = index_at(stages[number], _WIDEST)
            one = _structure(squares[stage[0]])
            factors, past, have = _kept(one, index_at(squares[stage[0]], _WIDEST)[_OFFSET], count, kept)
            packs = len(one.plan.row) + 2 * len(one.plan.places)
            memory, _ = _stage_memory(one, work + 8 * size * _team())
            again = stage[1] != 0
            lanes.have[0] = again and have[sample] != 0
            lanes.ended[0], lanes.used[0] = NOT_BEGUN, 0
            rule = Rule(goal, tolerance, further != 0 and not one.constant, limit)
            solve_stage_tile(
                one, rule, index_grid_at(stage[2], stage[3], stage[4]), index_grid_at(stage[5], stage[6], stage[7]), params,
                _index(stage, 8), starts, fields, past, again, values_at(factors + 8 * sample * packs, packs), n[2:3], sample,
                memory, lanes,
            )  # fmt: skip
            if leads():
                have[sample] = lanes.have[0]
            join()
            most, outcome = max(most, lanes.used[0]), lanes.ended[0]
            if outcome != SOLVED:
                break
        if leads():
            ended[sample], used[sample] = outcome, most


def march_back(spec_at, count, width, field, known, externals, height, multipliers, rest, kept, work, ended_at):
    """Find the multipliers of all stages, last first, and add their Jᵀλ to the rest: kernels.march, kernels.batches; see march.

    Samples that did not end as SOLVED are left alone.
    """
    spec = index_at(spec_at, _WIDEST)
    stages, squares = _index(spec, 0), _index(spec, 2)
    fields, left = values_grid_at(field, count, width), values_grid_at(rest, count, width)
    params, lam = values_grid_at(externals, count, known), values_grid_at(multipliers, count, height)
    ended = index_at(ended_at, count)
    r, n = cuda.local.array(2, types.float64), cuda.local.array(2, types.int64)
    f = cuda.local.array(_STAGE_FLAGS, types.boolean)
    lanes = StageLanes(
        f[0:1], f[1:2], f[2:3], f[3:4], f[4:5], f[5:6], f[6:7], n[0:1], n[1:2], r[0:1], r[1:2]
    )  # fmt: skip
    size = _widest_stage(squares)
    for sample in _samples(count):
        outcome = ended[sample]
        if outcome != SOLVED:
            continue
        for step in range(len(stages)):
            stage = index_at(stages[len(stages) - 1 - step], _WIDEST)
            one = _structure(squares[stage[0]])
            factors, _, have = _kept(one, index_at(squares[stage[0]], _WIDEST)[_OFFSET], count, kept)
            packs = len(one.plan.row) + 2 * len(one.plan.places)
            memory, end = _stage_memory(one, work + 8 * size * _team())
            inputs, outside = index_grid_at(stage[2], stage[3], stage[4]), index_grid_at(stage[5], stage[6], stage[7])
            unknowns, rows = _index(stage, 8), _index(stage, 10)
            lanes.have[0], lanes.live[0], lanes.ended[0] = have[sample] != 0, True, SOLVED
            determine_stage_tile(
                one, inputs, outside, params, unknowns, rows, fields, left, values_at(factors + 8 * sample * packs, packs), lam,
                sample, memory, lanes,
            )  # fmt: skip
            outcome = lanes.ended[0]
            if outcome != SOLVED:
                break
            pull_tile(
                one.code, inputs, outside, params, index_grid_at(stage[10], 1, stage[11]), lam, fields, sample, memory.cells,
                memory.rows, memory.x, memory.partial, values_at(end, one.cells), left,
            )  # fmt: skip
            if leads():
                have[sample] = lanes.have[0]
            join()
        if leads():
            ended[sample] = outcome


ENTRIES = (
    newton, rotate, condense, expand, substitute, evaluate, pull, products, transposed, into_tiles, out_of_tiles, affine, march,
    march_back,
)  # fmt: skip
