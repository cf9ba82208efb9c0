"""Change coordinates of a batch (b, n), sample by sample: rotated pairs and aggregates (math.md, "Reduction").

All changes preserve lengths. Each function runs on one thread: callers divide samples among threads. Imports kernels only.
"""

from __future__ import annotations

import math

import numpy as np

from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import WIDTH, add, fma, fnma, full, load_at, store_at
from snapfm.kernels.run_length import add_products

_GOLDEN = 0.6180339887498949  # multiples of it, modulo one: a scatter without symmetry


@compiled(nogil=True)
def rotate(first, second, cos, sin, field):  # written: field
    """Rotate pairs of unknowns by their angles; pass −sin to rotate back."""
    for sample in range(len(field)):
        line = field[sample]
        for k in range(len(first)):
            one, other = line[first[k]], line[second[k]]
            line[first[k]] = cos[k] * one + sin[k] * other
            line[second[k]] = cos[k] * other - sin[k] * one


@compiled(nogil=True, error_model="numpy")
def condense(runs, ptr, first, field):  # written: field, the coordinates of each group
    """y₁ = Σu/√c and y₂ = ‖u − mean‖ of every group; run k holds members of groups runs.row[k] and on."""
    groups = len(ptr) - 1
    mean, rest, square = np.empty(groups), np.empty(groups), np.empty(groups)
    for sample in range(len(field)):
        line = field[sample]
        mean[:], rest[:], square[:] = 0.0, 0.0, 0.0
        add_products(runs, line, mean)
        for g in range(groups):
            mean[g] /= ptr[g + 1] - ptr[g]
        _deviations(runs, line, mean, rest, square)
        for g in range(groups):
            count = ptr[g + 1] - ptr[g]
            left = rest[g] / count  # rounding error of the mean
            line[first + 2 * g] = (mean[g] + left) * math.sqrt(count)
            line[first + 2 * g + 1] = math.sqrt(max(square[g] - rest[g] * left, 0.0))


