"""Entries of the PTX: what a launch starts. Each deals samples out to teams and calls a kernel of snapfm.kernels on each.

Compiled by device.build, which loads the kernels for CUDA first; nothing else imports this file. Arguments are integers
(addresses, counts) and floats. Structure comes as one descriptor: the address of integers that device.structures has written (see
device.reading). Entries of systems are in device.systems. Team number t works on samples t, t + teams, …, in memory number t.
"""

from __future__ import annotations

from numba import cuda
from numba.cuda import types

from snapfm.device.reading import (
    WIDEST,
    code_of,
    elimination_of,
    index_of,
    runs_of,
    samples_of_team,
    schedule_of,
    team_number,
    values_of,
)
from snapfm.device.systems import interior, into_tiles, newton, out_of_tiles, restore
from snapfm.kernels.batches import evaluate_tile, pull_tile, substitute_tile
from snapfm.kernels.coordinates import condense_line, expand_line
from snapfm.kernels.ldl import solve_tile as solve_factored
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
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.sections import (  # type: ignore[attr-defined]
    index_at,
    index_grid_at,
    values_at,
    values_grid_at,
)
from snapfm.kernels.run_length import add_products, add_transposed
from snapfm.kernels.teams import join, leads, team

_STAGE_FLAGS = 7  # of StageLanes
_REFINED = 2  # solves with a factor: the second removes what the first leaves where it is ill-conditioned


