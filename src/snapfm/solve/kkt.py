"""The KKT matrix of a System: its pattern, the terms of every entry, and its symbolic factorization. No values.

Prepared for solve.system (stop 6 of the walk). The Schur complement JD⁻¹Jᵀ + G is used if its products are few enough to be
listed and the Hessian is diagonal, or conjugate gradients on top of it (kernels.coupled) are cheaper than a factor of the
augmented matrix [[W, Jᵀ], [J, −G]]. Must not import solve.system.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import block_array, coo_array, csr_array, eye_array, tril

from snapfm.arrays import Index, Table, Values
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.kernels import layout as core
from snapfm.kernels.factor.ordering import best
from snapfm.kernels.factor.panels import Schedule, schedule
from snapfm.kernels.numba.sections import packed
from snapfm.kernels.operations import LANES
from snapfm.linear import Prepared, Solver
from snapfm.linear.automatic import Automatic, predicted_fronts, predicted_lanes
from snapfm.linear.bordered import PreparedBordered
from snapfm.linear.lanes import PreparedLanes
from snapfm.reduce.reduce import System

# Row and column of each entry of the lower triangle, its constant part, and where its terms begin, left and right.
Matrix: TypeAlias = tuple[Index, Index, Values, Index, Table, Table]

# Products listed for the Schur matrix: beyond this the augmented matrix is the smaller one.
_PRODUCTS = 30_000_000
# Conjugate gradients of a Newton step, where the Hessian is not diagonal; 3 to 10 on joint fields of coefficient and solution.
_ITERATIONS = 10
# Augmented matrices with more rows than this are not even looked at: ordering them takes longer than they could save.
_LARGE = 50_000
# Rows that vary, and rows of constant slope, from which on the factor of the latter is shared by all samples.
_FEW, _MANY = 16, 2000


@cache
def _empty_schedule() -> Schedule:
    """Return a schedule that nothing reads, for systems that a callback factorizes; not at import, which would compile it."""
    return schedule(np.array([0, 1]), np.zeros(1, np.int64), np.zeros(1, np.int64))


@dataclass(frozen=True)
class KKT:
    """The KKT matrix of a System, without values. `linear` is its symbolic factorization."""

    frame: core.Frame
    linear: Prepared

    @cached_property
    def fused(self) -> bool:
        """Whether the compiled loop factorizes itself, without a callback."""
        return isinstance(self.linear, PreparedLanes)

    @cached_property
    def schedule(self) -> Schedule:
        """What the compiled loop factorizes by."""
        return self.linear.plan if isinstance(self.linear, PreparedLanes) else _empty_schedule()

    @property
    def entries(self) -> int:
        """Number of entries of the matrix, lower triangle."""
        return self.linear.pattern.nnz

    def bytes(self, lanes: int) -> float:
        """Predict the bytes of the factors of so many lanes of one tile, outside its scratch memory."""
        return 0.0 if self.fused else predicted_fronts(self.linear.order, lanes).bytes

    def seconds(self) -> float:
        """Predict the seconds of a factorization and two solves of one tile."""
        if self.fused:
            return predicted_lanes(self.linear.order).seconds
        return predicted_fronts(self.linear.order, LANES).seconds


def prepare(system: System, bounded: bool, solver: Solver) -> KKT:
    """Build the KKT matrix of a system; `bounded` says whether its unknowns have limits."""
    program = system.program
    pattern, m, v = program.pattern, program.pattern.rows, program.pattern.columns
    columns = pattern.csr(np.arange(1.0, pattern.nnz + 1)).tocsc()
    column_entry = columns.data.astype(np.int64) - 1
    gram = csr_array(system.gram)
    products = _products(columns.indptr, columns.indices, column_entry)
    augmented, shared = products is None, False
    if products is not None:
        matrix = _schur(gram, m, products)
        border = _border(system) if isinstance(solver, Automatic) and not bounded else None
        shared = border is not None
        if border is not None:
            assert isinstance(solver, Automatic)
            values = _values(matrix, program.constants)
            linear: Prepared = PreparedBordered.of(_pattern(matrix, m), values, border, solver.largest)
        else:
            linear = solver.prepare(_pattern(matrix, m), None)
    if products is None or not (program.diagonal or shared or m + v > _LARGE):
        whole, signs = _augmented(system), np.concatenate([np.ones(v, np.int64), -np.ones(m, np.int64)])
        if products is None or _cheaper(_pattern(whole, m + v), signs, linear, pattern.nnz + program.hessian.nnz):
            augmented, matrix = True, whole
            linear = solver.prepare(_pattern(whole, m + v), signs)
    row, column, constant, ptr, left, right = matrix
    hessian = program.hessian
    table = {
        "place": system.places, "row_ptr": pattern.indptr, "column": pattern.indices, "column_ptr": columns.indptr,
        "column_row": columns.indices, "column_entry": column_entry, "gram_ptr": gram.indptr,
        "gram_column": gram.indices, "hessian_row": hessian.row_of(), "hessian_column": hessian.indices,
        "entry_row": row, "entry_column": column, "term_ptr": ptr, "term_left": left, "term_right": right,
        "equality": system.equality,
    }  # fmt: skip
    weight = {"gram": gram.data, "entry_constant": constant}
    coupled = shared or not (augmented or program.diagonal)
    frame = core.Frame(
        *packed(core.FRAME_TABLE, table, np.int32),
        *packed(core.FRAME_WEIGHT, weight, np.float64),
        int(augmented),
        int(not system.equality.all()),
        int(bounded),
        int(coupled),
        int(shared),
    )
    return KKT(frame, linear)


def _border(system: System) -> Index | None:
    """Return the rows that vary, if the others are so many and these so few that factors of the others are worth sharing."""
    program = system.program
    varies = ~system.equality
    varies[program.pattern.row_of()[program.varying]] = True
    border = np.flatnonzero(varies)
    return border if len(border) <= _FEW and len(varies) - len(border) >= _MANY else None


def _values(matrix: Matrix, jacobian: Values) -> Values:
    """Evaluate the Schur complement at D = I with these entries of J."""
    _, _, constant, ptr, left, right = matrix
    entry = np.repeat(np.arange(len(constant)), np.diff(ptr))
    values: Values = constant + np.bincount(entry, jacobian[left] * jacobian[right], len(constant))
    return values


def _pattern(matrix: Matrix, size: int) -> Pattern:
    row, column = matrix[:2]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=size))]).astype(np.int64)
    return Pattern(size, size, indptr, column)


def _cheaper(whole: Pattern, signs: Index, schur: Prepared, entries: int) -> bool:
    """Whether a factorization of the augmented matrix is cheaper than that of the Schur complement and a solution by iterations.

    `entries` counts those of J and the Hessian, which each iteration reads.
    """
    if whole.rows > _LARGE:
        return False
    iterations = 2 * (schur.order.flops + _ITERATIONS * (2 * schur.order.fill + 2 * entries))
    return best(whole.indptr, whole.indices, signs).flops < iterations


class _Products(NamedTuple):
    """All products in the lower triangle of JJᵀ: row, column, left and right entry. Tens of millions, so in 32 bits."""

    row: Table
    column: Table
    left: Table
    right: Table


def _products(indptr: Index, rows: Index, entry: Index) -> _Products | None:
    """List the products of the columns of J; None if they are too many."""
    counts = np.diff(indptr)
    if int((counts.astype(np.int64) ** 2).sum()) > _PRODUCTS:
        return None
    row, source = rows.astype(np.int32), entry.astype(np.int32)
    repeats = np.repeat(counts, counts).astype(np.int32)
    left = np.repeat(np.arange(len(row), dtype=np.int32), repeats)
    ends = np.cumsum(repeats, dtype=np.int32)
    right = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int32)
    right += np.repeat(np.repeat(indptr[:-1].astype(np.int32), counts) - ends + repeats, repeats)
    lower = row[left] >= row[right]
    left, right = left[lower], right[lower]
    return _Products(row[left], row[right], source[left], source[right])


def _schur(gram: csr_array, m: int, products: _Products) -> Matrix:
    constant = coo_array(gram)
    keep = constant.coords[0] >= constant.coords[1]
    g_row, g_column, g_value = constant.coords[0][keep], constant.coords[1][keep], constant.data[keep]
    listed = products.row * np.int64(m) + products.column
    order = np.argsort(listed, kind="stable")
    listed = listed[order]
    given = g_row.astype(np.int64) * m + g_column
    keys = np.unique(np.concatenate([listed[np.diff(listed, prepend=-1) > 0], given, np.arange(m) * (m + 1)]))
    values = np.zeros(len(keys))
    values[np.searchsorted(keys, given)] = g_value
    ptr = np.searchsorted(listed, np.append(keys, m * m))
    return keys // m, keys % m, values, ptr, products.left[order], products.right[order]


def augmented(system: System, jacobian: Values, hessian: Values) -> csr_array:
    """Evaluate [[W, Jᵀ], [J, −G]] of one sample, both triangles, from the entries of J and of the Hessian's lower triangle."""
    program = system.program
    slopes, lower = program.pattern.csr(jacobian), program.hessian.csr(hessian)
    weight = eye_array(slopes.shape[1]) + lower + tril(lower, -1).T
    return csr_array(block_array([[weight, slopes.T], [slopes, -csr_array(system.gram)]]))


