"""Units: a lane's unknowns, rows and multipliers are measured in a power of two near the size of its field.

Iterations know sizes (how far to push off a flat point, where a barrier begins) that mean something for fields of order
one. Rows and multipliers are divided by the same unit as unknowns, which leaves slopes and curvature as they are; powers
of two leave every bit but the exponent. Fields of order one have the unit 1.
"""

from __future__ import annotations

import math

import numpy as np

from snapfm.kernels.compiling import compiled
from snapfm.kernels.layout import LOWER, MULTIPLIER, SHIFT, TARGET, UNIT, UPPER, Tile, X, section
from snapfm.kernels.operations import LANES

_ORDINARY = 4  # sizes from 2⁻⁴ to 2⁴ have the unit 1
_EXTREME = 300  # no unit beyond 2^±300: its square is still a number


@compiled(nogil=True, error_model="numpy")
def enter_units(space, at):
    """Choose every lane's unit by x and its target, and go over to it; say whether any is not 1.

    Written: unit, x, target, lower, upper, shift, multiplier.
    """
    other = False
    for k in range(len(space)):
        tile = Tile(space[k], at)
        unit = section(tile, UNIT)
        x, target = section(tile, X), section(tile, TARGET)
        for lane in range(LANES):
            size = 0.0
            for i in range(lane, len(x), LANES):
                size = max(size, abs(x[i]), abs(target[i]))
            power = 0
            if size > 0.0 and np.isfinite(size):
                power = math.frexp(size)[1]
            if abs(power) <= _ORDINARY:
                power = 0
            power = min(max(power, -_EXTREME), _EXTREME)
            unit[lane], unit[LANES + lane] = math.ldexp(1.0, power), math.ldexp(1.0, -power)
            if power != 0:
                other = True
                for number in (X, TARGET, LOWER, UPPER, SHIFT, MULTIPLIER):
                    part = section(tile, number)
                    for i in range(lane, len(part), LANES):
                        part[i] *= unit[LANES + lane]
    return other


@compiled(nogil=True, error_model="numpy")
def leave_units(space, at):  # read: unit; written: x, multiplier
    """Give x and multipliers back in their own units."""
    for k in range(len(space)):
        tile = Tile(space[k], at)
        unit = section(tile, UNIT)
        for number in (X, MULTIPLIER):
            part = section(tile, number)
            for i in range(len(part)):
                part[i] *= unit[i % LANES]
