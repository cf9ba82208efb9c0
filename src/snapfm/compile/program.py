"""Program: chosen rows of a tape, cut down to what they need, with the paths their derivatives take.

Consumes a Tape (all laws), the rows wanted and the unknowns to differentiate by. Returns the arrays that kernels.program
runs. Everything here is structure: built once, never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array

from snapfm.arrays import Index, Values
from snapfm.compile.lower.tape import Block, Tape, Unlowerable, chosen_rows, moved_columns
from snapfm.compile.sparsity.pattern import GrowingSets, Pattern, Sets, union
from snapfm.kernels import program as core
from snapfm.kernels.merging import count_pairs, followed, list_pairs, sort_terms
from snapfm.kernels.numba.sections import packed
from snapfm.kernels.operations import SPILL

# Above this many pairs of unknowns a Hessian is not written out: (Σu)² over 10⁴ unknowns would need 10⁸ of them.
PAIR_LIMIT = 20_000_000
# Above this many terms the chain rule is not written out: rows that all read products of two transforms of a whole plane
# have (cells of a row) × (unknowns of a cell) terms each. Thirty million take half a gigabyte. Large fields may have up to
# four times as many, if these are few for each entry of the Jacobian: torch would need as long for those.
TERM_LIMIT = 30_000_000
_TERMS_AN_ENTRY = 64


@dataclass(frozen=True)
class Program:
    """Rows over inputs (unknowns of the field, then externals), and derivatives by the unknowns in `by`.

    `pattern` is that of the Jacobian (rows × by) and `constants` its values where they never change; `varying` lists the
    entries that do, in the order kernels.program writes them. `hessian` is the lower triangle of its pattern.
    """

    code: core.Code
    operations: int
    slots: int
    unknowns: Index  # fields' cells read, in the order of the inputs
    externals: Index  # cells of params read, after them
    by: Index
    pattern: Pattern
    constants: Values
    varying: Index
    hessian: Pattern

    @property
    def cells(self) -> int:
        """Number of cells of one sample."""
        return self.code.first + self.operations + SPILL

    @property
    def diagonal(self) -> bool:
        """Whether the Hessian has no entry off its diagonal."""
        return bool((self.hessian.row_of() == self.hessian.indices).all())


def build_program(tape: Tape, rows: csr_array, by: Index, second: bool = True) -> Program:
    """Cut the tape down to `rows` (over its cells) and plan derivatives by the unknowns `by`.

    Raises Unlowerable where derivatives are too much to write out; without `second` the Hessian is left empty, and the terms
    of the slopes were counted when the laws were compiled.
    """
    needed = np.zeros(tape.cells, bool)
    needed[rows.indices] = True
    kept: list[tuple[Block, Index]] = []
    for block in reversed(tape.blocks):
        element = np.flatnonzero(needed[block.first : block.first + block.size])
        if len(element):
            kept.append((block, element))
            for operand in block.operands:
                needed[chosen_rows(operand, element).indices] = True
    kept.reverse()
    unknowns = np.flatnonzero(needed[: tape.unknowns])
    computed = [block.first + element for block, element in kept]
    is_operation = np.zeros(tape.cells, bool)
    for block in tape.blocks:
        is_operation[block.first : block.first + block.size] = True
    externals = np.flatnonzero(needed & ~is_operation)
    externals = externals[externals > tape.unknowns]

    order = np.concatenate([[tape.one], unknowns, externals, *computed]).astype(np.int64, copy=False)
    place = np.full(tape.cells, -1, np.int64)
    place[order] = np.arange(len(order))
    first = 1 + len(unknowns) + len(externals)

    def local(element: Index, operand: csr_array) -> csr_array:
        moved = moved_columns(chosen_rows(operand, element), place, len(order))
        if not moved.has_sorted_indices:
            moved = moved.copy()  # its values are the tape's own
            moved.sort_indices()
        return moved

    blocks = [block.mapped(partial(local, element), int(place[block.first + element[0]])) for block, element in kept]
    local_rows = local(np.arange(rows.shape[0]), rows)
    return _planned(blocks, local_rows, first, unknowns, externals, by, second)


def _planned(
    blocks: list[Block], rows: csr_array, first: int, unknowns: Index, externals: Index, by: Index, second: bool
) -> Program:
    """Follow the unknowns in `by` through the operations (slots, entries, adjoints, Hessian terms) and pack all of it."""
    width = len(by)
    rank = np.full(1 + max(unknowns.max(initial=0), by.max(initial=0)), -1, np.int64)
    rank[by] = np.arange(width)
    column = rank[unknowns]
    # Sets over `by` of the inputs: the constant, the unknowns, the externals.
    present = np.concatenate([[-1], column, np.full(len(externals), -1)]).astype(np.int64, copy=False)
    # Every input's only slot is the constant 1, slot 0; those of operations follow in the order of their sets.
    inputs = Sets(np.concatenate([[0], np.cumsum(present >= 0)]), present[present >= 0], width)
    growing = GrowingSets(width)
    growing.append(inputs)
    operands: list[tuple[Sets, Sets, Sets]] = []  # of each block: the sets of its results, of a, of b
    for block in blocks:
        by_a, by_b = _slopes(block, growing.sets())
        operands.append((union([by_a, by_b]), by_a, by_b))
        growing.append(operands[-1][0])
    pool = growing.sets()
    if second:
        _refuse_too_many(blocks, rows, pool, operands)
    paths = [
        (_paths(block.a, pool, inputs.nnz, out, by_a), _paths(block.b, pool, inputs.nnz, out, by_b))
        for block, (out, by_a, by_b) in zip(blocks, operands)
    ]
    pattern, constants, varying, entry = _entries(rows, pool, inputs.nnz, width)
    hessian, curvature = _hessian_terms(blocks if second else [], operands, width)
    back = csc_array(rows)
    ops = np.concatenate([np.zeros(0, np.int64), *(np.full(block.size, int(block.op)) for block in blocks)])
    a, b, c = (_chain([_terms_of(getattr(block, name), block.size) for block in blocks]) for name in "abc")
    slot_counts = np.concatenate([np.zeros(0, np.int64), *(out.counts for out, _, _ in operands)])
    through_a, through_b = _chain([path for path, _ in paths]), _chain([path for _, path in paths])
    readers = find_readers(first, a, b)
    table = {
        "ops": ops, "a_ptr": a[0], "a_cell": a[1], "b_ptr": b[0], "b_cell": b[1],
        "c_ptr": c[0], "c_cell": c[1], "row_ptr": rows.indptr, "row_cell": rows.indices,
        "slot_ptr": np.concatenate([[0], np.cumsum(slot_counts)]),
        "slope_a_ptr": through_a[0], "slope_a": through_a[1],
        "slope_b_ptr": through_b[0], "slope_b": through_b[1],
        "entry_ptr": entry[0], "entry_slot": entry[1], "varying": varying,
        "back_ptr": back.indptr, "back_row": back.indices,
        **dict(zip(("bend_ptr", "bend_op", "bend_kind", "bend_left", "bend_right"), curvature, strict=True)),
        "reader_ptr": readers.pointers, "reader_op": readers.operation, "reader_slope": readers.slope,
    }  # fmt: skip
    weight = {
        "a_weight": a[2], "b_weight": b[2], "c_weight": c[2], "row_weight": rows.data, "slope_a_weight": through_a[2],
        "slope_b_weight": through_b[2], "entry_weight": entry[2], "back_weight": back.data, "reader_weight": readers.weight,
    }  # fmt: skip
    code = core.Code(first, *packed(core.TABLE, table, np.int32), *packed(core.WEIGHT, weight, np.float64))
    return Program(code, len(ops), pool.nnz - inputs.nnz, unknowns, externals, by, pattern, constants, varying, hessian)


def _slopes(block: Block, pool: Sets) -> tuple[Sets, Sets]:
    """The unknowns that each operand of each operation of a block has a slope in."""
    nothing = Sets.empty(block.size, pool.width)
    if block.op.zero_gradient:
        return nothing, nothing
    by_b = nothing if block.b is None or block.op.parameter else pool.over(block.b)
    return pool.over(block.a), by_b


def _refuse_too_many(blocks: list[Block], rows: csr_array, pool: Sets, operands: list[tuple[Sets, Sets, Sets]]) -> None:
    """Count terms and pairs before any is listed; raises Unlowerable."""
    pairs, terms = 0, count_terms(rows, pool)
    for block, (_, by_a, by_b) in zip(blocks, operands):
        terms += sum(count_terms(m, pool) for m, by in ((block.a, by_a), (block.b, by_b)) if m is not None and by.nnz)
        pairs += sum(int((left.counts * right.counts).sum()) for _, left, right in _pairs(block, by_a, by_b))
    refuse_terms(terms, rows, pool)
    if pairs > PAIR_LIMIT:
        raise Unlowerable(f"curvature that couples more than {PAIR_LIMIT:,} pairs of unknowns")


def count_terms(matrix: csr_array, pool: Sets) -> int:
    """Count the terms of the slopes of a matrix' rows: one for each unknown of each cell."""
    return int((pool.indptr[matrix.indices + 1] - pool.indptr[matrix.indices]).sum())


