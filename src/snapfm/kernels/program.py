"""Run a program on tiles of eight samples: values, residual rows, slopes and curvature of nonlinear rows.

A program is a sequence of nonlinear operations on single numbers (cells) whose operands are linear combinations of
earlier cells. Its arrays are described in structure.program, which builds them. State of one tile is a flat array of
packs per name; nothing is allocated here, and a lane's bits do not depend on its neighbours.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit, prange

from snapfm.kernels.operations import LANES, apply, slopes
from snapfm.kernels.packs import add, fma, full, load, mul, store

Index = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


class Code(NamedTuple):
    """The structure of a program. Cell 0 is the constant 1, then come the inputs, then one cell per operation."""

    first: int  # cell of the first operation
    ops: Index  # (e,) kernels.operations.Op
    a_ptr: Index  # (e + 1,) operand a of each operation: cells and weights
    a_cell: Index
    a_weight: Values
    b_ptr: Index
    b_cell: Index
    b_weight: Values
    c_ptr: Index
    c_cell: Index
    c_weight: Values
    row_ptr: Index  # (m + 1,) each residual row as a sum over cells
    row_cell: Index
    row_weight: Values


class Slopes(NamedTuple):
    """Where derivatives flow. Slot 0 is the constant 1; slot 1 + q is the slope of one operation to one unknown."""

    slot_ptr: Index  # (e + 1,) slots of each operation
    a_ptr: Index  # (slots + 1,) slope of operand a to that unknown: earlier slots and weights
    a_slot: Index
    a_weight: Values
    b_ptr: Index
    b_slot: Index
    b_weight: Values
    entry_ptr: Index  # (entries + 1,) Jacobian entries that vary: slots and weights
    entry_slot: Index
    entry_weight: Values
    back_ptr: Index  # (e + 1,) rows that read each operation directly, with weights: where its adjoint starts
    back_row: Index
    back_weight: Values
    bend_ptr: Index  # (hessian entries + 1,) contributions to each: operation, which curvature, two slots
    bend_op: Index
    bend_kind: Index  # 0: f_aa, 1: f_ab, 2: f_bb
    bend_left: Index
    bend_right: Index


@njit(cache=True, nogil=True)
def _combine(ptr, cell, weight, position, cells, base, out):  # type: ignore[no-untyped-def]  # written: out (LANES,)
    total = full(0.0)
    for p in range(ptr[position], ptr[position + 1]):
        total = fma(full(weight[p]), load(cells, base + cell[p]), total)
    store(out, 0, total)


@njit(cache=True, nogil=True, parallel=True)
def run_values(code, tiles, cells, rows):  # type: ignore[no-untyped-def]  # written: cells (operations), rows
    """Evaluate operations and residual rows of tiles 0 .. tiles − 1."""
    width = code.first + len(code.ops)
    height = len(code.row_ptr) - 1
    for tile in prange(tiles):
        base = tile * width
        a, b, c, value = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
        for e in range(len(code.ops)):
            _combine(code.a_ptr, code.a_cell, code.a_weight, e, cells, base, a)
            _combine(code.b_ptr, code.b_cell, code.b_weight, e, cells, base, b)
            _combine(code.c_ptr, code.c_cell, code.c_weight, e, cells, base, c)
            apply(code.ops[e], a, b, c, value)
            store(cells, base + code.first + e, load(value, 0))
        for r in range(height):
            total = full(0.0)
            for p in range(code.row_ptr[r], code.row_ptr[r + 1]):
                total = fma(full(code.row_weight[p]), load(cells, base + code.row_cell[p]), total)
            store(rows, tile * height + r, total)


@njit(cache=True, nogil=True, parallel=True)
def run_slopes(code, flow, tiles, cells, slots, left, right, partial, entries):  # type: ignore[no-untyped-def]
    """Evaluate slopes at cells already valued.

    Read: cells. Written: slots, left and right (slopes of the operands), partial (five packs per operation: f_a, f_b,
    f_aa, f_ab, f_bb) and entries (the Jacobian entries that vary).
    """
    width = code.first + len(code.ops)
    count = len(flow.a_ptr) - 1
    height = len(flow.entry_ptr) - 1
    for tile in prange(tiles):
        base = tile * width
        start = tile * (count + 1)
        a, b, c, value = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
        fa, fb = np.empty(LANES), np.empty(LANES)
        faa, fab, fbb = np.empty(LANES), np.empty(LANES), np.empty(LANES)
        store(slots, start, full(1.0))
        for e in range(len(code.ops)):
            _combine(code.a_ptr, code.a_cell, code.a_weight, e, cells, base, a)
            _combine(code.b_ptr, code.b_cell, code.b_weight, e, cells, base, b)
            _combine(code.c_ptr, code.c_cell, code.c_weight, e, cells, base, c)
            store(value, 0, load(cells, base + code.first + e))
            slopes(code.ops[e], a, b, c, value, fa, fb, faa, fab, fbb)
            place = (tile * len(code.ops) + e) * 5
            store(partial, place, load(fa, 0))
            store(partial, place + 1, load(fb, 0))
            store(partial, place + 2, load(faa, 0))
            store(partial, place + 3, load(fab, 0))
            store(partial, place + 4, load(fbb, 0))
            for q in range(flow.slot_ptr[e], flow.slot_ptr[e + 1]):
                from_a, from_b = full(0.0), full(0.0)
                for p in range(flow.a_ptr[q], flow.a_ptr[q + 1]):
                    from_a = fma(full(flow.a_weight[p]), load(slots, start + flow.a_slot[p]), from_a)
                for p in range(flow.b_ptr[q], flow.b_ptr[q + 1]):
                    from_b = fma(full(flow.b_weight[p]), load(slots, start + flow.b_slot[p]), from_b)
                store(left, tile * count + q, from_a)
                store(right, tile * count + q, from_b)
                store(slots, start + 1 + q, fma(load(fb, 0), from_b, mul(load(fa, 0), from_a)))
        for r in range(height):
            total = full(0.0)
            for p in range(flow.entry_ptr[r], flow.entry_ptr[r + 1]):
                total = fma(full(flow.entry_weight[p]), load(slots, start + flow.entry_slot[p]), total)
            store(entries, tile * height + r, total)


@njit(cache=True, nogil=True, parallel=True)
def run_bends(code, flow, tiles, weight, left, right, partial, adjoint, bends):  # type: ignore[no-untyped-def]
    """Evaluate Σ weight·∇²row on its pattern. Read: weight (rows), left, right, partial; written: adjoint, bends."""
    operations = len(code.ops)
    rows = len(code.row_ptr) - 1
    count = len(flow.a_ptr) - 1
    height = len(flow.bend_ptr) - 1
    for tile in prange(tiles):
        base = tile * operations
        for e in range(operations):
            total = full(0.0)
            for p in range(flow.back_ptr[e], flow.back_ptr[e + 1]):
                total = fma(full(flow.back_weight[p]), load(weight, tile * rows + flow.back_row[p]), total)
            store(adjoint, base + e, total)
        for e in range(operations - 1, -1, -1):
            here = load(adjoint, base + e)
            by_a = mul(here, load(partial, (base + e) * 5))
            for p in range(code.a_ptr[e], code.a_ptr[e + 1]):
                earlier = code.a_cell[p] - code.first
                if earlier >= 0:
                    store(adjoint, base + earlier, fma(full(code.a_weight[p]), by_a, load(adjoint, base + earlier)))
            by_b = mul(here, load(partial, (base + e) * 5 + 1))
            for p in range(code.b_ptr[e], code.b_ptr[e + 1]):
                earlier = code.b_cell[p] - code.first
                if earlier >= 0:
                    store(adjoint, base + earlier, fma(full(code.b_weight[p]), by_b, load(adjoint, base + earlier)))
        for h in range(height):
            total = full(0.0)
            for p in range(flow.bend_ptr[h], flow.bend_ptr[h + 1]):
                e, kind = flow.bend_op[p], flow.bend_kind[p]
                bend = mul(load(adjoint, base + e), load(partial, (base + e) * 5 + 2 + kind))
                x, y = tile * count + flow.bend_left[p], tile * count + flow.bend_right[p]
                if kind == 0:
                    bend = mul(bend, mul(load(left, x), load(left, y)))
                elif kind == 1:
                    bend = mul(bend, mul(load(left, x), load(right, y)))
                else:
                    bend = mul(bend, mul(load(right, x), load(right, y)))
                total = add(total, bend)
            store(bends, tile * height + h, total)
