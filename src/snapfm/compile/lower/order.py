"""Order: the one numbering of cells that everything behind the lowering relies on, and blocks few enough to look through.

A law written number by number (a loop over scalars) has one block per operation, and everything that looks through a tape takes
its time per block: operations of one kind that do not need each other become one block.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, vstack

from snapfm.arrays import Index
from snapfm.compile.lower.tape import ONE, Block, Tape, moved_columns

_MANY = 64  # blocks that a law over whole tensors stays below


def of_params(tape: Tape) -> Index:
    """Return the cells of params of a tape that laws were lowered to."""
    return np.concatenate([np.zeros(0, np.int64), *(first + np.arange(size) for first, _, size in tape.graphs)])


def ordered(tape: Tape, given: Index) -> tuple[Tape, Index]:
    """Put cells in order: the constant, those `given` as params, other cells that no operation makes, as unknowns; operations.

    Returns the new tape and where it has every cell of the old one.
    """
    few = len(tape.blocks) <= _MANY
    groups = [[block] for block in tape.blocks] if few else _groups(tape)
    made = [np.arange(block.first, block.first + block.size) for group in groups for block in group]
    rest = np.ones(tape.cells, bool)
    rest[np.concatenate([[ONE], given, *made])] = False
    unknowns = np.flatnonzero(rest)
    order = np.concatenate([[ONE], given, unknowns, *made])
    place = np.empty(tape.cells, np.int64)
    place[order] = np.arange(tape.cells)
    if few and tape.params == len(given) and np.array_equal(order, np.arange(tape.cells)):
        return tape, place
    blocks = [_joined(group, place) for group in groups]
    graphs = [(int(place[first]), graph, size) for first, graph, size in tape.graphs]
    return Tape(len(unknowns), len(given), blocks, graphs), place


def _groups(tape: Tape) -> list[list[Block]]:
    """Sort blocks by their depth, the longest chain of blocks that they need, then by operator."""
    depth = np.zeros(tape.cells, np.int64)
    found: dict[tuple[int, int], list[Block]] = {}
    for block in tape.blocks:
        own = 1 + max(int(depth[operand.indices].max(initial=0)) for operand in block.operands)
        depth[block.first : block.first + block.size] = own
        found.setdefault((own, int(block.op)), []).append(block)
    return [found[key] for key in sorted(found)]


def _joined(group: list[Block], place: Index) -> Block:
    """Put the elements of blocks of one operator, which all have the same operands, one after the other."""
    first = int(place[group[0].first])

    def stacked(operands: list[csr_array]) -> csr_array:
        moved = [moved_columns(operand, place, first) for operand in operands]
        return moved[0] if len(moved) == 1 else csr_array(vstack(moved, format="csr"))

    columns = [stacked(list(parts)) for parts in zip(*(block.operands for block in group), strict=True)]
    return Block(group[0].op, first, *columns)