def refuse_terms(terms: int, rows: csr_array, pool: Sets) -> None:
    """Raise Unlowerable if slopes have too many terms to be written out, for the entries that the rows have."""
    if terms <= TERM_LIMIT:
        return
    limit = max(TERM_LIMIT, min(4 * TERM_LIMIT, _TERMS_AN_ENTRY * pool.over(rows).nnz))
    if terms > limit:
        raise Unlowerable(f"slopes of {terms:,} terms (limit {limit:,})")


def _pairs(block: Block, by_a: Sets, by_b: Sets) -> list[tuple[int, Sets, Sets]]:
    """Which operands' unknowns the second derivatives of a block join, with the kind of each: aa, ab, bb."""
    joined = ((by_a, by_a), (by_a, by_b), (by_b, by_b))
    return [(kind, *joined[kind]) for kind in block.op.curved]


_Paths = tuple[Index, Index, Values]  # sums of weighted terms: number of terms of each, sources, weights


def _paths(operand: csr_array | None, pool: Sets, inputs: int, out: Sets, mine: Sets) -> _Paths:
    """For each slot of the result, the earlier slots its operand's slope is made of."""
    if operand is None or mine.nnz == 0:
        return np.zeros(out.nnz, np.int64), np.zeros(0, np.int64), np.zeros(0)
    return _terms(operand, pool, inputs, out)


