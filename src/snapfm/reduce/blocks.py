"""Blocks: square groups of rows that determine as many unknowns together, once earlier groups are known.

An implicit time step after an initial condition is one block per step: its rows determine the unknowns of the step, given those
before. Found by the Dulmage–Mendelsohn decomposition: a maximum matching of rows and unknowns; what no alternating path
connects to an unmatched unknown is determined; its strongly connected components are the blocks (math.md, "Reduction").
Looks at the pattern only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components, maximum_bipartite_matching

from snapfm.arrays import Index, Mask
from snapfm.compile.lower.tape import Tape
from snapfm.compile.sparsity.pattern import Sets
from snapfm.compile.sparsity.reads import largest
from snapfm.kernels.operators import Op

# Rows this many times longer than the median are matched last: a total that repeats a whole step should be the row left over.
_LONG, _LONG_FLOOR = 4, 16


@dataclass(frozen=True)
class IndependentBlocks:
    """Blocks that earlier steps leave independent of each other: solved at the same time.

    Rows and unknowns are sorted by block, ascending in each; block k is the range starts[k] .. starts[k + 1] of both.
    """

    rows: Index
    unknowns: Index
    starts: Index


def find_steps(reads: Sets, usable: Mask, free: Mask, limit: int) -> tuple[IndependentBlocks, ...]:
    """Find all free unknowns that `usable` rows (equalities) determine in blocks, in an order in which they can be solved.

    Returns nothing where there would be more than `limit` steps.
    """
    steps: list[IndependentBlocks] = []
    usable, free = usable.copy(), free.copy()
    lengths = reads.counts[usable]
    long = reads.counts > max(_LONG_FLOOR, _LONG * float(np.median(lengths)) if len(lengths) else 0.0)
    for now in (usable & ~long, usable) if (usable & long).any() else (usable,):
        rows, unknowns, after = _determined(reads, now & usable, free)
        if len(rows):
            found = _sorted(rows, unknowns, after, limit - len(steps))
            if found is None:
                return ()
            steps += found
            free[unknowns], usable[rows] = False, False
    return tuple(steps)


def _determined(reads: Sets, usable: Mask, free: Mask) -> tuple[Index, Index, csr_array]:
    """Return the determined part: rows, the unknown matched with each, and the graph "must be known before" among them."""
    live = free[reads.indices] & np.repeat(usable, reads.counts)
    nothing = np.zeros(0, np.int64)
    if not live.any():
        return nothing, nothing, csr_array((0, 0))
    rows, row = _numbered(reads.rows()[live], reads.size)
    columns, column = _numbered(reads.indices[live], reads.width)
    del live
    shape = (len(rows), len(columns))
    matched = maximum_bipartite_matching(csr_array((np.ones(len(row), bool), (row, column)), shape=shape), "column")
    open_columns = np.ones(len(columns), bool)
    open_columns[matched[matched >= 0]] = False
    reached = _reached(row, column, matched, open_columns)
    inside = (matched >= 0) & ~reached[matched]
    chosen = np.flatnonzero(inside)
    place = np.full(len(columns), -1, np.int64)
    place[matched[chosen]] = np.arange(len(chosen))
    rank = np.full(len(rows), -1, np.int64)
    rank[chosen] = np.arange(len(chosen))
    mine = inside[row]  # all unknowns that these rows read are determined
    graph = csr_array(
        (np.ones(int(mine.sum()), bool), (place[column[mine]], rank[row[mine]])), shape=(len(chosen), len(chosen))
    )
    return rows[chosen], columns[matched[chosen]], graph


def _numbered(found: Index, width: int) -> tuple[Index, Index]:
    """Return the different numbers below `width` that occur, and the rank of each among them; SciPy's graphs need 32 bits."""
    present = np.zeros(width, bool)
    present[found] = True
    rank: Index = np.cumsum(present, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(present), rank[found]


def _reached(row: Index, column: Index, matched: Index, sources: Mask) -> Mask:
    """Mark the unknowns that alternating paths connect to `sources`: they can be exchanged for one that is not determined."""
    count = len(sources)
    linked = matched[row] >= 0
    begin = np.concatenate([column[linked], np.full(int(sources.sum()), count)])
    end = np.concatenate([matched[row[linked]], np.flatnonzero(sources)])
    graph = csr_array((np.ones(len(begin), bool), (begin, end)), shape=(count + 1, count + 1))
    visited = breadth_first_order(graph, count, return_predecessors=False)
    reached = np.zeros(count + 1, bool)
    reached[visited] = True
    return reached[:count]


def _sorted(rows: Index, unknowns: Index, after: csr_array, limit: int) -> list[IndependentBlocks] | None:
    """Split into strongly connected components and sort them by depth; None for more than `limit` depths."""
    count, label = connected_components(after, connection="strong")
    depth = _depths(after, label, count, limit)
    if depth is None:
        return None
    least = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(least, label, unknowns)
    steps = []
    by_depth = np.argsort(depth[label], kind="stable")
    for mine in np.split(by_depth, np.cumsum(np.bincount(depth[label]))[:-1]):
        block = least[label[mine]]  # blocks in the order of their first unknown
        by_row, by_unknown = np.lexsort((rows[mine], block)), np.lexsort((unknowns[mine], block))
        edges = np.flatnonzero(np.diff(block[by_row])) + 1
        starts = np.concatenate([[0], edges, [len(mine)]]).astype(np.int64)
        steps.append(IndependentBlocks(rows[mine][by_row], unknowns[mine][by_unknown], starts))
    return steps


def _depths(after: csr_array, label: Index, count: int, limit: int) -> Index | None:
    """Return the longest path to each component; None where one is longer than `limit`."""
    begin = label[np.repeat(np.arange(after.shape[0]), np.diff(after.indptr))]
    end = label[after.indices]
    across = begin != end
    graph = csr_array((np.ones(int(across.sum()), np.int64), (begin[across], end[across])), shape=(count, count))
    waiting = np.bincount(graph.indices, minlength=count)
    depth, ready, level = np.zeros(count, np.int64), np.flatnonzero(waiting == 0), 0
    while len(ready):
        if level >= limit:
            return None
        depth[ready] = level
        following = csr_array(graph[ready]).indices
        np.subtract.at(waiting, following, 1)
        following = np.unique(following)
        ready, level = following[waiting[following] == 0], level + 1
    return depth


_MANY = 9  # stands for any degree above two, and for what is no polynomial


def quadratic_rows(tape: Tape, rows: csr_array, free: Mask) -> Mask:
    """Mark the rows (over the tape's cells) that are at most quadratic in the `free` unknowns."""
    degree = np.zeros(tape.cells, np.int64)
    degree[tape.unknown_cells] = free
    for block in tape.blocks:
        found = [largest(operand, degree) for operand in block.operands]
        if block.op == Op.SQUARE:
            own = 2 * found[0]
        elif block.op == Op.MUL:
            own = found[0] + found[1]
        else:
            own = np.where(np.max(found, axis=0) > 0, _MANY, 0)
        degree[block.first : block.first + block.size] = np.minimum(own, _MANY)
    quadratic: Mask = largest(rows, degree) <= 2
    return quadratic
