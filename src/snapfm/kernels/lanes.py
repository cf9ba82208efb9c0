"""Between batches (b, n) and tiles of lanes: the one place where the two layouts meet.

Lane L of all lanes holds part L % parts of sample L // parts; an incomplete last tile repeats its last lane, so that no
lane ever holds rubbish. One thread each: callers share samples out among threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from snapfm.kernels.operations import LANES


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def scatter(tiles, first, index, field):
    """field[sample, index[part, k]] = tiles[:, first + k]. Read: tiles, index (parts, k); written: field (b, n)."""
    parts = len(index)
    for sample in range(len(field)):
        for part in range(parts):
            which = sample * parts + part
            tile, lane = which // LANES, which % LANES
            for k in range(index.shape[1]):
                field[sample, index[part, k]] = tiles[tile, (first + k) * LANES + lane]


@njit(cache=True, nogil=True)
def scatter_add(tiles, first, index, field):
    """field[sample, index[part, k]] += tiles[:, first + k]. Read: tiles, index (parts, k); written: field (b, n)."""
    parts = len(index)
    for sample in range(len(field)):
        for part in range(parts):
            which = sample * parts + part
            tile, lane = which // LANES, which % LANES
            for k in range(index.shape[1]):
                field[sample, index[part, k]] += tiles[tile, (first + k) * LANES + lane]


@njit(cache=True, nogil=True)
def substitute(rows, unknowns, weights, field):
    """field[:, unknowns] −= row / weight. Read: rows (tiles), unknowns, weights; written: field (b, n)."""
    for sample in range(len(field)):
        tile, lane = sample // LANES, sample % LANES
        for k in range(len(unknowns)):
            field[sample, unknowns[k]] -= rows[tile, k * LANES + lane] / weights[k]


@njit(cache=True, nogil=True)
def still_shift(indptr, indices, values, index, field, first, tiles):
    """tiles[:, first + r] = still · field over the eliminated unknowns. Read: still (CSR), index (parts, s), field."""
    parts = len(index)
    lanes = len(field) * parts
    for tile in range(len(tiles)):
        for lane in range(LANES):
            which = min(tile * LANES + lane, lanes - 1)
            line, place = field[which // parts], index[which % parts]
            for r in range(len(indptr) - 1):
                total = 0.0
                for p in range(indptr[r], indptr[r + 1]):
                    total += values[p] * line[place[indices[p]]]
                tiles[tile, (first + r) * LANES + lane] = total


@njit(cache=True, nogil=True)
def still_back(indptr, indices, values, index, tiles, first, rows, sign, field):
    """field += sign · stillᵀλ over the eliminated unknowns, λ = tiles[:, first : first + rows]. Read: stillᵀ, index."""
    parts = len(index)
    weight = np.empty(rows)
    for sample in range(len(field)):
        line = field[sample]
        for part in range(parts):
            which, place = sample * parts + part, index[part]
            tile, lane = which // LANES, which % LANES
            for r in range(rows):
                weight[r] = sign * tiles[tile, (first + r) * LANES + lane]
            for j in range(len(indptr) - 1):
                total = 0.0
                for p in range(indptr[j], indptr[j + 1]):
                    total += values[p] * weight[indices[p]]
                line[place[j]] += total
