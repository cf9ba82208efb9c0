"""Copy and fill sections of a tile's memory, whole or one lane. Imports kernels only."""

from __future__ import annotations

from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.operations import LANES


@compiled(nogil=True, error_model="numpy", forceinline=True)
def copy(source, target):  # written: target
    """Copy a section, not pack by pack: one lane may just have been written alone, and a pack waits for that."""
    for i in range(len(source)):
        target[i] = source[i]


@compiled(nogil=True, error_model="numpy", forceinline=True)
def fill(target, value):  # written: target
    """Fill a section."""
    for i in range(len(target)):
        target[i] = value


@compiled(nogil=True, error_model="numpy", forceinline=True)
def copy_lane(source, target, lane):  # written: target, one lane
    """Copy one lane."""
    for k in range(len(source) // LANES):
        target[k * LANES + lane] = source[k * LANES + lane]


@compiled(nogil=True, error_model="numpy", forceinline=True)
def fill_lane(target, lane, value):  # written: target, one lane
    """Fill one lane."""
    for k in range(len(target) // LANES):
        target[k * LANES + lane] = value


@compiled(nogil=True, error_model="numpy", forceinline=True)
def add_lane(one, other, target, lane):  # written: target, one lane
    """Set one lane to the sum of two sections."""
    for k in range(len(target) // LANES):
        target[k * LANES + lane] = one[k * LANES + lane] + other[k * LANES + lane]
