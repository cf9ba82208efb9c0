"""Copy between batches (b, n) and tiles of lanes, and scale each lane to a unit near the size of its field.

Lane L of all lanes holds part L % parts of sample L // parts. An incomplete last tile repeats its last lane, so that no lane
ever holds garbage. Each function runs on one thread: callers divide samples among threads.

Iterations use absolute sizes (how far to push off a flat point, where a barrier begins) that suit fields of order one. So a
lane measures its unknowns, rows and multipliers in a power of two near the size of its field. That leaves Jacobian and
Hessian unchanged and changes no bit but the exponent. Fields of order one have the unit 1.
"""

from __future__ import annotations

import math

from snapfm.kernels.layout import Tile
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.operations import LANES


@compiled(nogil=True)
def gather(field, index, first, tiles):
    """tiles[:, first + k] = field[sample, index[part, k]]. Read: field (b, n), index (parts, k); written: tiles."""
    for lane in range(len(tiles) * LANES):
        source = min(lane, len(field) * len(index) - 1)
        sample, part = source // len(index), source % len(index)
        tile, at = lane // LANES, lane % LANES
        for k in range(index.shape[1]):
            tiles[tile, (first + k) * LANES + at] = field[sample, index[part, k]]


@compiled(nogil=True)
def scatter(tiles, first, index, field):
    """field[sample, index[part, k]] = tiles[:, first + k]. Read: tiles, index (parts, k); written: field (b, n)."""
    for lane in range(len(field) * len(index)):
        sample, part = lane // len(index), lane % len(index)
        tile, at = lane // LANES, lane % LANES
        for k in range(index.shape[1]):
            field[sample, index[part, k]] = tiles[tile, (first + k) * LANES + at]


@compiled(nogil=True)
def fill(inputs, outside, field, params, first, tiles):
    """Write the constant, the params and the unknowns of a program's cells, which begin at `first`. Written: tiles."""
    tiles[:, first * LANES : (first + 1) * LANES] = 1.0  # cell 0 is the constant
    gather(params, outside, first + 1, tiles)
    gather(field, inputs, first + 1 + outside.shape[1], tiles)


_ORDINARY = 4  # sizes from 2⁻⁴ to 2⁴ have the unit 1
_EXTREME = 300  # no unit beyond 2^±300: its square is finite


@compiled(nogil=True, error_model="numpy")
def enter_units(space, at):
    """Choose every lane's unit by x and its target, and convert to it; return whether any is not 1.

    Written: unit, x, target, lower, upper, shift, multiplier.
    """
    other = False
    for k in range(len(space)):
        other |= _enter_tile(Tile(space[k], space[k], at))
    return other


@compiled(nogil=True, error_model="numpy")
def _enter_tile(tile):
    """Choose the units of one tile; see enter_units."""
    other = False
    unit, x, target = tile.unit, tile.x, tile.target
    for lane in range(LANES):
        size = 0.0
        for j in range(len(x) // LANES):
            size = max(size, abs(x[j * LANES + lane]), abs(target[j * LANES + lane]))
        power = 0
        if size > 0.0 and math.isfinite(size):
            power = math.frexp(size)[1]
        if abs(power) <= _ORDINARY:
            power = 0
        power = min(max(power, -_EXTREME), _EXTREME)
        unit[lane], unit[LANES + lane] = math.ldexp(1.0, power), math.ldexp(1.0, -power)
        if power != 0:
            other = True
            for values in (x, target, tile.lower, tile.upper, tile.shift, tile.multiplier):
                _multiply_lane(values, lane, math.ldexp(1.0, -power))
    return other


@compiled(nogil=True, error_model="numpy")
def leave_units(space, at):  # read: unit; written: x, multiplier
    """Convert x and multipliers back to the units of the laws."""
    for k in range(len(space)):
        tile = Tile(space[k], space[k], at)
        unit = tile.unit
        for lane in range(LANES):
            _multiply_lane(tile.x, lane, unit[lane])
            _multiply_lane(tile.multiplier, lane, unit[lane])


@compiled(nogil=True, error_model="numpy")
def _multiply_lane(values, lane, factor):  # written: values, one lane
    for k in range(len(values) // LANES):
        values[k * LANES + lane] *= factor
