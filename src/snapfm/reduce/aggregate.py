"""Aggregates: unknowns that enter every row in the same way, up to second order, are replaced by two.

Where rows read a group of c unknowns only through Σu and Σu² with the same weights (total vorticity and enstrophy of a
slice, its energy, its mass and reaction), the nearest field keeps the shape of û inside the group: u = y₁/√c + y₂ e, with
e the unit vector along û minus its mean. Both coordinates are orthonormal, so "nearest" means the same, Σu = √c y₁ and
Σu² = y₁² + y₂² (math.md, "Reduction"). A slice of 256 unknowns becomes two. Structure only; e is found per call.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array, vstack

from snapfm.arrays import Index, Mask, Values
from snapfm.compile.lower.tape import ONE, Block, Tape, moved_columns, units, without
from snapfm.kernels.operators import Op

_FEWEST = 3  # members of an aggregate that pays: two unknowns stand for it


@dataclass(frozen=True)
class Aggregates:
    """Aggregate k has members[ptr[k] : ptr[k + 1]]; its coordinates y₁, y₂ are unknowns first + 2k and first + 2k + 1."""

    ptr: Index
    members: Index
    first: int
    curvature: csr_array  # (rows, aggregates) coefficient of Σu² in each row

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @classmethod
    def none(cls, unknowns: int) -> Aggregates:
        """Aggregate nothing."""
        return cls(np.zeros(1, np.int64), np.zeros(0, np.int64), unknowns, csr_array((0, 0)))


@dataclass(frozen=True)
class _Quadratic:
    """How each row depends on each unknown, where that is at most quadratic: lin·u + quad·u² + rest over the rows."""

    lin: csc_array
    quad: csc_array
    constant: Values  # per cell: its value at u = 0
    owner: Index  # per cell: the unknown whose quadratic it is, -1 for none


def find_aggregates(tape: Tape, rows: csr_array, open_rows: Index, usable: Mask) -> tuple[Aggregates, _Quadratic]:
    """Find aggregates of `usable` unknowns in the open ones of some rows over the tape's cells."""
    n, count, mine = tape.unknowns, rows.shape[0], csr_array(rows[open_rows])
    owner, slope, square, constant = _single(tape, mine, usable)
    cell = np.flatnonzero(owner >= 0)
    over = csr_array(mine[:, cell])
    spread = (np.arange(len(cell)), owner[cell])
    lin = mine[:, tape.unknown_cells] + over @ csr_array((slope[cell], spread), shape=(len(cell), n))
    quad = over @ csr_array((square[cell], spread), shape=(len(cell), n))
    lin, quad = csc_array(lin), csc_array(quad)
    for matrix in (lin, quad):
        matrix.eliminate_zeros()
        matrix.sort_indices()
    found = _Quadratic(lin, quad, constant, owner)
    candidates = np.flatnonzero(usable & (np.diff(quad.indptr) > 0))
    members, ptr = _equal_columns(lin, quad, candidates)
    of_groups = coo_array(quad[:, members[ptr[:-1]]])
    row, group = of_groups.coords
    curvature = csr_array((of_groups.data, (open_rows[row], group)), shape=(count, len(ptr) - 1))
    return Aggregates(ptr, members, n, curvature), found


def aggregated(
    tape: Tape, rows: csr_array, open_rows: Index, aggregates: Aggregates, found: _Quadratic
) -> tuple[Tape, csr_array]:
    """Write a tape and its rows with two unknowns in place of every aggregate; rows that are not open stay."""
    extra, old, first = 2 * len(aggregates), tape.cells, tape.first_operation
    place = np.arange(old)
    place[first:] += extra
    squares, cells = old + extra, old + 2 * extra
    blocks = [
        block.mapped(lambda part: moved_columns(part, place, part.shape[1] + extra), block.first + extra)
        for block in tape.blocks
    ]
    blocks.append(Block(Op.SQUARE, squares, units(first + np.arange(extra), squares)))
    over = Tape(tape.unknowns + extra, tape.params, blocks, tape.graphs)

    count = np.diff(aggregates.ptr)
    leader = aggregates.members[aggregates.ptr[:-1]]
    member = np.zeros(tape.unknowns, bool)
    member[aggregates.members] = True
    gone = (found.owner >= 0) & member[found.owner]
    gone[tape.unknown_cells] = member
    mine = csr_array(rows[open_rows])
    constant = csr_array((mine @ np.where(gone, found.constant, 0.0))[:, None])
    kept = moved_columns(without(mine, gone), place, cells)
    lin = csr_array(found.lin[:, leader] * np.sqrt(count))
    quad = csr_array(found.quad[:, leader])
    one = 2 * np.arange(len(aggregates))
    part = csr_array(kept + moved_columns(constant, np.array([ONE]), cells) + moved_columns(lin, first + one, cells))
    part = csr_array(part + moved_columns(quad, squares + one, cells) + moved_columns(quad, squares + one + 1, cells))
    whole = moved_columns(rows, place, cells)
    order = np.arange(rows.shape[0])
    order[open_rows] = rows.shape[0] + np.arange(len(open_rows))
    new = csr_array(csr_array(vstack([whole, part], format="csr"))[order])
    new.eliminate_zeros()
    new.sort_indices()
    return over, new


