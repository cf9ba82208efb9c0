"""RunLengthMatrix: a fixed sparse matrix whose neighboring entries of one value are joined: long sums become vector loops.

Laws sum over slices of a field. Along the last axis, neighbors in memory belong to neighboring rows (or to the same row)
with one weight. Entry by entry, through two index arrays, the same products took ten times as long. A matrix without
such order becomes runs of one entry, at the cost of plain indexing. Imports kernels only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from snapfm.arrays import Index, Values
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import WIDTH, fma, full, load_at, store_at
from snapfm.kernels.operations import LANES


class RunLengthMatrix(NamedTuple):
    """Run k: entries (row[k] + step[k]·i, place[k] + i) for i < length[k], all of value[k]."""

    place: Index
    row: Index
    length: Index
    step: Index
    value: Values


def join(place: Index, row: Index, value: Values) -> RunLengthMatrix:
    """Join entries, given in any order, each once."""
    order = np.lexsort((row, place))
    place, row, value = place[order], row[order], value[order]
    # An unknown of several rows would cut every run at each of its entries: take the first entries of all, then the second …
    first = np.flatnonzero(np.diff(place, prepend=-1))
    rank = np.arange(len(place)) - np.repeat(first, np.diff(first, append=len(place)))
    order = np.lexsort((place, rank))
    return RunLengthMatrix(*_join(place[order], row[order], value[order]))


@compiled()
def _join(place, row, value):
    count = len(place)
    start, length, step = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    runs, i = 0, 0
    while i < count:
        stride = row[i + 1] - row[i] if i + 1 < count else 1
        j = i + 1
        while j < count and place[j] == place[j - 1] + 1 and row[j] == row[j - 1] + stride and value[j] == value[i]:
            j += 1
        start[runs], length[runs], step[runs] = i, j - i, stride
        runs += 1
        i = j
    start = start[:runs]
    return place[start], row[start], length[:runs].copy(), step[:runs].copy(), value[start]


@compiled(nogil=True, error_model="numpy")
def add_products(runs, line, totals):  # read: line (one sample); written: totals
    """totals += matrix · line."""
    for k in range(len(runs.place)):
        place, row, step = runs.place[k], runs.row[k], runs.step[k]
        value, length = runs.value[k], runs.length[k]
        if step == 1:
            _add_scaled(value, line, place, length, totals, row)
        elif step == 0:
            totals[row] += value * _sum(line, place, length)
        else:
            for i in range(length):
                totals[row + step * i] += value * line[place + i]


@compiled(nogil=True, error_model="numpy")
def add_transposed(runs, totals, line):  # read: totals; written: line (one sample)
    """line += matrixᵀ · totals."""
    for k in range(len(runs.place)):
        place, row, step = runs.place[k], runs.row[k], runs.step[k]
        value, length = runs.value[k], runs.length[k]
        if step == 1:
            _add_scaled(value, totals, row, length, line, place)
        else:
            for i in range(length):
                line[place + i] += value * totals[row + step * i]


@compiled(nogil=True, error_model="numpy")
def _add_scaled(value, source, begin, length, out, first):  # written: out
    """out[first + i] += value · source[begin + i]."""
    scale, whole = full(value), length - length % WIDTH
    for k in range(whole // WIDTH):
        i = k * WIDTH
        store_at(out, first + i, fma(scale, load_at(source, begin + i), load_at(out, first + i)))
    for i in range(whole, length):
        out[first + i] += value * source[begin + i]


@compiled(nogil=True, error_model="numpy")
def _sum(line, place, length):
    """Sum neighbors in four streams: one would wait for every addition."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = length - length % 4
    for k in range(length // 4):
        i = place + 4 * k
        a += line[i]
        b += line[i + 1]
        c += line[i + 2]
        d += line[i + 3]
    for i in range(place + whole, place + length):
        a += line[i]
    return (a + b) + (c + d)


@compiled(nogil=True, error_model="numpy")
def products_to_tiles(runs, parts, rows, field, first, tiles):
    """tiles[:, first + r] = matrix · field; row r of part k is row k·rows + r of the matrix. Read: field; written: tiles."""
    totals = np.empty(parts * rows)
    lanes = len(field) * parts
    for sample in range(len(field)):
        totals[:] = 0.0
        add_products(runs, field[sample], totals)
        for part in range(parts):
            which = sample * parts + part
            _into_lane(totals, part * rows, rows, tiles[which // LANES], first, which % LANES)
    for which in range(lanes, len(tiles) * LANES):  # an incomplete last tile repeats its last lane
        _into_lane(totals, (parts - 1) * rows, rows, tiles[which // LANES], first, which % LANES)


@compiled(nogil=True, error_model="numpy")
def _into_lane(totals, start, rows, tile, first, lane):  # written: tile
    for r in range(rows):
        tile[(first + r) * LANES + lane] = totals[start + r]


@compiled(nogil=True, error_model="numpy")
def tiles_to_field(runs, parts, rows, tiles, first, sign, field):
    """field += sign · matrixᵀλ, with λ = tiles[:, first : first + rows]. Read: tiles; written: field (b, n)."""
    totals = np.empty(parts * rows)
    for sample in range(len(field)):
        for part in range(parts):
            which = sample * parts + part
            tile, lane = tiles[which // LANES], which % LANES
            for r in range(rows):
                totals[part * rows + r] = sign * tile[(first + r) * LANES + lane]
        add_transposed(runs, totals, field[sample])


@compiled(nogil=True, error_model="numpy")
def products(runs, field, out):  # read: field (b, n); written: out (b, rows)
    """out += matrix · field."""
    for sample in range(len(field)):
        add_products(runs, field[sample], out[sample])


@compiled(nogil=True, error_model="numpy")
def add_batch(runs, weight, field):  # read: weight (b, rows); written: field (b, n)
    """field += matrixᵀ · weight."""
    for sample in range(len(field)):
        add_transposed(runs, weight[sample], field[sample])
