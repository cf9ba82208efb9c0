"""Symbolic elimination: which entries a symmetric matrix gains when it is factorized in a given order.

Reads the lower triangle of a pattern by rows (CSR, int64) and an order; returns the elimination tree, the entries per
column of the factor and their rows. Never reads values. Numpy in, numpy out; imports kernels.compiling only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array

from snapfm.arrays import Index
from snapfm.kernels.compiling import compiled


class Tree(NamedTuple):
    """The elimination tree, -1 above a root, and the entries below the diagonal of each column of the factor."""

    parent: Index
    counts: Index

    @property
    def fill(self) -> int:
        """Entries of the factor, the diagonal included."""
        return int(self.counts.sum()) + len(self.counts)

    @property
    def flops(self) -> int:
        """Multiply-adds of the elimination."""
        return int((self.counts * (self.counts + 1) // 2).sum())


def permuted(indptr: Index, indices: Index, perm: Index) -> tuple[Index, Index, Index]:
    """Lower triangle of the matrix whose row k is row perm[k] of the given one; with the source of every entry."""
    size = len(perm)
    place = np.empty(size, np.int64)
    place[perm] = np.arange(size)
    row, column = place[np.repeat(np.arange(size), np.diff(indptr))], place[indices]
    row, column = np.maximum(row, column), np.minimum(row, column)
    moved = coo_array((np.arange(1, len(indices) + 1), (row, column)), shape=(size, size)).tocsr()
    moved.sort_indices()
    return moved.indptr.astype(np.int64), moved.indices.astype(np.int64), moved.data - 1


def tree(indptr: Index, indices: Index, limit: int = -1) -> Tree | None:
    """Build the elimination tree of a lower triangle; None if the factor has more than `limit` entries (-1: any)."""
    size = len(indptr) - 1
    parent, counts = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    return Tree(parent, counts) if _climb(indptr, indices, limit, parent, counts) else None


def postorder(found: Tree) -> Index:
    """Order children before parents, the child with the longest column last, so that chains become neighbors."""
    post = np.empty(len(found.parent), np.int64)
    _postorder(found.parent, np.argsort(found.counts, kind="stable"), post)
    return post


def columns(indptr: Index, indices: Index, found: Tree) -> tuple[Index, Index]:
    """Rows below the diagonal in each column of the factor, ascending: (pointers, rows)."""
    pointers = np.concatenate([[0], np.cumsum(found.counts)])
    rows = np.empty(pointers[-1], np.int64)
    _columns(indptr, indices, found.parent, pointers, rows)
    return pointers, rows


@compiled(nogil=True)
def _climb(indptr, indices, limit, parent, counts):  # written: parent, counts
    """Row i of the factor is the union of the paths from its entries up the tree to i."""
    mark = np.full(len(parent), -1, np.int64)
    total = len(parent)
    for i in range(len(parent)):
        mark[i] = i
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            while mark[j] != i:
                if parent[j] == -1:
                    parent[j] = i
                counts[j] += 1
                total += 1
                mark[j] = i
                j = parent[j]
        if 0 <= limit < total:
            return False
    return True


@compiled(nogil=True)
def _columns(indptr, indices, parent, pointers, rows):  # written: rows
    mark = np.full(len(parent), -1, np.int64)
    end = pointers[:-1].copy()
    for i in range(len(parent)):
        mark[i] = i
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            while mark[j] != i:
                rows[end[j]] = i
                end[j] += 1
                mark[j] = i
                j = parent[j]


@compiled(nogil=True)
def _postorder(parent, ascending, post):  # written: post
    size = len(parent)
    child, sibling = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
    for k in range(size - 1, -1, -1):  # pushed in front: the longest column ends up last
        j = ascending[k]
        if parent[j] >= 0:
            sibling[j] = child[parent[j]]
            child[parent[j]] = j
    stack = np.empty(size, np.int64)
    count = 0
    for root in range(size):
        if parent[root] >= 0:
            continue
        stack[0] = root
        top = 0
        while top >= 0:
            j = stack[top]
            below = child[j]
            if below >= 0:
                child[j] = sibling[below]
                top += 1
                stack[top] = below
            else:
                post[count] = j
                count += 1
                top -= 1
