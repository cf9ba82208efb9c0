"""Between batches (b, n) and tiles of lanes: the one place where the two layouts meet.

Lane L of all lanes holds part L % parts of sample L // parts; an incomplete last tile repeats its last lane, so that no
lane ever holds rubbish. Each sample is written by one thread only, in a fixed order.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from snapfm.kernels.operations import LANES


@njit(cache=True, nogil=True, parallel=True)
def gather(field, index, first, tiles):
    """tiles[:, first + k] = field[sample, index[part, k]]. Read: field (b, n), index (parts, k); written: tiles."""
    parts = len(index)
    lanes = len(field) * parts
    for number in prange(len(tiles)):
        tile = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        for lane in range(LANES):
            which = min(tile * LANES + lane, lanes - 1)
            sample, part = which // parts, which % parts
            for k in range(index.shape[1]):
                tiles[tile, (first + k) * LANES + lane] = field[sample, index[part, k]]


@njit(cache=True, nogil=True, parallel=True)
def scatter(tiles, first, index, field):
    """field[sample, index[part, k]] = tiles[:, first + k]. Read: tiles, index (parts, k); written: field (b, n)."""
    parts = len(index)
    for number in prange(len(field)):
        sample = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        for part in range(parts):
            which = sample * parts + part
            tile, lane = which // LANES, which % LANES
            for k in range(index.shape[1]):
                field[sample, index[part, k]] = tiles[tile, (first + k) * LANES + lane]


@njit(cache=True, nogil=True, parallel=True)
def scatter_add(tiles, first, index, field):
    """field[sample, index[part, k]] += tiles[:, first + k]. Read: tiles, index (parts, k); written: field (b, n)."""
    parts = len(index)
    for number in prange(len(field)):
        sample = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        for part in range(parts):
            which = sample * parts + part
            tile, lane = which // LANES, which % LANES
            for k in range(index.shape[1]):
                field[sample, index[part, k]] += tiles[tile, (first + k) * LANES + lane]


@njit(cache=True, nogil=True, parallel=True)
def substitute(rows, unknowns, weights, field):
    """field[:, unknowns] −= row / weight. Read: rows (tiles), unknowns, weights; written: field (b, n)."""
    for number in prange(len(field)):
        sample = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        tile, lane = sample // LANES, sample % LANES
        for k in range(len(unknowns)):
            field[sample, unknowns[k]] -= rows[tile, k * LANES + lane] / weights[k]


@njit(cache=True, nogil=True, parallel=True)
def still_shift(indptr, indices, values, index, field, shift):
    """shift = still · field over the eliminated unknowns. Read: still (CSR), index (parts, s), field; written: shift."""
    parts = len(index)
    lanes = len(field) * parts
    for number in prange(len(shift)):
        tile = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        for lane in range(LANES):
            which = min(tile * LANES + lane, lanes - 1)
            sample, part = which // parts, which % parts
            for r in range(len(indptr) - 1):
                total = 0.0
                for p in range(indptr[r], indptr[r + 1]):
                    total += values[p] * field[sample, index[part, indices[p]]]
                shift[tile, r * LANES + lane] = total


@njit(cache=True, nogil=True, parallel=True)
def still_back(indptr, indices, values, index, multiplier, sign, field):
    """field += sign · stillᵀλ over the eliminated unknowns. Read: still (CSR), index, multiplier (tiles); written: field."""
    parts = len(index)
    for number in prange(len(field)):
        sample = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        for part in range(parts):
            which = sample * parts + part
            tile, lane = which // LANES, which % LANES
            for r in range(len(indptr) - 1):
                weight = sign * multiplier[tile, r * LANES + lane]
                for p in range(indptr[r], indptr[r + 1]):
                    field[sample, index[part, indices[p]]] += weight * values[p]