@compiled(nogil=True, error_model="numpy")
def _deviations(runs, line, mean, rest, square):  # written: rest and square, sums of the deviation and of its square
    for k in range(len(runs.place)):
        place, group, step, length = runs.place[k], runs.row[k], runs.step[k], runs.length[k]
        if step == 0:  # one group
            for i in range(length):
                off = line[place + i] - mean[group]
                rest[group] += off
                square[group] += off * off
            continue
        whole = length - length % WIDTH if step == 1 else 0
        for p in range(whole // WIDTH):
            i = p * WIDTH
            away = fnma(full(1.0), load_at(mean, group + i), load_at(line, place + i))
            store_at(rest, group + i, add(load_at(rest, group + i), away))
            store_at(square, group + i, fma(away, away, load_at(square, group + i)))
        for i in range(whole, length):
            at = group + step * i
            off = line[place + i] - mean[at]
            rest[at] += off
            square[at] += off * off


@compiled(nogil=True, error_model="numpy")
def expand(runs, ptr, members, first, start, field):  # read: start, field's coordinates; written: field, the members
    """u = y₁/√c + y₂ e, with e along start − mean; where that is zero, along a fixed scatter."""
    groups = len(ptr) - 1
    middle, mean, stretch = np.empty(groups), np.empty(groups), np.empty(groups)
    for sample in range(len(field)):
        begin, line = start[sample], field[sample]
        for g in range(groups):
            root = math.sqrt(ptr[g + 1] - ptr[g])
            middle[g], mean[g] = line[first + 2 * g] / root, begin[first + 2 * g] / root
            size = begin[first + 2 * g + 1]
            stretch[g] = line[first + 2 * g + 1] / size if size > 0.0 else 0.0
        for k in range(len(runs.place)):
            place, group, step, length = runs.place[k], runs.row[k], runs.step[k], runs.length[k]
            whole = length - length % WIDTH if step == 1 else 0
            for p in range(whole // WIDTH):
                i = p * WIDTH
                away = fnma(full(1.0), load_at(mean, group + i), load_at(begin, place + i))
                store_at(line, place + i, fma(load_at(stretch, group + i), away, load_at(middle, group + i)))
            for i in range(whole, length):
                at = group + step * i
                line[place + i] = middle[at] + stretch[at] * (begin[place + i] - mean[at])
        for g in range(groups):
            if not begin[first + 2 * g + 1] > 0.0:
                _scatter(members, ptr[g], ptr[g + 1] - ptr[g], middle[g], line[first + 2 * g + 1], line)


@compiled(nogil=True, error_model="numpy")
def _scatter(members, begin, count, middle, length, line):  # written: line, the members of the group
    """Put members around the middle at a given length of their deviation, without symmetry."""
    total, square = 0.0, 0.0
    for i in range(count):
        total += _point(i)
    for i in range(count):
        square += (_point(i) - total / count) ** 2
    for i in range(count):
        line[members[begin + i]] = middle + length / math.sqrt(square) * (_point(i) - total / count)


@compiled(nogil=True, error_model="numpy")
def condense_linear(
    ptr, members, first, field, g
):  # read: field, with its coordinates; written: g, those of each group
    """Take the components of g along the two directions of every group: all alike, and along the field minus its mean."""
    for sample in range(len(g)):
        line, given = field[sample], g[sample]
        for k in range(len(ptr) - 1):
            root = math.sqrt(ptr[k + 1] - ptr[k])
            mean, size = line[first + 2 * k] / root, line[first + 2 * k + 1]
            total, along = 0.0, 0.0
            for p in range(ptr[k], ptr[k + 1]):
                total += given[members[p]]
                along += given[members[p]] * (line[members[p]] - mean)
            given[first + 2 * k] = total / root
            given[first + 2 * k + 1] = along / size if size > 0.0 else 0.0


@compiled(nogil=True, error_model="numpy")
def expand_linear(ptr, members, first, field, curvature, g, w):  # read: curvature (b, groups); written: w, the members
    """w = w₁/√c + w₂ e + what g has across both, divided by the curvature of its group."""
    for sample in range(len(w)):
        line, given, out = field[sample], g[sample], w[sample]
        for k in range(len(ptr) - 1):
            root, scale = math.sqrt(ptr[k + 1] - ptr[k]), 1.0 / curvature[sample, k]
            mean, size = line[first + 2 * k] / root, line[first + 2 * k + 1]
            one = (out[first + 2 * k] - scale * given[first + 2 * k]) / root
            two = (out[first + 2 * k + 1] - scale * given[first + 2 * k + 1]) / size if size > 0.0 else 0.0
            for p in range(ptr[k], ptr[k + 1]):
                out[members[p]] = one + two * (line[members[p]] - mean) + scale * given[members[p]]


@compiled(nogil=True)
def _point(i):
    return (_GOLDEN * (i + 1)) % 1.0


@compiled(nogil=True, error_model="numpy", fastmath={"reassoc"})
def distances(one, other, out):  # read: one, other (b, n); written: out (b,)
    """Compute the Euclidean distance of two batches, sample by sample."""
    for sample in range(len(one)):
        total = 0.0
        for j in range(one.shape[1]):
            total += (one[sample, j] - other[sample, j]) ** 2
        out[sample] = np.sqrt(total)


@compiled(nogil=True, error_model="numpy")
def differences(which, one, other, out):  # read: one, other (b, n); written: out (b, n), at `which`
    """out = one − other, for some unknowns."""
    for sample in range(len(one)):
        for j in which:
            out[sample, j] = one[sample, j] - other[sample, j]


@compiled(nogil=True, error_model="numpy")
def largest(which, field, out):  # read: field (b, n); written: out (b,)
    """Compute the largest |u| among some unknowns; NaN if any is."""
    for sample in range(len(field)):
        worst = 0.0
        for j in which:
            size = abs(field[sample, j])
            if not size <= worst:
                worst = size
                if worst != worst:
                    break
        out[sample] = worst
