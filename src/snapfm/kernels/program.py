"""Run a program on tiles of eight samples: values, residual rows, Jacobian, Hessian and gradients of nonlinear rows.

A program is a sequence of nonlinear operations on single numbers (cells) whose operands are linear combinations of
earlier cells. Cell 0 is the constant 1, then come cells of params, unknowns, one cell per operation, and SPILL spare ones.
compile.program builds it; its arrays are sections of two flat ones. The state of a tile is one flat array of packs per name.
Nothing is allocated in a loop, and a lane's bits do not depend on its neighbors. Imports kernels only.
"""

from __future__ import annotations

from typing import NamedTuple

from snapfm.arrays import Index, Table, Values
from snapfm.kernels.callback import NO_CALLBACK
from snapfm.kernels.numba.compiling import compiled
from snapfm.kernels.numba.packs import add, fma, full, load, mul, store
from snapfm.kernels.numba.sections import section
from snapfm.kernels.operations import apply, second_partials, slopes

# Sections of Code.table. Operands a, b, c of operation e are cells A_CELL[A_PTR[e] : A_PTR[e + 1]] with the weights A below.
OPS, A_PTR, A_CELL, B_PTR, B_CELL, C_PTR, C_CELL, ROW_PTR, ROW_CELL = range(9)
# Slopes: slot 0 is the constant 1, slot 1 + q the derivative of one operation by one unknown, from earlier slots (SLOPE_*);
# ENTRY_*: Jacobian entries that vary, and VARYING: which entries they are; BACK_*: rows that read a cell directly.
SLOT_PTR, SLOPE_A_PTR, SLOPE_A, SLOPE_B_PTR, SLOPE_B, ENTRY_PTR, ENTRY_SLOT, VARYING, BACK_PTR, BACK_ROW = range(9, 19)
# Contributions to each entry of the Hessian: operation, kind (0: f_aa, 1: f_ab, 2: f_bb), two slots.
BEND_PTR, BEND_OP, BEND_KIND, BEND_LEFT, BEND_RIGHT = range(19, 24)
# Who reads a cell, the last operation first: the operation and its slope in `partial`.
READER_PTR, READER_OP, READER_SLOPE = range(24, 27)
# Sections of Code.weight.
A, B, C, ROW, SLOPE_A_WEIGHT, SLOPE_B_WEIGHT, ENTRY, BACK, READER = range(9)


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


@compiled(nogil=True)
def _combine(ptr, cell, weight, position, cells):
    """Return Σ weight·cell, an operand or a row, as a pack."""
    total = full(0.0)
    for p in range(ptr[position], ptr[position + 1]):
        total = fma(full(weight[p]), load(cells, cell[p]), total)
    return total


@compiled(nogil=True)
def tile_values(code, cells, rows):  # written: cells (operations), rows
    """Evaluate operations and residual rows of one tile."""
    ops = section(code.table, code.table_at, OPS)
    a_ptr, a_cell = section(code.table, code.table_at, A_PTR), section(code.table, code.table_at, A_CELL)
    b_ptr, b_cell = section(code.table, code.table_at, B_PTR), section(code.table, code.table_at, B_CELL)
    c_ptr, c_cell = section(code.table, code.table_at, C_PTR), section(code.table, code.table_at, C_CELL)
    a_weight, b_weight = section(code.weight, code.weight_at, A), section(code.weight, code.weight_at, B)
    c_weight = section(code.weight, code.weight_at, C)
    spill = code.first + len(ops)
    for e in range(len(ops)):
        a = _combine(a_ptr, a_cell, a_weight, e, cells)
        b = _combine(b_ptr, b_cell, b_weight, e, cells)
        c = _combine(c_ptr, c_cell, c_weight, e, cells)
        store(cells, code.first + e, apply(ops[e], a, b, c, cells, spill))
    ptr, cell = section(code.table, code.table_at, ROW_PTR), section(code.table, code.table_at, ROW_CELL)
    weight = section(code.weight, code.weight_at, ROW)
    for r in range(len(ptr) - 1):
        store(rows, r, _combine(ptr, cell, weight, r, cells))


