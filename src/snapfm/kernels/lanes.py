"""Between batches (b, n) and tiles of lanes: the one place where the two layouts meet.

Lane L of all lanes holds part L % parts of sample L // parts; an incomplete last tile repeats its last lane, so that no
lane ever holds rubbish. One thread each: callers share samples out among threads.
"""

from __future__ import annotations

from snapfm.kernels.compiling import compiled
from snapfm.kernels.operations import LANES


@compiled(nogil=True)
def gather(field, index, first, tiles):
    """tiles[:, first + k] = field[sample, index[part, k]]. Read: field (b, n), index (parts, k); written: tiles."""
    parts = len(index)
    lanes = len(field) * parts
    for tile in range(len(tiles)):
        for lane in range(LANES):
            which = min(tile * LANES + lane, lanes - 1)
            sample, part = which // parts, which % parts
            for k in range(index.shape[1]):
                tiles[tile, (first + k) * LANES + lane] = field[sample, index[part, k]]


@compiled(nogil=True)
def scatter(tiles, first, index, field):
    """field[sample, index[part, k]] = tiles[:, first + k]. Read: tiles, index (parts, k); written: field (b, n)."""
    parts = len(index)
    for sample in range(len(field)):
        for part in range(parts):
            which = sample * parts + part
            tile, lane = which // LANES, which % LANES
            for k in range(index.shape[1]):
                field[sample, index[part, k]] = tiles[tile, (first + k) * LANES + lane]


@compiled(nogil=True)
def fill(inputs, outside, field, externals, first, tiles):
    """Write the constant, the unknowns and the params of a program's cells, which begin at `first`. Written: tiles."""
    tiles[:, first * LANES : (first + 1) * LANES] = 1.0  # cell 0 is the constant
    gather(field, inputs, first + 1, tiles)
    gather(externals, outside, first + 1 + inputs.shape[1], tiles)