def _augmented(system: System) -> Matrix:
    """List the terms of [[W, Jᵀ], [J, −G]]: `left` places in the Hessian (`right` 1) or in J (0)."""
    program, gram = system.program, coo_array(system.gram)
    m, v = program.pattern.rows, program.pattern.columns
    size = m + v
    hessian = program.hessian
    parts = [  # row, column, constant, which list the value comes from (1: Hessian, 0: J, -1: none), where in it
        (np.arange(v), np.arange(v), np.ones(v), np.full(v, -1), np.zeros(v)),
        (hessian.row_of(), hessian.indices, np.zeros(hessian.nnz), np.ones(hessian.nnz), np.arange(hessian.nnz)),
        (
            v + program.pattern.row_of(), program.pattern.indices, np.zeros(program.pattern.nnz),
            np.zeros(program.pattern.nnz), np.arange(program.pattern.nnz),
        ),
        (v + np.arange(m), v + np.arange(m), np.zeros(m), np.full(m, -1), np.zeros(m)),
        (v + gram.coords[0], v + gram.coords[1], -gram.data, np.full(gram.nnz, -1), np.zeros(gram.nnz)),
    ]  # fmt: skip
    row, column, constant, source, place = (np.concatenate([part[i] for part in parts]) for i in range(5))
    lower = row >= column
    row, column, constant, source, place = (part[lower] for part in (row, column, constant, source, place))
    key = row.astype(np.int64) * size + column.astype(np.int64)
    keys, target = np.unique(key, return_inverse=True)
    values = np.zeros(len(keys))
    np.add.at(values, target, constant)
    listed = source >= 0
    order = np.argsort(target[listed], kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(target[listed], minlength=len(keys)))]).astype(np.int64)
    left, right = place[listed][order].astype(np.int32), source[listed][order].astype(np.int32)
    return keys // size, keys % size, values, ptr, left, right
