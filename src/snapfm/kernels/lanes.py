"""Copy between batches (b, n) and tiles of lanes, and scale each lane to a unit near the size of its field.

Lane L of all lanes holds part L % parts of sample L // parts. An incomplete last tile repeats its last lane, so that no lane
ever holds garbage. Each function runs on one thread: callers divide samples among threads.

Iterations use absolute sizes (how far to push off a flat point, where a barrier begins) that suit fields of order one. So a
lane measures its unknowns, rows and multipliers in a power of two near the size of its field. That leaves Jacobian and
Hessian unchanged and changes no bit but the exponent. Fields of order one have the unit 1.
"""

from __future__ import annotations

import math

from snapfm.kernels.layout import LOWER, MULTIPLIER, SHIFT, TARGET, UNIT, UPPER, Tile, X, section
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.operations import LANES
from snapfm.kernels.teams import greatest, leads, team


@compiled(nogil=True)
def gather(field, index, first, tiles):
    """tiles[:, first + k] = field[sample, index[part, k]]. Read: field (b, n), index (parts, k); written: tiles."""
    lanes = len(field) * len(index)
    for lane in range(len(tiles) * LANES):
        gather_lane(field, index, min(lane, lanes - 1), first, tiles, lane)


@compiled(nogil=True)
def gather_lane(field, index, source, first, tiles, lane):
    """Gather for one lane what belongs to the lane `source`; see gather. Written: tiles."""
    sample, part = source // len(index), source % len(index)
    tile, at = lane // LANES, lane % LANES
    for k in team(index.shape[1]):
        tiles[tile, (first + k) * LANES + at] = field[sample, index[part, k]]


@compiled(nogil=True)
def scatter(tiles, first, index, field):
    """field[sample, index[part, k]] = tiles[:, first + k]. Read: tiles, index (parts, k); written: field (b, n)."""
    for lane in range(len(field) * len(index)):
        scatter_lane(tiles, lane, first, index, field)


@compiled(nogil=True)
def scatter_lane(tiles, lane, first, index, field):
    """Scatter one lane; see scatter. Written: field."""
    sample, part = lane // len(index), lane % len(index)
    tile, at = lane // LANES, lane % LANES
    for k in team(index.shape[1]):
        field[sample, index[part, k]] = tiles[tile, (first + k) * LANES + at]


@compiled(nogil=True)
def fill(inputs, outside, field, externals, first, tiles):
    """Write the constant, the unknowns and the params of a program's cells, which begin at `first`. Written: tiles."""
    tiles[:, first * LANES : (first + 1) * LANES] = 1.0  # cell 0 is the constant
    gather(field, inputs, first + 1, tiles)
    gather(externals, outside, first + 1 + inputs.shape[1], tiles)


_ORDINARY = 4  # sizes from 2⁻⁴ to 2⁴ have the unit 1
_EXTREME = 300  # no unit beyond 2^±300: its square is finite


@compiled(nogil=True, error_model="numpy")
def enter_units(space, at):
    """Choose every lane's unit by x and its target, and convert to it; return whether any is not 1.

    Written: unit, x, target, lower, upper, shift, multiplier.
    """
    other = False
    for k in range(len(space)):
        other |= enter_units_tile(Tile(space[k], space[k], at))
    return other


@compiled(nogil=True, error_model="numpy")
def enter_units_tile(tile):
    """Choose the units of one tile; see enter_units."""
    other = False
    unit, x, target = section(tile, UNIT), section(tile, X), section(tile, TARGET)
    for lane in range(LANES):
        size = 0.0
        for j in team(len(x) // LANES):
            size = max(size, abs(x[j * LANES + lane]), abs(target[j * LANES + lane]))
        size, power = greatest(size), 0
        if size > 0.0 and math.isfinite(size):
            power = math.frexp(size)[1]
        if abs(power) <= _ORDINARY:
            power = 0
        power = min(max(power, -_EXTREME), _EXTREME)
        if leads():
            unit[lane], unit[LANES + lane] = math.ldexp(1.0, power), math.ldexp(1.0, -power)
        if power != 0:
            other = True
            for number in (X, TARGET, LOWER, UPPER, SHIFT, MULTIPLIER):
                _multiply_lane(section(tile, number), lane, math.ldexp(1.0, -power))
    return other


@compiled(nogil=True, error_model="numpy")
def leave_units(space, at):  # read: unit; written: x, multiplier
    """Convert x and multipliers back to the units of the laws."""
    for k in range(len(space)):
        leave_units_tile(Tile(space[k], space[k], at))


@compiled(nogil=True, error_model="numpy")
def leave_units_tile(tile):  # read: unit; written: x, multiplier
    """Convert one tile; see leave_units."""
    unit = section(tile, UNIT)
    for lane in range(LANES):
        _multiply_lane(section(tile, X), lane, unit[lane])
        _multiply_lane(section(tile, MULTIPLIER), lane, unit[lane])


@compiled(nogil=True, error_model="numpy")
def _multiply_lane(values, lane, factor):  # written: values, one lane
    for k in team(len(values) // LANES):
        values[k * LANES + lane] *= factor
