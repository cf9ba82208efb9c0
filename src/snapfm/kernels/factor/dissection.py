"""Nested dissection: an order that splits a graph by small separators, again and again, and puts each separator last.

A separator is one level of a breadth-first search from the rim of the graph, thinned to what touches both sides. On grids in
three dimensions (space and time count alike) it needs a fraction of the work of minimum degree. Reads both triangles of a
pattern by rows. Numpy in, numpy out; imports kernels.numba.compiling only.
"""

from __future__ import annotations

import numpy as np

from snapfm.arrays import Index
from snapfm.kernels.numba.compiling import compiled

_LEAF = 48  # unknowns that are not split further: their factor is dense enough by then
_SIDE = 0.3  # least share of a side: a thinner separator is worth an uneven cut, up to here
_LARGEST = 0.95  # share of a side beyond which splitting on would take forever: such a graph has no separators


def dissected(indptr: Index, indices: Index) -> Index:
    """Return the order: position k holds the unknown that is eliminated k-th."""
    order = np.arange(len(indptr) - 1)
    _dissect(indptr, indices, order)
    return order


@compiled(nogil=True)
def _search(indptr, indices, part, mine, start, level, queue, at):  # written: level, queue from `at` on
    """Breadth first through one part; returns where the queue ends. Levels begin at 1."""
    queue[at] = start
    level[start] = 1
    count = at + 1
    while at < count:
        v = queue[at]
        at += 1
        for p in range(indptr[v], indptr[v + 1]):
            w = indices[p]
            if part[w] == mine and level[w] == 0:
                level[w] = level[v] + 1
                queue[count] = w
                count += 1
    return count


@compiled(nogil=True)
def _dissect(indptr, indices, order):  # written: order
    size = len(order)
    part = np.zeros(size, np.int64)  # which range of `order` an unknown is in; ranges are named by a running number
    level, queue = np.zeros(size, np.int64), np.empty(size, np.int64)
    kept = np.empty(size, np.int64)
    begins, ends, names = np.empty(size + 1, np.int64), np.empty(size + 1, np.int64), np.empty(size + 1, np.int64)
    begins[0], ends[0], names[0] = 0, size, 0
    top, named = 1, 1
    while top > 0:
        top -= 1
        begin, end, mine = begins[top], ends[top], names[top]
        total = end - begin
        if total <= _LEAF:
            continue
        # From anywhere to the rim, and from there again: the levels of the second search are narrow.
        count = _search(indptr, indices, part, mine, order[begin], level, queue, 0)
        rim = queue[count - 1]
        for k in range(count):
            level[queue[k]] = 0
        count = _search(indptr, indices, part, mine, rim, level, queue, 0)
        last = level[queue[count - 1]]
        if count < total:  # not connected: all its components, in one pass
            done = 0
            for k in range(begin - 1, end):
                if k >= begin and level[order[k]] != 0:
                    continue
                until = count  # the first component has been searched already
                if k >= begin:
                    until = _search(indptr, indices, part, mine, order[k], level, queue, done)
                if until - done > _LEAF:
                    for q in range(done, until):
                        part[queue[q]] = named
                    begins[top], ends[top], names[top] = begin + done, begin + until, named
                    named += 1
                    top += 1
                done = until
            for k in range(total):
                order[begin + k] = queue[k]
                level[queue[k]] = 0
            continue
        # The thinnest level in the middle; the queue is sorted by level.
        best, cut, start = -1, 0, 0
        for k in range(1, count + 1):
            if k == count or level[queue[k]] != level[queue[start]]:
                width = k - start
                inside = start >= _SIDE * total and total - k >= _SIDE * total
                if inside and (best == -1 or width < best):
                    best, cut = width, level[queue[start]]
                start = k
        if best == -1:  # no level leaves both sides enough: the one that holds the middle
            cut = level[queue[count // 2]]
        if last < 3 or cut <= 1 or cut >= last:  # nearly everything touches everything
            for k in range(count):
                level[queue[k]] = 0
            continue
        low, high, apart = 0, 0, 0
        for k in range(count):
            v = queue[k]
            if level[v] < cut:
                order[begin + low] = v
                low += 1
            elif level[v] == cut:
                touches = False
                for p in range(indptr[v], indptr[v + 1]):
                    w = indices[p]
                    touches = touches or (part[w] == mine and level[w] == cut + 1)
                if touches:
                    kept[apart] = v
                    apart += 1
                else:
                    order[begin + low] = v
                    low += 1
        for k in range(count):
            v = queue[k]
            if level[v] > cut:
                order[begin + low + high] = v
                high += 1
        for k in range(apart):
            order[end - apart + k] = kept[k]
            part[kept[k]] = -1
        for k in range(count):
            level[queue[k]] = 0
        for k in range(begin, begin + low):
            part[order[k]] = named
        for k in range(begin + low, begin + low + high):
            part[order[k]] = named + 1
        if max(low, high) <= _LARGEST * total:
            begins[top], ends[top], names[top] = begin, begin + low, named
            begins[top + 1], ends[top + 1], names[top + 1] = begin + low, begin + low + high, named + 1
            top += 2
        named += 2
