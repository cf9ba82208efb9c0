"""LU factorization of eight square matrices on one pattern at once, without pivoting: A = L (D + U).

The caller matches rows and columns so that no diagonal entry is a structural zero; whether the pivots are large enough shows in
what the factors achieve, and the caller has another factorization for where they do not. L by columns and U by rows have the
same symmetric pattern. A factor is one flat array of packs: 1 / D, then L, then U. Imports kernels only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array

from snapfm.arrays import Index
from snapfm.kernels.factor.ordering import best
from snapfm.kernels.factor.symbolic import columns, permuted, tree
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import div, fnma, full, load, mul, store
from snapfm.kernels.operations import LANES


class Elimination(NamedTuple):
    """The symbolic factorization of a pattern. Place k eliminates unknown column[k] with row row[k]."""

    row: Index
    column: Index
    target: Index  # where in the factor each entry of the pattern goes
    pointers: Index  # below-diagonal places of each column of L
    places: Index
    back_pointers: Index  # earlier columns that reach each place, and where in `places` they do
    back_column: Index
    back_at: Index

    @property
    def packs(self) -> int:
        """Size of a factor."""
        return len(self.row) + 2 * len(self.places)

    @property
    def flops(self) -> int:
        """Multiply-adds of the elimination."""
        counts = np.diff(self.pointers)
        return int((counts * (counts + 1)).sum())


class Planned(NamedTuple):
    """What a square pattern costs in the best order found: entries of both factors and multiply-adds; how, if that is few."""

    fill: int
    flops: int
    elimination: Elimination | None


def eliminate(row: Index, column: Index, matched: Index, limit: float = np.inf) -> Planned:
    """Choose an order for a square pattern (coordinates of its entries); row matched[c] has an entry in column c.

    The factors are written out if they take at most `limit` multiply-adds.
    """
    size = len(matched)
    partner = np.empty(size, np.int64)
    partner[matched] = np.arange(size)
    one, other = partner[row], column  # rows under the numbers of their columns
    below = np.maximum(one, other), np.minimum(one, other)
    each = np.arange(size)
    lower = coo_array(
        (np.ones(len(row) + size), (np.concatenate([below[0], each]), np.concatenate([below[1], each]))),
        shape=(size, size),
    ).tocsr()
    lower.sort_indices()
    indptr, indices = lower.indptr.astype(np.int64), lower.indices.astype(np.int64)
    order = best(indptr, indices)
    perm, fill, flops = order.perm, 2 * order.fill - size, 2 * order.flops
    if flops > limit:
        return Planned(fill, flops, None)
    moved = permuted(indptr, indices, perm)
    found = tree(*moved[:2])
    pointers, places = columns(*moved[:2], found)
    label = np.repeat(each, np.diff(pointers))
    by_place = np.argsort(places, kind="stable")
    back = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=size))]).astype(np.int64)
    place = np.empty(size, np.int64)
    place[perm] = each
    i, j = place[one], place[other]
    keys = label * size + places  # ascending
    inside = size + np.searchsorted(keys, np.minimum(i, j) * size + np.maximum(i, j))
    target = np.where(i == j, i, np.where(i > j, inside, inside + len(places)))
    return Planned(
        fill, flops,
        Elimination(matched[perm], perm, target, pointers, places, back, label[by_place], by_place.astype(np.int64)),
    )  # fmt: skip


@compiled(nogil=True, error_model="numpy")
def factorize(plan, entries, factor, work):
    """Factorize one tile. Read: entries (packs of the pattern); written: factor, work (two packs per row)."""
    size, count = len(plan.row), len(plan.places)
    lower, upper = size, size + count
    for e in range(size + 2 * count):
        store(factor, e, full(0.0))
    for e in range(len(plan.target)):
        store(factor, plan.target[e], load(entries, e))
    for k in range(size):
        first, last = plan.pointers[k], plan.pointers[k + 1]
        for p in range(first, last):
            store(work, plan.places[p], load(factor, lower + p))
            store(work, size + plan.places[p], load(factor, upper + p))
        pivot = load(factor, k)
        for b in range(plan.back_pointers[k], plan.back_pointers[k + 1]):
            at, end = plan.back_at[b], plan.pointers[plan.back_column[b] + 1]
            left, right = load(factor, lower + at), load(factor, upper + at)
            pivot = fnma(left, right, pivot)
            for p in range(at + 1, end):
                i = plan.places[p]
                store(work, i, fnma(load(factor, lower + p), right, load(work, i)))
                store(work, size + i, fnma(left, load(factor, upper + p), load(work, size + i)))
        inverse = div(full(1.0), pivot)
        store(factor, k, inverse)
        for p in range(first, last):
            store(factor, lower + p, mul(load(work, plan.places[p]), inverse))
            store(factor, upper + p, load(work, size + plan.places[p]))


@compiled(nogil=True, error_model="numpy")
def solve(plan, factor, x):
    """Solve A x = b, in the order of elimination: x[k] is row plan.row[k] of b, then unknown plan.column[k]. Written: x."""
    size, count = len(plan.row), len(plan.places)
    lower, upper = size, size + count
    for k in range(size):
        here = load(x, k)
        for p in range(plan.pointers[k], plan.pointers[k + 1]):
            i = plan.places[p]
            store(x, i, fnma(load(factor, lower + p), here, load(x, i)))
    for k in range(size - 1, -1, -1):
        total = load(x, k)
        for p in range(plan.pointers[k], plan.pointers[k + 1]):
            total = fnma(load(factor, upper + p), load(x, plan.places[p]), total)
        store(x, k, mul(total, load(factor, k)))


@compiled(nogil=True, error_model="numpy")
def solve_transposed(plan, factor, x):
    """Solve Aᵀ x = b, in the order of elimination: x[k] is unknown plan.column[k] of b, then row plan.row[k]. Written: x."""
    size, count = len(plan.row), len(plan.places)
    lower, upper = size, size + count
    for k in range(size):
        here = mul(load(x, k), load(factor, k))
        for p in range(plan.pointers[k], plan.pointers[k + 1]):
            i = plan.places[p]
            store(x, i, fnma(load(factor, upper + p), here, load(x, i)))
    for k in range(size - 1, -1, -1):
        total = mul(load(x, k), load(factor, k))
        for p in range(plan.pointers[k], plan.pointers[k + 1]):
            total = fnma(load(factor, lower + p), load(x, plan.places[p]), total)
        store(x, k, total)


@compiled(nogil=True)
def blend(which, source, target):
    """Copy the lanes that `which` marks. Read: which (LANES,), source; written: target."""
    for k in range(len(source) // LANES):
        for lane in range(LANES):
            if which[lane]:
                target[k * LANES + lane] = source[k * LANES + lane]