@compiled()
def _structure(at):
    """Read the descriptor of a structure; where its memory begins follows it."""
    spec = index_at(at, WIDEST)
    keep = values_at(at + 8 * 25, 1)[0]
    return Structure(
        code_of(spec, 0), spec[10], spec[11], values_of(spec, 12), spec[14] != 0, index_of(spec, 15), index_of(spec, 17),
        index_of(spec, 19), index_of(spec, 21), index_of(spec, 23), keep, elimination_of(spec, 26),
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


def rotate(spec_at, count, width, field, back):
    """Rotate pairs, backwards if `back` is −1: kernels.coordinates. Descriptor: first, second, cos, sin."""
    spec = index_at(spec_at, WIDEST)
    first, second, cos, sin = index_of(spec, 0), index_of(spec, 2), values_of(spec, 4), values_of(spec, 6)
    for sample in samples_of_team(count):
        line = values_at(field + 8 * sample * width, width)
        for k in team(len(first)):
            one, other, turn = line[first[k]], line[second[k]], back * sin[k]
            line[first[k]] = cos[k] * one + turn * other
            line[second[k]] = cos[k] * other - turn * one


def condense(spec_at, count, width, field, memory):
    """Condense groups: kernels.coordinates. Descriptor: Runs, ptr, first. Memory: three numbers a group."""
    spec = index_at(spec_at, WIDEST)
    runs, ptr, first = runs_of(spec, 0), index_of(spec, 10), spec[12]
    groups = len(ptr) - 1
    own = memory + 24 * groups * team_number()
    mean, rest = values_at(own, groups), values_at(own + 8 * groups, groups)
    square = values_at(own + 16 * groups, groups)
    for sample in samples_of_team(count):
        condense_line(runs, ptr, first, values_at(field + 8 * sample * width, width), mean, rest, square)


def expand(spec_at, count, width, start, field, memory):
    """Expand groups: kernels.coordinates. Descriptor: Runs, ptr, members, first. Memory: three numbers a group."""
    spec = index_at(spec_at, WIDEST)
    runs, ptr, members, first = runs_of(spec, 0), index_of(spec, 10), index_of(spec, 12), spec[14]
    groups = len(ptr) - 1
    own = memory + 24 * groups * team_number()
    middle, mean = values_at(own, groups), values_at(own + 8 * groups, groups)
    stretch = values_at(own + 16 * groups, groups)
    for sample in samples_of_team(count):
        begin, line = values_at(start + 8 * sample * width, width), values_at(field + 8 * sample * width, width)
        expand_line(runs, ptr, members, first, begin, line, middle, mean, stretch)


def substitute(spec_at, count, width, field, known, externals, cells, memory):
    """Substitute one level: kernels.batches. Descriptor: Code, inputs, outside, unknowns, weights. Memory: cells and rows."""
    spec = index_at(spec_at, WIDEST)
    code, unknowns, weights = code_of(spec, 0), index_of(spec, 16), values_of(spec, 18)
    inputs, outside = index_grid_at(spec[10], spec[11], spec[12]), index_grid_at(spec[13], spec[14], spec[15])
    own = memory + 8 * (cells + len(unknowns)) * team_number()
    cell, row = values_at(own, cells), values_at(own + 8 * cells, len(unknowns))
    fields, params = values_grid_at(field, count, width), values_grid_at(externals, count, known)
    for sample in samples_of_team(count):
        substitute_tile(code, inputs, outside, params, unknowns, weights, fields, sample, cell, row)


def evaluate(spec_at, count, width, field, known, externals, cells, memory, rows, out):
    """Evaluate rows: kernels.batches. Descriptor: Code, inputs, outside. Memory: cells and rows."""
    spec = index_at(spec_at, WIDEST)
    code = code_of(spec, 0)
    inputs, outside = index_grid_at(spec[10], spec[11], spec[12]), index_grid_at(spec[13], spec[14], spec[15])
    own = memory + 8 * (cells + rows) * team_number()
    cell, row = values_at(own, cells), values_at(own + 8 * cells, rows)
    fields, params = values_grid_at(field, count, width), values_grid_at(externals, count, known)
    found = values_grid_at(out, count, rows)
    for sample in samples_of_team(count):
        evaluate_tile(code, inputs, outside, params, fields, sample, cell, row, found)
        join()


def pull(spec_at, count, width, field, known, externals, cells, memory, height, multipliers, rest):
    """Add Jᵀλ: kernels.batches. Descriptor: Code, inputs, outside, index. Memory: 7 numbers a cell, two a row."""
    spec = index_at(spec_at, WIDEST)
    code, index = code_of(spec, 0), index_grid_at(spec[16], spec[17], spec[18])
    inputs, outside = index_grid_at(spec[10], spec[11], spec[12]), index_grid_at(spec[13], spec[14], spec[15])
    rows = spec[18]
    own = memory + 8 * (7 * cells + 2 * rows) * team_number()
    cell, adjoint = values_at(own, cells), values_at(own + 8 * cells, cells)
    partial, row = values_at(own + 16 * cells, 5 * cells), values_at(own + 56 * cells, rows)
    weight = values_at(own + 56 * cells + 8 * rows, rows)
    fields, params = values_grid_at(field, count, width), values_grid_at(externals, count, known)
    lam, left = values_grid_at(multipliers, count, height), values_grid_at(rest, count, width)
    parts = spec[17]
    for sample in samples_of_team(count):
        for part in range(parts):
            pull_tile(
                code, inputs, outside, params, index, lam, fields, sample * parts + part, cell, row, weight, partial, adjoint,
                left,
            )  # fmt: skip


def products(spec_at, count, width, field, rows, out):
    """Add matrix · field to out: kernels.run_length. Descriptor: Runs."""
    spec = index_at(spec_at, WIDEST)
    runs = runs_of(spec, 0)
    for sample in samples_of_team(count):
        add_products(runs, values_at(field + 8 * sample * width, width), values_at(out + 8 * sample * rows, rows))


def transposed(spec_at, count, width, field, rows, weight):
    """Add matrixᵀ · weight to field: kernels.run_length. Descriptor: Runs."""
    spec = index_at(spec_at, WIDEST)
    runs = runs_of(spec, 0)
    for sample in samples_of_team(count):
        add_transposed(runs, values_at(weight + 8 * sample * rows, rows), values_at(field + 8 * sample * width, width))


def affine(spec_at, count, width, field, rows, base, height, multipliers, memory):
    """Project onto affine rows, with a factor that samples share: kernels.run_length and kernels.ldl.

    Descriptor: Runs, index of the rows, diagonal of AAᵀ if that is all, else Schedule, factor and inverse pivots. Memory: two
    numbers a row and one a slot.
    """
    spec = index_at(spec_at, WIDEST)
    runs, index, diagonal, plan = runs_of(spec, 0), index_of(spec, 10), values_of(spec, 12), schedule_of(spec, 14)
    factor, inverse = values_of(spec, 43), values_of(spec, 45)
    own = memory + 8 * (2 * rows + len(inverse)) * team_number()
    residual, step = values_at(own, rows), values_at(own + 8 * rows, rows)
    work = values_at(own + 16 * rows, len(inverse))
    lam, constants = values_grid_at(multipliers, count, height), values_grid_at(base, count, rows)
    for sample in samples_of_team(count):
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
    spec = index_at(spec_at, WIDEST)
    stages, squares = index_of(spec, 0), index_of(spec, 2)
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
    for sample in samples_of_team(count):
        most, outcome = 1, SOLVED
        for number in range(len(stages)):
            stage = index_at(stages[number], WIDEST)
            one = _structure(squares[stage[0]])
            factors, past, have = _kept(one, index_at(squares[stage[0]], WIDEST)[_OFFSET], count, kept)
            packs = len(one.plan.row) + 2 * len(one.plan.places)
            memory, _ = _stage_memory(one, work + 8 * size * team_number())
            again = stage[1] != 0
            lanes.have[0] = again and have[sample] != 0
            lanes.ended[0], lanes.used[0] = NOT_BEGUN, 0
            rule = Rule(goal, tolerance, further != 0 and not one.constant, limit)
            solve_stage_tile(
                one, rule, index_grid_at(stage[2], stage[3], stage[4]), index_grid_at(stage[5], stage[6], stage[7]), params,
                index_of(stage, 8), starts, fields, past, again, values_at(factors + 8 * sample * packs, packs), n[2:3], sample,
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
    spec = index_at(spec_at, WIDEST)
    stages, squares = index_of(spec, 0), index_of(spec, 2)
    fields, left = values_grid_at(field, count, width), values_grid_at(rest, count, width)
    params, lam = values_grid_at(externals, count, known), values_grid_at(multipliers, count, height)
    ended = index_at(ended_at, count)
    r, n = cuda.local.array(2, types.float64), cuda.local.array(2, types.int64)
    f = cuda.local.array(_STAGE_FLAGS, types.boolean)
    lanes = StageLanes(
        f[0:1], f[1:2], f[2:3], f[3:4], f[4:5], f[5:6], f[6:7], n[0:1], n[1:2], r[0:1], r[1:2]
    )  # fmt: skip
    size = _widest_stage(squares)
    for sample in samples_of_team(count):
        outcome = ended[sample]
        if outcome != SOLVED:
            continue
        for step in range(len(stages)):
            stage = index_at(stages[len(stages) - 1 - step], WIDEST)
            one = _structure(squares[stage[0]])
            factors, _, have = _kept(one, index_at(squares[stage[0]], WIDEST)[_OFFSET], count, kept)
            packs = len(one.plan.row) + 2 * len(one.plan.places)
            memory, end = _stage_memory(one, work + 8 * size * team_number())
            inputs, outside = index_grid_at(stage[2], stage[3], stage[4]), index_grid_at(stage[5], stage[6], stage[7])
            unknowns, rows = index_of(stage, 8), index_of(stage, 10)
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
    newton, interior, restore, rotate, condense, expand, substitute, evaluate, pull, products, transposed, into_tiles,
    out_of_tiles, affine, march, march_back,
)  # fmt: skip
