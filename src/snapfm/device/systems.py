"""Entries of systems: into the memory of lanes, Newton's method, a barrier, restoration, and out of it. See device.entries."""

from __future__ import annotations

from numba import cuda
from numba.cuda import types

from snapfm.device.reading import (
    WIDEST,
    code_of,
    frame_of,
    index_of,
    samples_of_team,
    schedule_of,
    team_number,
    values_of,
)
from snapfm.kernels.filter import FILTER
from snapfm.kernels.interior import Path, interior_tile
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
    Lanes,
    Settings,
    Tile,
    X,
)
from snapfm.kernels.newton import solve_tile
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.sections import (  # type: ignore[attr-defined]
    index_at,
    index_grid_at,
    values_at,
    values_grid_at,
)
from snapfm.kernels.restoration import restore_tile
from snapfm.kernels.teams import leads, team, team_between

_REALS, _COUNTS, _FLAGS = 22, 9, 9  # of Lanes and Path, of what a loop is given, and of how a lane ended
_STATUS, _ITERATIONS, _LIMIT, _STOP, _LIVE = 5, 6, 7, 8, 8  # places among these
_NO_WEIGHT = -1.0  # of a kink: solve.kinks.search


@compiled()
def _lanes(r, n, f, theta, objective):
    """Arrange the numbers of a lane."""
    return Lanes(
        r[0:1], r[1:2], r[2:3], r[3:4], r[4:5], r[5:6], r[6:7], r[7:8], r[8:9], r[9:10], r[10:11], r[11:12], r[12:13],
        r[13:14], r[14:15], r[15:16], r[16:17], r[17:18], n[0:1], n[1:2], n[2:3], f[0:1], f[1:2], f[2:3], f[3:4], f[4:5],
        f[5:6], theta, objective, n[3:4], r[18:19], f[6:7], n[4:5],
    )  # fmt: skip


@compiled()
def _allowed(left, sample, limit):
    """Return the iterations of a sample: `limit`, or what is left if that is less. Negative: the sample is left alone."""
    return min(limit, left[sample]) if len(left) > 0 else limit


def newton(
    spec_at, count, tolerance, stationarity, polish, ordinary, trials, filtered, patience, limit, left_at, space, work,
    status_at, iterations_at, second_at,
):  # fmt: skip
    """Solve systems: kernels.newton. Descriptor: Code, Frame, Schedule, where the sections of a tile's memory begin.

    `left` are the iterations that samples have left, if it is not zero; a sample with a negative number is left alone.
    """
    spec = index_at(spec_at, WIDEST)
    code, frame, plan, at = code_of(spec, 0), frame_of(spec, 10), schedule_of(spec, 24), index_of(spec, 53)
    settings = Settings(tolerance, stationarity, polish, ordinary, trials, filtered, patience)
    r, n = cuda.local.array(_REALS, types.float64), cuda.local.array(_COUNTS, types.int64)
    f = cuda.local.array(_FLAGS, types.boolean)
    theta, objective = cuda.local.array(FILTER, types.float64), cuda.local.array(FILTER, types.float64)
    lanes = _lanes(r, n, f, theta, objective)
    n[_STOP], f[_LIVE] = 0, True
    kept, whole = at[KEPT], at[len(at) - 1]
    left = index_at(left_at, count if left_at != 0 else 0)
    status, iterations, second = index_at(status_at, count), index_at(iterations_at, count), index_at(second_at, count)
    scratch = values_at(work + 8 * team_number() * whole, whole)
    for sample in samples_of_team(count):
        n[_LIMIT] = _allowed(left, sample, limit)
        if n[_LIMIT] < 0:
            continue
        tile = Tile(values_at(space + 8 * sample * kept, kept), scratch, at)
        solve_tile(
            code, frame, plan, settings, n[_LIMIT : _LIMIT + 1], n[_STOP : _STOP + 1], f[_LIVE : _LIVE + 1], tile, lanes,
            n[_STATUS : _STATUS + 1], n[_ITERATIONS : _ITERATIONS + 1],
        )  # fmt: skip
        if leads():
            status[sample], iterations[sample], second[sample] = n[_STATUS], n[_ITERATIONS], lanes.second[0]


