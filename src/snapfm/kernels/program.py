"""Run a program on tiles of eight samples: values, residual rows, slopes and curvature of nonlinear rows.

A program is a sequence of nonlinear operations on single numbers (cells) whose operands are linear combinations of
earlier cells. Its arrays are described in structure.program, which builds them. State of one tile is a flat array
of packs per name; nothing is allocated here, and a lane's bits do not depend on its neighbours.
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
    bacnumberptr: Index  # (e + 1,) rows that read each operation directly, with weights: where its adjoint starts
    bacnumberrow: Index
    bacnumberweight: Values
    bend_ptr: Index  # (hessian entries + 1,) contributions to each: operation, which curvature, two slots
    bend_op: Index
    bend_kind: Index  # 0: f_aa, 1: f_ab, 2: f_bb
    bend_left: Index
    bend_right: Index


@njit(cache=True, nogil=True)
def _combine(ptr, cell, weight, position, cells, out):  # type: ignore[no-untyped-def]  # written: out (LANES,)
    total = full(0.0)
    for p in range(ptr[position], ptr[position + 1]):
        total = fma(full(weight[p]), load(cells, cell[p]), total)
    store(out, 0, total)


@njit(cache=True, nogil=True)
def tile_values(code, cells, rows):  # type: ignore[no-untyped-def]  # written: cells (operations), rows
    """Evaluate operations and residual rows of one tile."""
    a, b, c, value = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    for e in range(len(code.ops)):
        _combine(code.a_ptr, code.a_cell, code.a_weight, e, cells, a)
        _combine(code.b_ptr, code.b_cell, code.b_weight, e, cells, b)
        _combine(code.c_ptr, code.c_cell, code.c_weight, e, cells, c)
        apply(code.ops[e], a, b, c, value)
        store(cells, code.first + e, load(value, 0))
    for r in range(len(code.row_ptr) - 1):
        total = full(0.0)
        for p in range(code.row_ptr[r], code.row_ptr[r + 1]):
            total = fma(full(code.row_weight[p]), load(cells, code.row_cell[p]), total)
        store(rows, r, total)


@njit(cache=True, nogil=True)
def tile_slopes(code, flow, varying, cells, slots, left, right, partial, entries):  # type: ignore[no-untyped-def]
    """Evaluate slopes of one tile at cells already valued.

    Read: cells, varying (the entry each result belongs to). Written: slots, left and right (slopes of the operands),
    partial (five packs per operation: f_a, f_b, f_aa, f_ab, f_bb) and, where they vary, the Jacobian's entries.
    """
    a, b, c, value = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    fa, fb = np.empty(LANES), np.empty(LANES)
    faa, fab, fbb = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    store(slots, 0, full(1.0))
    for e in range(len(code.ops)):
        _combine(code.a_ptr, code.a_cell, code.a_weight, e, cells, a)
        _combine(code.b_ptr, code.b_cell, code.b_weight, e, cells, b)
        _combine(code.c_ptr, code.c_cell, code.c_weight, e, cells, c)
        store(value, 0, load(cells, code.first + e))
        slopes(code.ops[e], a, b, c, value, fa, fb, faa, fab, fbb)
        store(partial, 5 * e, load(fa, 0))
        store(partial, 5 * e + 1, load(fb, 0))
        store(partial, 5 * e + 2, load(faa, 0))
        store(partial, 5 * e + 3, load(fab, 0))
        store(partial, 5 * e + 4, load(fbb, 0))
        for q in range(flow.slot_ptr[e], flow.slot_ptr[e + 1]):
            from_a, from_b = full(0.0), full(0.0)
            for p in range(flow.a_ptr[q], flow.a_ptr[q + 1]):
                from_a = fma(full(flow.a_weight[p]), load(slots, flow.a_slot[p]), from_a)
            for p in range(flow.b_ptr[q], flow.b_ptr[q + 1]):
                from_b = fma(full(flow.b_weight[p]), load(slots, flow.b_slot[p]), from_b)
            store(left, q, from_a)
            store(right, q, from_b)
            store(slots, 1 + q, fma(load(fb, 0), from_b, mul(load(fa, 0), from_a)))
    for r in range(len(flow.entry_ptr) - 1):
        total = full(0.0)
        for p in range(flow.entry_ptr[r], flow.entry_ptr[r + 1]):
            total = fma(full(flow.entry_weight[p]), load(slots, flow.entry_slot[p]), total)
        store(entries, varying[r], total)


@njit(cache=True, nogil=True)
def tile_bends(code, flow, weight, left, right, partial, adjoint, bends):  # type: ignore[no-untyped-def]
    """Evaluate Σ weight·∇²row of one tile. Read: weight (rows), left, right, partial; written: adjoint, bends."""
    for e in range(len(code.ops)):
        total = full(0.0)
        for p in range(flow.bacnumberptr[e], flow.bacnumberptr[e + 1]):
            total = fma(full(flow.bacnumberweight[p]), load(weight, flow.bacnumberrow[p]), total)
        store(adjoint, e, total)
    for e in range(len(code.ops) - 1, -1, -1):
        here = load(adjoint, e)
        by_a = mul(here, load(partial, 5 * e))
        for p in range(code.a_ptr[e], code.a_ptr[e + 1]):
            earlier = code.a_cell[p] - code.first
            if earlier >= 0:
                store(adjoint, earlier, fma(full(code.a_weight[p]), by_a, load(adjoint, earlier)))
        by_b = mul(here, load(partial, 5 * e + 1))
        for p in range(code.b_ptr[e], code.b_ptr[e + 1]):
            earlier = code.b_cell[p] - code.first
            if earlier >= 0:
                store(adjoint, earlier, fma(full(code.b_weight[p]), by_b, load(adjoint, earlier)))
    for h in range(len(flow.bend_ptr) - 1):
        total = full(0.0)
        for p in range(flow.bend_ptr[h], flow.bend_ptr[h + 1]):
            e, kind = flow.bend_op[p], flow.bend_kind[p]
            bend = mul(load(adjoint, e), load(partial, 5 * e + 2 + kind))
            if kind == 0:
                bend = mul(bend, mul(load(left, flow.bend_left[p]), load(left, flow.bend_right[p])))
            elif kind == 1:
                bend = mul(bend, mul(load(left, flow.bend_left[p]), load(right, flow.bend_right[p])))
            else:
                bend = mul(bend, mul(load(right, flow.bend_left[p]), load(right, flow.bend_right[p])))
            total = add(total, bend)
        store(bends, h, total)


@njit(cache=True, nogil=True, parallel=True)
def run_values(code, cells, rows):  # type: ignore[no-untyped-def]  # read: code; written: cells (tiles, …), rows
    """Evaluate operations and residual rows of all tiles."""
    for number in prange(len(cells)):
        tile = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        tile_values(code, cells[tile], rows[tile])


@njit(cache=True, nogil=True, parallel=True)
def run_slopes(code, flow, varying, cells, slots, left, right, partial, entries):  # type: ignore[no-untyped-def]
    """Evaluate slopes of all tiles; see tile_slopes."""
    for number in prange(len(cells)):
        tile = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        tile_slopes(
            code, flow, varying, cells[tile], slots[tile], left[tile], right[tile], partial[tile], entries[tile]
        )


@njit(cache=True, nogil=True, parallel=True)
def run_bends(code, flow, weight, left, right, partial, adjoint, bends):  # type: ignore[no-untyped-def]
    """Evaluate Σ weight·∇²row of all tiles; see tile_bends."""
    for number in prange(len(weight)):
        tile = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        tile_bends(
            code, flow, weight[tile], left[tile], right[tile], partial[tile], adjoint[tile], bends[tile]
        )


@njit(cache=True, nogil=True, parallel=True)
def run_gradient(code, cells, weight, adjoint):  # type: ignore[no-untyped-def]
    """adjoint = gradient of Σ weight·row in every cell, backwards. Read: cells, weight (rows); written: adjoint (cells)."""
    for number in prange(len(cells)):
        tile = np.int64(number)  # prange counts unsigned, which would compile everything below twice
        _tile_gradient(code, cells[tile], weight[tile], adjoint[tile])


@njit(cache=True, nogil=True)
def _tile_gradient(code, cells, weight, adjoint):  # type: ignore[no-untyped-def]
    adjoint[:] = 0.0
    a, b, c, value = np.empty(LANES), np.empty(LANES), np.empty(LANES), np.empty(LANES)
    fa, fb = np.empty(LANES), np.empty(LANES)
    faa, fab, fbb = np.empty(LANES), np.empty(LANES), np.empty(LANES)
    for r in range(len(code.row_ptr) - 1):
        here = load(weight, r)
        for p in range(code.row_ptr[r], code.row_ptr[r + 1]):
            store(adjoint, code.row_cell[p], fma(full(code.row_weight[p]), here, load(adjoint, code.row_cell[p])))
    for e in range(len(code.ops) - 1, -1, -1):
        _combine(code.a_ptr, code.a_cell, code.a_weight, e, cells, a)
        _combine(code.b_ptr, code.b_cell, code.b_weight, e, cells, b)
        _combine(code.c_ptr, code.c_cell, code.c_weight, e, cells, c)
        store(value, 0, load(cells, code.first + e))
        slopes(code.ops[e], a, b, c, value, fa, fb, faa, fab, fbb)
        here = load(adjoint, code.first + e)
        by_a, by_b = mul(here, load(fa, 0)), mul(here, load(fb, 0))
        for p in range(code.a_ptr[e], code.a_ptr[e + 1]):
            store(adjoint, code.a_cell[p], fma(full(code.a_weight[p]), by_a, load(adjoint, code.a_cell[p])))
        for p in range(code.b_ptr[e], code.b_ptr[e + 1]):
            store(adjoint, code.b_cell[p], fma(full(code.b_weight[p]), by_b, load(adjoint, code.b_cell[p])))
