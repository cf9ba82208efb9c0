"""Fuse small blocks of a tape: operations of one kind that do not need each other become one block.

A law written number by number (a loop over scalars) has one block per operation, and everything that looks through a tape takes
its time per block. Only the order of the cells changes.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Index
from snapfm.compile.lower.tape import Block, Tape, moved_columns

_MANY = 64  # blocks that a law over whole tensors stays below


def fused(tape: Tape, rows: csr_array) -> tuple[Tape, csr_array]:
    """Return the tape and its rows with blocks fused, if it has many of them."""
    if len(tape.blocks) <= _MANY:
        return tape, rows
    groups = _groups(tape)
    place, cell = np.full(tape.cells, -1, np.int64), tape.unknowns + 1
    place[:cell] = np.arange(cell)
    externals = []
    for first, graph, size in tape.externals:
        place[first : first + size] = np.arange(cell, cell + size)
        externals.append((cell, graph, size))
        cell += size
    starts = []
    for group in groups:
        starts.append(cell)
        for block in group:
            place[block.first : block.first + block.size] = np.arange(cell, cell + block.size)
            cell += block.size
    blocks = [_joined(group, place, first) for group, first in zip(groups, starts)]
    over = Tape(tape.unknowns, blocks=blocks, externals=externals)
    over.cells = cell
    moved = moved_columns(rows, place, cell)
    moved.sort_indices()
    return over, moved


def _groups(tape: Tape) -> list[list[Block]]:
    """Sort blocks by their depth, the longest chain of blocks that they need, then by operator."""
    depth = np.zeros(tape.cells, np.int64)
    found: dict[tuple[int, int], list[Block]] = {}
    for block in tape.blocks:
        own = 1 + max(int(depth[operand.indices].max(initial=0)) for operand in block.operands)
        depth[block.first : block.first + block.size] = own
        found.setdefault((own, int(block.op)), []).append(block)
    return [found[key] for key in sorted(found)]


def _joined(group: list[Block], place: Index, first: int) -> Block:
    operands = [_stacked([getattr(block, name) for block in group], place, first) for name in ("a", "b", "c")]
    assert operands[0] is not None
    return Block(group[0].op, first, operands[0], *operands[1:])


def _stacked(parts: list[csr_array | None], place: Index, width: int) -> csr_array | None:
    """Put the rows of operands, which all blocks of one operator have or none has, one after the other."""
    given = [part for part in parts if part is not None]
    if not given:
        return None
    counts = np.concatenate([np.diff(part.indptr) for part in given])
    indices = place[np.concatenate([part.indices for part in given])]
    data = np.concatenate([part.data for part in given])
    matrix = csr_array((data, indices, np.concatenate([[0], np.cumsum(counts)])), shape=(len(counts), width))
    matrix.sort_indices()
    return matrix