def interior(spec_at, count, ordinary, soft, limit, left_at, space, work, status_at, iterations_at):
    """Follow a barrier: kernels.interior. Descriptor and `left`: see newton."""
    spec = index_at(spec_at, WIDEST)
    code, frame, plan, at = code_of(spec, 0), frame_of(spec, 10), schedule_of(spec, 24), index_of(spec, 53)
    r, n = cuda.local.array(_REALS, types.float64), cuda.local.array(_COUNTS, types.int64)
    f = cuda.local.array(_FLAGS, types.boolean)
    theta, objective = cuda.local.array(FILTER, types.float64), cuda.local.array(FILTER, types.float64)
    lanes, path = _lanes(r, n, f, theta, objective), Path(r[19:20], r[20:21], r[21:22], f[7:8])
    n[_STOP], f[_LIVE] = 0, True
    kept, whole = at[KEPT], at[len(at) - 1]
    left = index_at(left_at, count if left_at != 0 else 0)
    status, iterations = index_at(status_at, count), index_at(iterations_at, count)
    scratch = values_at(work + 8 * team_number() * whole, whole)
    for sample in samples_of_team(count):
        n[_LIMIT] = _allowed(left, sample, limit)
        if n[_LIMIT] < 0:
            continue
        tile = Tile(values_at(space + 8 * sample * kept, kept), scratch, at)
        interior_tile(
            code, frame, plan, ordinary, soft, n[_LIMIT : _LIMIT + 1], n[_STOP : _STOP + 1], f[_LIVE : _LIVE + 1], tile, lanes,
            path, n[_STATUS : _STATUS + 1], n[_ITERATIONS : _ITERATIONS + 1],
        )  # fmt: skip
        if leads():
            status[sample], iterations[sample] = n[_STATUS], n[_ITERATIONS]


def restore(spec_at, count, tolerance, limit, left_at, space, work, status_at, iterations_at):
    """Minimize the violation: kernels.restoration. Descriptor and `left`: see newton."""
    spec = index_at(spec_at, WIDEST)
    code, frame, plan, at = code_of(spec, 0), frame_of(spec, 10), schedule_of(spec, 24), index_of(spec, 53)
    r, n = cuda.local.array(_REALS, types.float64), cuda.local.array(_COUNTS, types.int64)
    f = cuda.local.array(_FLAGS, types.boolean)
    theta, objective = cuda.local.array(FILTER, types.float64), cuda.local.array(FILTER, types.float64)
    lanes = _lanes(r, n, f, theta, objective)
    n[_STOP], f[_LIVE] = 0, True
    kept, whole = at[KEPT], at[len(at) - 1]
    left = index_at(left_at, count if left_at != 0 else 0)
    status, iterations = index_at(status_at, count), index_at(iterations_at, count)
    scratch = values_at(work + 8 * team_number() * whole, whole)
    for sample in samples_of_team(count):
        n[_LIMIT] = _allowed(left, sample, limit)
        if n[_LIMIT] < 0:
            continue
        tile = Tile(values_at(space + 8 * sample * kept, kept), scratch, at)
        restore_tile(
            code, frame, plan, tolerance, n[_LIMIT : _LIMIT + 1], n[_STOP : _STOP + 1], f[_LIVE : _LIVE + 1], tile, lanes,
            n[_STATUS : _STATUS + 1], n[_ITERATIONS : _ITERATIONS + 1],
        )  # fmt: skip
        if leads():
            status[sample], iterations[sample] = n[_STATUS], n[_ITERATIONS]


def into_tiles(spec_at, count, width, field, start, known, externals, height, warm, rows, totals, space):
    """Fill what lanes keep and choose their units: kernels.lanes. One team a lane; multipliers are zero without `warm`.

    Descriptor: inputs, outside, unknowns, rows, constants of the Jacobian, lower, upper, where sections begin. `totals` are those
    of eliminated unknowns, by part and row.
    """
    spec = index_at(spec_at, WIDEST)
    inputs, outside = index_grid_at(spec[0], spec[1], spec[2]), index_grid_at(spec[3], spec[4], spec[5])
    unknowns, index = index_grid_at(spec[6], spec[7], spec[8]), index_grid_at(spec[9], spec[10], spec[11])
    constants, lower, upper, at = values_of(spec, 12), values_of(spec, 14), values_of(spec, 16), index_of(spec, 18)
    parts, own, kept = len(unknowns), unknowns.shape[1], at[KEPT]
    samples = count // parts
    fields, starts = values_grid_at(field, samples, width), values_grid_at(start, samples, width)
    params, sums = values_grid_at(externals, samples, known), values_grid_at(totals, samples, rows)
    lanes = values_grid_at(space, count, kept)
    for lane in samples_of_team(count):
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
    spec = index_at(spec_at, WIDEST)
    unknowns, index = index_grid_at(spec[0], spec[1], spec[2]), index_grid_at(spec[3], spec[4], spec[5])
    at = index_of(spec, 6)
    parts, kept = len(unknowns), at[KEPT]
    samples = count // parts
    fields, lam = values_grid_at(field, samples, width), values_grid_at(multipliers, samples, height)
    sums, lanes = values_grid_at(totals, samples, rows), values_grid_at(space, count, kept)
    for lane in samples_of_team(count):
        sample, part = lane // parts, lane % parts
        memory = values_at(space + 8 * lane * kept, kept)
        leave_units_tile(Tile(memory, memory, at))
        scatter_lane(lanes, lane, at[X], unknowns, fields)
        scatter_lane(lanes, lane, at[MULTIPLIER], index, lam)
        for r in team(index.shape[1]):
            sums[sample, part * index.shape[1] + r] = -memory[at[MULTIPLIER] + r]