@compiled(nogil=True)
def tile_partials(code, cells, curved, partial):
    """Differentiate every operation at evaluated cells: f_a, f_b and, if `curved`, f_aa, f_ab, f_bb.

    Read: cells; written: partial, five packs per operation.
    """
    ops = section(code.table, code.table_at, OPS)
    a_ptr, a_cell = section(code.table, code.table_at, A_PTR), section(code.table, code.table_at, A_CELL)
    b_ptr, b_cell = section(code.table, code.table_at, B_PTR), section(code.table, code.table_at, B_CELL)
    c_ptr, c_cell = section(code.table, code.table_at, C_PTR), section(code.table, code.table_at, C_CELL)
    a_weight, b_weight = section(code.weight, code.weight_at, A), section(code.weight, code.weight_at, B)
    c_weight = section(code.weight, code.weight_at, C)
    spill = code.first + len(ops)
    for e in range(len(ops)):
        a = _combine(a_ptr, a_cell, a_weight, e, cells)
        b = _combine(b_ptr, b_cell, b_weight, e, cells)
        c = _combine(c_ptr, c_cell, c_weight, e, cells)
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
    slot_ptr = section(code.table, code.table_at, SLOT_PTR)
    a_ptr, a_slot = section(code.table, code.table_at, SLOPE_A_PTR), section(code.table, code.table_at, SLOPE_A)
    b_ptr, b_slot = section(code.table, code.table_at, SLOPE_B_PTR), section(code.table, code.table_at, SLOPE_B)
    a_weight = section(code.weight, code.weight_at, SLOPE_A_WEIGHT)
    b_weight = section(code.weight, code.weight_at, SLOPE_B_WEIGHT)
    store(slots, 0, full(1.0))
    for e in range(len(slot_ptr) - 1):
        fa, fb = load(partial, 5 * e), load(partial, 5 * e + 1)
        for q in range(slot_ptr[e], slot_ptr[e + 1]):
            from_a, from_b = full(0.0), full(0.0)
            for p in range(a_ptr[q], a_ptr[q + 1]):
                from_a = fma(full(a_weight[p]), load(slots, a_slot[p]), from_a)
            for p in range(b_ptr[q], b_ptr[q + 1]):
                from_b = fma(full(b_weight[p]), load(slots, b_slot[p]), from_b)
            store(left, q, from_a)
            store(right, q, from_b)
            store(slots, 1 + q, fma(fb, from_b, mul(fa, from_a)))
    ptr, slot = section(code.table, code.table_at, ENTRY_PTR), section(code.table, code.table_at, ENTRY_SLOT)
    varying, weight = section(code.table, code.table_at, VARYING), section(code.weight, code.weight_at, ENTRY)
    for r in range(len(ptr) - 1):
        total = full(0.0)
        for p in range(ptr[r], ptr[r + 1]):
            total = fma(full(weight[p]), load(slots, slot[p]), total)
        store(entries, varying[r], total)


@compiled(nogil=True)
def tile_hessian(code, weight, left, right, partial, adjoint, curvature):
    """Evaluate Σ weight·∇²row on its pattern. Read: weight (rows), left, right, partial; written: adjoint, curvature."""
    _adjoints(code, weight, partial, False, adjoint)
    ptr, op = section(code.table, code.table_at, BEND_PTR), section(code.table, code.table_at, BEND_OP)
    kind = section(code.table, code.table_at, BEND_KIND)
    one, other = section(code.table, code.table_at, BEND_LEFT), section(code.table, code.table_at, BEND_RIGHT)
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
    ptr, row = section(code.table, code.table_at, BACK_PTR), section(code.table, code.table_at, BACK_ROW)
    back = section(code.weight, code.weight_at, BACK)
    reader, op = section(code.table, code.table_at, READER_PTR), section(code.table, code.table_at, READER_OP)
    slope, share = section(code.table, code.table_at, READER_SLOPE), section(code.weight, code.weight_at, READER)
    first, cells = 0 if inputs else code.first, len(reader) - 1
    ops = code.first - first
    for i in range(cells - first):
        cell = max(cells - 1 - i, 0)  # not negative: spares a check at every access, which took a quarter of the time
        total = full(0.0)
        for p in range(ptr[cell], ptr[cell + 1]):
            total = fma(full(back[p]), load(weight, row[p]), total)
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
    ops = section(code.table, code.table_at, OPS)
    a_ptr, a_cell = section(code.table, code.table_at, A_PTR), section(code.table, code.table_at, A_CELL)
    b_ptr, b_cell = section(code.table, code.table_at, B_PTR), section(code.table, code.table_at, B_CELL)
    a_weight, b_weight = section(code.weight, code.weight_at, A), section(code.weight, code.weight_at, B)
    for e in range(len(ops)):
        a, b = _combine(a_ptr, a_cell, a_weight, e, along), _combine(b_ptr, b_cell, b_weight, e, along)
        mixed = load(partial, 5 * e + 3)
        store(turned, 2 * e, fma(mixed, b, mul(load(partial, 5 * e + 2), a)))
        store(turned, 2 * e + 1, fma(load(partial, 5 * e + 4), b, mul(mixed, a)))
        store(along, code.first + e, fma(load(partial, 5 * e + 1), b, mul(load(partial, 5 * e), a)))
    ptr, row = section(code.table, code.table_at, BACK_PTR), section(code.table, code.table_at, BACK_ROW)
    back = section(code.weight, code.weight_at, BACK)
    reader, op = section(code.table, code.table_at, READER_PTR), section(code.table, code.table_at, READER_OP)
    slope, share = section(code.table, code.table_at, READER_SLOPE), section(code.weight, code.weight_at, READER)
    cell_count = len(reader) - 1
    for i in range(cell_count):
        cell = max(cell_count - 1 - i, 0)  # not negative: spares a check at every access
        first, second = full(0.0), full(0.0)
        for p in range(ptr[cell], ptr[cell + 1]):
            first = fma(full(back[p]), load(multipliers, row[p]), first)
            second = fma(full(back[p]), load(nu, row[p]), second)
        for p in range(reader[cell], reader[cell + 1]):
            e = op[p]
            by, turn = load(partial, slope[p]), load(turned, slope[p] - 3 * e)
            upper = load(adjoint, code.first + e)
            change = fma(upper, turn, mul(load(out, code.first + e), by))
            first = fma(full(share[p]), mul(upper, by), first)
            second = fma(full(share[p]), change, second)
        store(adjoint, cell, first)
        store(out, cell, second)
