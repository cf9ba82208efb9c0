"""Program: chosen rows of a tape, cut down to what they need, with the paths their derivatives take.

Consumes a Tape (all laws), the rows wanted and the unknowns to differentiate by. Returns the arrays that kernels.program
runs. Everything here is structure: built once, never changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from snapfm.arrays import Index, Values
from snapfm.compile.lower.subtape import Chain, Subtape, cut
from snapfm.compile.lower.tape import Block, Tape, Unlowerable
from snapfm.compile.sparsity.pattern import GrowingSets, Pattern, Sets, union
from snapfm.kernels import program as core
from snapfm.kernels.curvature import count_pairs, list_pairs, sort_terms
from snapfm.kernels.merging import followed
from snapfm.kernels.numba.sections import packed_index, packed_values
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
    """Rows over cells of params and unknowns of the field, and derivatives by some of these, `by`.

    `pattern` is that of the Jacobian (rows × by) and `constants` its values where they never change; `varying` lists the
    entries that do, in the order kernels.program writes them. `hessian` is the lower triangle of its pattern.
    """

    code: core.Code
    operations: int
    slots: int
    params: Index  # which ones of the tape's params and unknowns it reads, in the order of its cells
    unknowns: Index
    pattern: Pattern
    constants: Values
    varying: Index
    hessian: Pattern

    @property
    def cells(self) -> int:
        """Number of cells of one sample."""
        return self.code.first + self.operations + SPILL

    @property
    def run(self) -> tuple[core.Code, int]:
        """What kernels run: the code, and the number of cells."""
        return self.code, self.cells

    @property
    def diagonal(self) -> bool:
        """Whether the Hessian has no entry off its diagonal."""
        return bool((self.hessian.row_of() == self.hessian.indices).all())


def build_program(tape: Tape, rows: csr_array, by: Index, second: bool = True) -> Program:
    """Cut the tape down to `rows` (over its cells) and plan derivatives by the unknowns `by`.

    Raises Unlowerable where derivatives are too much to write out; without `second` the Hessian is left empty, and the terms
    of the slopes were counted when the laws were compiled.
    """
    return program_of(cut(tape, rows, [rows.shape[0]])[0], by, second)


def program_of(part: Subtape, by: Index, second: bool = True) -> Program:
    """Plan the program of a subtape; see build_program."""
    (a, b, c), rows, height = part.operands, part.rows, len(part.rows[0]) - 1
    none = _Derivatives(Pattern(height, 0, np.zeros(height + 1, np.int64), _NOTHING))
    found, readers = _derivatives(part, by, second) if len(by) else none, _readers(part)
    table = {
        core.OPS: part.ops, core.A_PTR: a[0], core.A_CELL: a[1], core.B_PTR: b[0], core.B_CELL: b[1],
        core.C_PTR: c[0], core.C_CELL: c[1], core.ROW_PTR: rows[0], core.ROW_CELL: rows[1],
    }  # fmt: skip
    weight = {core.A: a[2], core.B: b[2], core.C: c[2], core.ROW: rows[2]}
    table, weight = table | found.table | readers[0], weight | found.weight | readers[1]
    code = core.Code(part.first, *packed_index(table), *packed_values(weight))
    return Program(
        code, len(part.operations), found.slots, part.params, part.unknowns, found.pattern, found.constants, found.varying,
        found.hessian,
    )  # fmt: skip


def _readers(part: Subtape) -> tuple[dict[int, Index], dict[int, Values]]:
    """Find who reads each cell: rows, and operations by operand a or b, the last operation first. Operand c has no slope."""
    (a, b, _), rows = part.operands, part.rows
    row, by_a, by_b = (np.repeat(np.arange(len(chain[0]) - 1), np.diff(chain[0])) for chain in (rows, a, b))
    operation, cell = np.concatenate([by_a, by_b]), np.concatenate([a[1], b[1]])
    side = np.repeat([0, 1], [len(by_a), len(by_b)])
    by_row, by_operation = np.argsort(rows[1], kind="stable"), np.lexsort((side, -operation, cell))
    back, reader = (
        np.concatenate([[0], np.cumsum(np.bincount(read, minlength=part.first + len(part.operations)))])
        for read in (rows[1], cell)
    )
    table = {
        core.BACK_PTR: back, core.BACK_ROW: row[by_row], core.READER_PTR: reader,
        # Five derivatives per operation, of which f_a and f_b are the first.
        core.READER_OP: operation[by_operation], core.READER_SLOPE: (5 * operation + side)[by_operation],
    }  # fmt: skip
    return table, {core.BACK: rows[2][by_row], core.READER: np.concatenate([a[2], b[2]])[by_operation]}


_NOTHING, _START, _NONE = np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0)
_SECTIONS = (*range(core.SLOT_PTR, core.BACK_PTR), *range(core.BEND_PTR, core.READER_PTR))
_POINTERS = (core.SLOT_PTR, core.SLOPE_A_PTR, core.SLOPE_B_PTR, core.ENTRY_PTR, core.BEND_PTR)


class _Derivatives(NamedTuple):
    """What a program knows about derivatives: sections of its code, and the fields of the same names. By default, none."""

    pattern: Pattern
    table: dict[int, Index] = dict.fromkeys(_SECTIONS, _NOTHING) | dict.fromkeys(_POINTERS, _START)
    weight: dict[int, Values] = dict.fromkeys((core.SLOPE_A_WEIGHT, core.SLOPE_B_WEIGHT, core.ENTRY), _NONE)
    slots: int = 0
    constants: Values = _NONE
    varying: Index = _NOTHING
    hessian: Pattern = Pattern(0, 0, _START, _NOTHING)


def _derivatives(part: Subtape, by: Index, second: bool) -> _Derivatives:
    """Follow the unknowns in `by` through the operations: slots, entries, Hessian terms."""
    width, blocks, rows = len(by), part.blocks(), part.matrix()
    rank = np.full(1 + max(part.unknowns.max(initial=0), by.max(initial=0)), -1, np.int64)
    rank[by] = np.arange(width)
    # Sets over `by` of the cells before the operations.
    present = np.concatenate([np.full(1 + len(part.params), -1), rank[part.unknowns]])
    # Every unknown's only slot is the constant 1, slot 0; those of operations follow in the order of their sets.
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
    through_a, through_b = (
        _chain([_paths(block, side, pool, inputs.nnz, sets) for block, sets in zip(blocks, operands)])
        for side in (0, 1)
    )
    pattern, constants, varying, entry = _entries(rows, pool, inputs.nnz, width)
    hessian, curvature = _hessian_terms(blocks if second else [], operands, width)
    slot_counts = np.concatenate([np.zeros(0, np.int64), *(out.counts for out, _, _ in operands)])
    table = {
        core.SLOT_PTR: np.concatenate([[0], np.cumsum(slot_counts)]),
        core.SLOPE_A_PTR: through_a[0], core.SLOPE_A: through_a[1],
        core.SLOPE_B_PTR: through_b[0], core.SLOPE_B: through_b[1],
        core.ENTRY_PTR: entry[0], core.ENTRY_SLOT: entry[1], core.VARYING: varying,
        **dict(zip(range(core.BEND_PTR, core.BEND_RIGHT + 1), curvature, strict=True)),
    }  # fmt: skip
    weight = {core.SLOPE_A_WEIGHT: through_a[2], core.SLOPE_B_WEIGHT: through_b[2], core.ENTRY: entry[2]}
    return _Derivatives(pattern, table, weight, pool.nnz - inputs.nnz, constants, varying, hessian)


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


def _paths(block: Block, side: int, pool: Sets, inputs: int, sets: tuple[Sets, Sets, Sets]) -> _Paths:
    """For each slot of a block's results, the earlier slots that the slope of operand a (side 0) or b (side 1) is made of."""
    out, mine = sets[0], sets[1 + side]
    if mine.nnz == 0:
        return np.zeros(out.nnz, np.int64), np.zeros(0, np.int64), np.zeros(0)
    return _terms(block.operands[side], pool, inputs, out)


def _terms(matrix: csr_array, pool: Sets, inputs: int, out: Sets) -> _Paths:
    """For each entry of `out`, the slots of the cells of its row that have this unknown; the first `inputs` have slot 0."""
    rows = matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int64, copy=False), matrix.data
    counts, place, weight = followed(*rows, pool.indptr, pool.indices, out.indptr, out.indices, out.width)
    return counts, np.maximum(place - inputs + 1, 0), weight


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