def _terms(matrix: csr_array, pool: Sets, inputs: int, out: Sets) -> _Paths:
    """For each entry of `out`, the slots of the cells of its row that have this unknown; the first `inputs` have slot 0."""
    rows = matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int64, copy=False), matrix.data
    counts, place, weight = followed(*rows, pool.indptr, pool.indices, out.indptr, out.indices, out.width)
    return counts, np.maximum(place - inputs + 1, 0), weight


def _terms_of(operand: csr_array | None, size: int) -> _Paths:
    if operand is None:
        return np.zeros(size, np.int64), np.zeros(0, np.int64), np.zeros(0)
    return np.diff(operand.indptr), operand.indices, operand.data


def _chain(parts: list[_Paths]) -> Chain:
    """Join sums one after the other: pointers, sources, weights."""
    counts = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
    return (
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64, copy=False),
        np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts)]).astype(np.int64, copy=False),
        np.concatenate([np.zeros(0), *(part[2] for part in parts)]),
    )


def _entries(
    rows: csr_array, pool: Sets, inputs: int, width: int
) -> tuple[Pattern, Values, Index, tuple[Index, Index, Values]]:
    reach = pool.over(rows)
    counts, source, weight = _terms(rows, pool, inputs, reach)
    target = np.repeat(np.arange(reach.nnz), counts)
    moves = np.zeros(reach.nnz, bool)
    moves[target[source > 0]] = True
    live = moves[target]
    constants = np.bincount(target[~live], weights=weight[~live], minlength=reach.nnz).astype(np.float64)
    varying = np.flatnonzero(moves)
    entry = (np.concatenate([[0], np.cumsum(counts[varying])]).astype(np.int64, copy=False), source[live], weight[live])
    return Pattern.from_sets(reach, width), constants, varying, entry


def _hessian_terms(
    blocks: list[Block], operands: list[tuple[Sets, Sets, Sets]], width: int
) -> tuple[Pattern, tuple[Index, ...]]:
    """List, for each lower entry (i, j) of the Hessian, the operations whose curvature joins i and j."""
    found: list[tuple[int, Sets, Sets, Sets, int, int]] = []  # kind, both operands' sets, the results', operation, slot
    operation = slot = 0
    for block, (out, by_a, by_b) in zip(blocks, operands):
        found += [(kind, left, right, out, operation, slot) for kind, left, right in _pairs(block, by_a, by_b)]
        operation += block.size
        slot += out.nnz
    counts = np.zeros(width, np.int64)
    for kind, left, right, _, _, _ in found:
        count_pairs(left.indptr, left.indices, right.indptr, right.indices, kind, counts)
    row_ptr = np.concatenate([[0], np.cumsum(counts)])
    total = int(row_ptr[-1])
    place, end = np.zeros(width, np.int64), row_ptr[:-1].copy()
    columns, terms = np.empty(total, np.int64), np.empty((4, total), np.int32)
    for kind, left, right, out, operation, slot in found:
        sets = (left.indptr, left.indices, right.indptr, right.indices, kind, out.indptr, out.indices)
        list_pairs(*sets, operation, slot, place, end, columns, terms)
    indptr, several = np.zeros(width + 1, np.int64), np.empty(total, np.int32)
    entries = sort_terms(row_ptr, columns, terms, indptr, several)
    pattern = Pattern(width, width, indptr, columns[:entries].copy())
    ptr = np.concatenate([[0], np.cumsum(several[:entries], dtype=np.int64)])
    return pattern, (ptr, *terms)


Chain = tuple[Index, Index, Values]  # sums of weighted cells, one after the other: pointers, cells, weights


class Readers(NamedTuple):
    """Sections of kernels.program.Code: for each cell, who reads it."""

    pointers: Index  # readers of each cell: operations, the last first
    operation: Index
    slope: Index  # of the reader by the operand that the cell is part of, among five derivatives per operation
    weight: Values


def find_readers(first: int, a: Chain, b: Chain) -> Readers:
    """Find them for the operands a and b of all operations; operation e is cell first + e. Operand c has no slope."""
    operations = len(a[0]) - 1
    counts = [np.diff(one[0]) for one in (a, b)]
    cell = np.concatenate([a[1], b[1]])
    side = np.repeat([0, 1], [len(a[1]), len(b[1])])
    operation = np.concatenate([np.repeat(np.arange(operations), count) for count in counts])
    order = np.lexsort((side, -operation, cell))
    return Readers(
        np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=first + operations))]),
        operation[order],
        (5 * operation + side)[order],
        np.concatenate([a[2], b[2]])[order],
    )
