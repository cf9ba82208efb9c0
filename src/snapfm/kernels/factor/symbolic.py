"""Symbolic elimination: which entries a symmetric matrix gains when it is factorized in a given order.

Reads the lower triangle of a pattern by rows (CSR, int64) and an order; returns the elimination tree, the entries per
column of the factor and their rows. Never reads values. Numpy in, numpy out; imports kernels.numba.compiling only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array

from snapfm.arrays import Index
from snapfm.kernels.numba.compiling import compiled


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
    moved = coo_array((np.arange(1, len(indices) + 1), places(indptr, indices, perm)), shape=2 * (len(perm),)).tocsr()
    moved.sort_indices()
    return moved.indptr.astype(np.int64), moved.indices.astype(np.int64), moved.data - 1


def places(indptr: Index, indices: Index, perm: Index) -> tuple[Index, Index]:
    """Return the places in the order of the row (the later) and of the column of every entry."""
    place = np.empty(len(perm), np.int64)
    place[perm] = np.arange(len(perm))
    row, column = place[np.repeat(np.arange(len(perm)), np.diff(indptr))], place[indices]
    return np.maximum(row, column), np.minimum(row, column)


def tree(indptr: Index, indices: Index) -> Tree:
    """Build the elimination tree of a lower triangle.

    Takes time in proportion to the entries of the matrix, not of the factor.
    """
    size = len(indptr) - 1
    parent, counts = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    _parents(indptr, indices, parent)
    post = np.empty(size, np.int64)
    _postorder(parent, np.arange(size), post)
    by_column = csr_array((np.ones(len(indices), np.int8), indices, indptr), shape=(size, size)).tocsc()
    _counts(by_column.indptr.astype(np.int64), by_column.indices.astype(np.int64), parent, post, counts)
    return Tree(parent, counts)


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
def _parents(indptr, indices, parent):  # written: parent
    """Liu's algorithm: climb from each entry of a row to the root so far, and shorten the path behind."""
    ancestor = np.full(len(parent), -1, np.int64)
    for i in range(len(parent)):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            while j != -1 and j < i:
                above = ancestor[j]
                ancestor[j] = i
                if above == -1:
                    parent[j] = i
                j = above


@compiled(nogil=True)
def _counts(column_ptr, column_rows, parent, post, counts):  # written: counts
    """Entries below the diagonal of each column, by Gilbert, Ng and Peyton: count the leaves of every row's subtree.

    Row i of the factor is a subtree. Column j counts the rows whose subtree has a leaf in the subtree of j, less those counted
    twice, which meet at the lowest common ancestor of two leaves that follow each other in the postorder.
    """
    size = len(parent)
    first, ancestor = np.full(size, -1, np.int64), np.arange(size)
    latest, leaf = np.full(size, -1, np.int64), np.full(size, -1, np.int64)
    for k in range(size):
        j = post[k]
        counts[j] = 1 if first[j] == -1 else 0
        while j != -1 and first[j] == -1:
            first[j] = k
            j = parent[j]
    for k in range(size):
        j = post[k]
        if parent[j] != -1:
            counts[parent[j]] -= 1
        for p in range(column_ptr[j], column_ptr[j + 1]):
            i = column_rows[p]
            if i <= j or first[j] <= latest[i]:
                continue
            latest[i] = first[j]
            before = leaf[i]
            leaf[i] = j
            counts[j] += 1
            if before != -1:
                root = before
                while root != ancestor[root]:
                    root = ancestor[root]
                while before != root:
                    above = ancestor[before]
                    ancestor[before] = root
                    before = above
                counts[root] -= 1
        if parent[j] != -1:
            ancestor[j] = parent[j]
    for j in range(size):
        if parent[j] != -1:
            counts[parent[j]] += counts[j]
    for j in range(size):
        counts[j] -= 1


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