def _single(tape: Tape, rows: csr_array, usable: Mask) -> tuple[Index, Values, Values, Values]:
    """Per cell: the one usable unknown it is a quadratic of (-1: none), and its coefficients.

    An unknown that enters anything else is struck off `usable`, which is written.
    """
    cells = tape.cells
    owner = np.full(cells, -1, np.int64)
    slope, square, constant = np.zeros(cells), np.zeros(cells), np.zeros(cells)
    needed = np.zeros(cells, bool)
    needed[rows.indices] = True
    for block in reversed(tape.blocks):
        here = slice(block.first, block.first + block.size)
        wanted = needed[here]
        if not wanted.any():
            continue
        simple = np.zeros(block.size, bool)
        if block.op in (Op.SQUARE, Op.MUL):
            a_one, a_slope, a_constant = _linear_in_one(block.a, tape, usable)
            b_one, b_slope, b_constant = (
                (a_one, a_slope, a_constant) if block.b is None else _linear_in_one(block.b, tape, usable)
            )
            simple = wanted & (a_one >= 0) & (a_one == b_one)
            owner[here] = np.where(simple, a_one, -1)
            slope[here] = a_slope * b_constant + a_constant * b_slope
            square[here] = a_slope * b_slope
            constant[here] = a_constant * b_constant
        for operand in block.operands:
            read = csr_array(operand[np.flatnonzero(wanted & ~simple)]).indices
            needed[read] = True
            usable[read[tape.is_unknown(read)] - tape.first_unknown] = False
    # A cell that another operation reads is no longer seen by rows alone.
    for block in tape.blocks:
        wanted = needed[block.first : block.first + block.size]
        for operand in block.operands:
            read = csr_array(operand[np.flatnonzero(wanted)]).indices
            usable[owner[read[owner[read] >= 0]]] = False
    lost = owner >= 0
    lost[lost] = ~usable[owner[lost]]
    owner[lost] = -1
    return owner, slope, square, constant


def _linear_in_one(operand: csr_array, tape: Tape, usable: Mask) -> tuple[Index, Values, Values]:
    """Per element: the usable unknown that is all it reads beside the constant (-1: none), its weight and the constant's."""
    size = operand.shape[0]
    label = np.repeat(np.arange(size), np.diff(operand.indptr))
    known = operand.indices == ONE
    constant = np.bincount(label[known], weights=operand.data[known], minlength=size).astype(np.float64)
    others = np.bincount(label[~known], minlength=size)
    cell, weight = np.full(size, -1, np.int64), np.zeros(size)
    cell[label[~known]] = operand.indices[~known]
    weight[label[~known]] = operand.data[~known]
    unknown, fine = cell - tape.first_unknown, (others == 1) & tape.is_unknown(cell)
    fine[fine] = usable[unknown[fine]]
    return np.where(fine, unknown, -1), weight, constant


def _equal_columns(lin: csc_array, quad: csc_array, candidates: Index) -> tuple[Index, Index]:
    """Sort candidates into groups with equal columns in both matrices: members, ptr."""
    random = np.random.default_rng(0)
    keys = np.stack([matrix.T @ random.standard_normal(matrix.shape[0]) for matrix in (lin, quad)])[:, candidates]
    _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    group = np.argsort(np.argsort(first))[group]  # in the order of the field: neighbours have neighbouring groups
    order = np.argsort(group, kind="stable")
    members, group = candidates[order], group[order]
    leader = members[np.searchsorted(group, group)]
    same = _same(lin, members, leader) & _same(quad, members, leader)
    members, group = members[same], group[same]  # a colliding key: the unequal one is left out
    counts = np.bincount(group)
    large = counts >= _FEWEST
    members = members[large[group]]
    return members, np.concatenate([[0], np.cumsum(counts[large])]).astype(np.int64)


def _same(matrix: csc_array, members: Index, leaders: Index) -> Mask:
    """Whether columns are equal, entry by entry."""
    return np.asarray(np.diff(csc_array(matrix[:, members] - matrix[:, leaders]).indptr) == 0, bool)
