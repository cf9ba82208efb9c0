"""Run a program on tiles of eight samples: values, residual rows, Jacobian, Hessian and gradients of nonlinear rows.

A program is a sequence of nonlinear operations on single numbers (cells) whose operands are linear combinations of
earlier cells. Cell 0 is the constant 1, then come the inputs, one cell per operation, and SPILL spare ones.
compile.program builds it; its arrays are sections of two flat ones. The state of a tile is one flat array of packs per name.
Nothing is allocated in a loop, and a lane's bits do not depend on its neighbors. Imports kernels only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from snapfm.arrays import Index, Table, Values
from snapfm.kernels.callback import NO_CALLBACK
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import add, fma, full, load, mul, store
from snapfm.kernels.numba.sections import section, sectioned
from snapfm.kernels.operations import apply, second_partials, slopes

# Operands a, b, c of operation e are cells a_cell[a_ptr[e] : a_ptr[e + 1]] with the weights a_weight below.
# Slopes: slot 0 is the constant 1, slot 1 + q the derivative of one operation by one unknown, from earlier slots (slope_*);
# entry_*: Jacobian entries that vary, and varying: which entries they are; back_*: rows that read a cell directly.
# bend_*: contributions to each entry of the Hessian: operation, kind (0: f_aa, 1: f_ab, 2: f_bb), two slots.
# reader_*: who reads a cell, the last operation first: the operation and its slope in `partial`.
TABLE = (
    "ops a_ptr a_cell b_ptr b_cell c_ptr c_cell row_ptr row_cell slot_ptr slope_a_ptr slope_a slope_b_ptr slope_b entry_ptr "
    "entry_slot varying back_ptr back_row bend_ptr bend_op bend_kind bend_left bend_right reader_ptr reader_op reader_slope"
)
WEIGHT = "a_weight b_weight c_weight row_weight slope_a_weight slope_b_weight entry_weight back_weight reader_weight"


@sectioned(("table", "table_at", TABLE), ("weight", "weight_at", WEIGHT))
class Code(NamedTuple):
    """The structure of a program; `first` is the cell of the first operation.

    With a `callback` (see kernels.callback) the caller evaluates rows and derivatives, and the tables are empty.
    """

    first: int
    table: Table
    table_at: Index
    weight: Values
    weight_at: Index
    callback: int = NO_CALLBACK

    def __getattr__(self, name: str) -> Any:
        return section(self, name)


@compiled(nogil=True)
def _combine(terms, position, cells):
    """Return Σ weight·cell, an operand or a row, as a pack. `terms`: pointers, cells and weights."""
    ptr, cell, weight = terms
    total = full(0.0)
    for p in range(ptr[position], ptr[position + 1]):
        total = fma(full(weight[p]), load(cells, cell[p]), total)
    return total


@compiled(nogil=True)
def _operands(code):
    """Return the terms of the operands a, b and c of all operations."""
    a, b = (code.a_ptr, code.a_cell, code.a_weight), (code.b_ptr, code.b_cell, code.b_weight)
    return a, b, (code.c_ptr, code.c_cell, code.c_weight)


@compiled(nogil=True)
def tile_values(code, cells, rows):  # written: cells (operations), rows
    """Evaluate operations and residual rows of one tile."""
    ops, (of_a, of_b, of_c) = code.ops, _operands(code)
    spill = code.first + len(ops)
    for e in range(len(ops)):
        a, b, c = _combine(of_a, e, cells), _combine(of_b, e, cells), _combine(of_c, e, cells)
        store(cells, code.first + e, apply(ops[e], a, b, c, cells, spill))
    of_rows = code.row_ptr, code.row_cell, code.row_weight
    for r in range(len(of_rows[0]) - 1):
        store(rows, r, _combine(of_rows, r, cells))


@compiled(nogil=True)
def tile_partials(code, cells, curved, partial):
    """Differentiate every operation at evaluated cells: f_a, f_b and, if `curved`, f_aa, f_ab, f_bb.

    Read: cells; written: partial, five packs per operation.
    """
    ops, (of_a, of_b, of_c) = code.ops, _operands(code)
    spill = code.first + len(ops)
    for e in range(len(ops)):
        a, b, c = _combine(of_a, e, cells), _combine(of_b, e, cells), _combine(of_c, e, cells)
        value = load(cells, code.first + e)
        by_a, by_b = slopes(ops[e], a, b, c, value, cells, spill)
        store(partial, 5 * e, by_a)
        store(partial, 5 * e + 1, by_b)
        if curved:
            by_aa, by_ab, by_bb = second_partials(ops[e], a, b, value, by_a, by_b, cells, spill)
            store(partial, 5 * e + 2, by_aa)
            store(partial, 5 * e + 3, by_ab)
            store(partial, 5 * e + 4, by_bb)


@compiled(nogil=True)
def tile_slopes(code, partial, slots, left, right, entries):
    """Propagate slopes through the operations. Read: partial; written: slots, left and right (slopes of operands), entries."""
    slot_ptr, varying = code.slot_ptr, code.varying
    of_a, of_b = (
        (code.slope_a_ptr, code.slope_a, code.slope_a_weight),
        (code.slope_b_ptr, code.slope_b, code.slope_b_weight),
    )
    store(slots, 0, full(1.0))
    for e in range(len(slot_ptr) - 1):
        fa, fb = load(partial, 5 * e), load(partial, 5 * e + 1)
        for q in range(slot_ptr[e], slot_ptr[e + 1]):
            from_a, from_b = _combine(of_a, q, slots), _combine(of_b, q, slots)
            store(left, q, from_a)
            store(right, q, from_b)
            store(slots, 1 + q, fma(fb, from_b, mul(fa, from_a)))
    of_entries = code.entry_ptr, code.entry_slot, code.entry_weight
    for r in range(len(varying)):
        store(entries, varying[r], _combine(of_entries, r, slots))


@compiled(nogil=True)
def tile_hessian(code, weight, left, right, partial, adjoint, curvature):
    """Evaluate Σ weight·∇²row on its pattern. Read: weight (rows), left, right, partial; written: adjoint, curvature."""
    _adjoints(code, weight, partial, False, adjoint)
    ptr, op, kind, one, other = code.bend_ptr, code.bend_op, code.bend_kind, code.bend_left, code.bend_right
    for h in range(len(ptr) - 1):
        total = full(0.0)
        for p in range(ptr[h], ptr[h + 1]):
            term = mul(load(adjoint, op[p]), load(partial, 5 * op[p] + 2 + kind[p]))
            if kind[p] == 0:
                term = mul(term, mul(load(left, one[p]), load(left, other[p])))
            elif kind[p] == 1:
                term = mul(term, mul(load(left, one[p]), load(right, other[p])))
            else:
                term = mul(term, mul(load(right, one[p]), load(right, other[p])))
            total = add(total, term)
        store(curvature, h, total)


@compiled(nogil=True)
def _adjoints(code, weight, partial, inputs, adjoint):  # written: adjoint
    """Differentiate Σ weight·row by operations, from the last to the first, and then, if `inputs`, by the cells before them.

    `adjoint` begins with the first cell that is differentiated by. A cell gathers from the rows and the operations that read it.
    """
    of_rows = code.back_ptr, code.back_row, code.back_weight
    reader, op, slope, share = code.reader_ptr, code.reader_op, code.reader_slope, code.reader_weight
    first, cells = 0 if inputs else code.first, len(reader) - 1
    ops = code.first - first
    for i in range(cells - first):
        cell = max(cells - 1 - i, 0)  # not negative: spares a check at every access, which took a quarter of the time
        total = _combine(of_rows, cell, weight)
        for p in range(reader[cell], reader[cell + 1]):
            total = fma(full(share[p]), mul(load(adjoint, ops + op[p]), load(partial, slope[p])), total)
        store(adjoint, cell - first, total)


@compiled(nogil=True)
def tile_gradient(code, cells, weight, partial, adjoint):
    """adjoint = gradient of Σ weight·row in every cell. Read: cells, weight (rows); written: partial, adjoint (cells)."""
    tile_partials(code, cells, False, partial)
    _adjoints(code, weight, partial, True, adjoint)


@compiled(nogil=True)
def tile_linear_gradient(code, cells, multipliers, nu, along, partial, turned, adjoint, out):
    """out = gradient, in every cell, of Σ ν·row + the derivative of Σ λ·row along the tangents of the first cells.

    Read: cells, multipliers λ and ν (rows), along (tangents of the first cells). Written: along (those of operations), partial,
    turned (two packs per operation: how its slopes change along), adjoint (gradient of Σ λ·row), out.
    """
    tile_partials(code, cells, True, partial)
    of_a, of_b, _ = _operands(code)
    for e in range(len(code.ops)):
        a, b = _combine(of_a, e, along), _combine(of_b, e, along)
        mixed = load(partial, 5 * e + 3)
        store(turned, 2 * e, fma(mixed, b, mul(load(partial, 5 * e + 2), a)))
        store(turned, 2 * e + 1, fma(load(partial, 5 * e + 4), b, mul(mixed, a)))
        store(along, code.first + e, fma(load(partial, 5 * e + 1), b, mul(load(partial, 5 * e), a)))
    of_rows = code.back_ptr, code.back_row, code.back_weight
    reader, op, slope, share = code.reader_ptr, code.reader_op, code.reader_slope, code.reader_weight
    cell_count = len(reader) - 1
    for i in range(cell_count):
        cell = max(cell_count - 1 - i, 0)  # not negative: spares a check at every access
        first, second = _combine(of_rows, cell, multipliers), _combine(of_rows, cell, nu)
        for p in range(reader[cell], reader[cell + 1]):
            e = op[p]
            by, turn = load(partial, slope[p]), load(turned, slope[p] - 3 * e)
            upper = load(adjoint, code.first + e)
            change = fma(upper, turn, mul(load(out, code.first + e), by))
            first = fma(full(share[p]), mul(upper, by), first)
            second = fma(full(share[p]), change, second)
        store(adjoint, cell, first)
        store(out, cell, second)
