"""Changes of coordinates of a batch (b, n), sample by sample: turned pairs and groups of alike unknowns (math.md, "Reduction").

All lengths are kept. One thread each: callers share samples out among threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_GOLDEN = 0.6180339887498949  # multiples of it, modulo one: a scatter without symmetry


@njit(cache=True, nogil=True)
def turn(first, second, cos, sin, field):  # written: field
    """Turn pairs of unknowns by their angles; give −sin to turn back."""
    for sample in range(len(field)):
        for k in range(len(first)):
            one, other = field[sample, first[k]], field[sample, second[k]]
            field[sample, first[k]] = cos[k] * one + sin[k] * other
            field[sample, second[k]] = cos[k] * other - sin[k] * one


@njit(cache=True, nogil=True)
def condense(ptr, members, first, field):  # written: field, the coordinates of each group
    """y₁ = Σu/√c and y₂ = ‖u − mean‖ of every group."""
    for sample in range(len(field)):
        for k in range(len(ptr) - 1):
            mean, size = _shape(field[sample], members[ptr[k] : ptr[k + 1]])
            field[sample, first + 2 * k] = mean * np.sqrt(ptr[k + 1] - ptr[k])
            field[sample, first + 2 * k + 1] = size


@njit(cache=True, nogil=True)
def expand(ptr, members, first, start, field):  # read: start, field's coordinates; written: field, the members
    """u = y₁/√c + y₂ e, with e along start − mean; where that is nothing, along a fixed scatter."""
    for sample in range(len(field)):
        for k in range(len(ptr) - 1):
            group, root = members[ptr[k] : ptr[k + 1]], np.sqrt(ptr[k + 1] - ptr[k])
            middle, length = field[sample, first + 2 * k] / root, field[sample, first + 2 * k + 1]
            mean, size = start[sample, first + 2 * k] / root, start[sample, first + 2 * k + 1]
            if size > 0.0:
                stretch = length / size
                for j in group:
                    field[sample, j] = middle + stretch * (start[sample, j] - mean)
            else:
                mean, size = _scatter(len(group))
                for i in range(len(group)):
                    field[sample, group[i]] = middle + length / size * (_point(i) - mean)


@njit(cache=True, nogil=True)
def distances(one, other, out):  # read: one, other (b, n); written: out (b,)
    """Measure how far apart two batches are, sample by sample."""
    for sample in range(len(one)):
        total = 0.0
        for j in range(one.shape[1]):
            total += (one[sample, j] - other[sample, j]) ** 2
        out[sample] = np.sqrt(total)


@njit(cache=True, nogil=True)
def _shape(line, group):
    """Mean and length of the deviation; the second pass takes out what rounding left in the mean."""
    total = 0.0
    for j in group:
        total += line[j]
    mean = total / len(group)
    rest, square = 0.0, 0.0
    for j in group:
        away = line[j] - mean
        rest += away
        square += away * away
    left = rest / len(group)
    return mean + left, np.sqrt(max(square - rest * left, 0.0))


@njit(cache=True, nogil=True)
def _point(i):
    return (_GOLDEN * (i + 1)) % 1.0


@njit(cache=True, nogil=True)
def _scatter(count):
    total = 0.0
    for i in range(count):
        total += _point(i)
    mean = total / count
    square = 0.0
    for i in range(count):
        square += (_point(i) - mean) ** 2
    return mean, np.sqrt(square)
