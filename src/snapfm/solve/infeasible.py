"""Proof that laws cannot hold: a combination of rows that stays away from zero, or an implied row that is broken.

`Proof` serves solve.attempts.restoration, `contradicts` the judge. INFEASIBLE is never reported without one of them. Must not
import solve.system or project.judge.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.sparse import csr_array, diags_array, hstack
from torch import Tensor

from snapfm.arrays import Index, Mask, Values
from snapfm.compile import CompiledLaws
from snapfm.compile.presolve import factored
from snapfm.compile.sparsity.pattern import TooDense, TooLarge
from snapfm.kernels.operators import Op
from snapfm.kernels.program import Code
from snapfm.laws import Params
from snapfm.reduce.reduce import System

_FAR = 1e3  # times the size of the input: the range assumed for unknowns without limits
_DENSE = 1_000_000  # entries up to which weights are balanced by a dense factorization
_SHARES = (0.0, 1e-6, 1e-4, 1e-2)  # of the largest weight: rows with less are left out


class Proof:
    """A combination of rows that stays away from zero wherever the unknowns are (math.md, eq. proof).

    Rows are linear in cells: unknowns and the values of operations. With weights y, non-negative on inequalities, Σ y h is
    bounded from below over the ranges of all cells, where an unknown and its own squares are bounded together. If the bound
    exceeds tolerance·Σ|y|, no field obeys to the tolerance. The weights come from restoration, which ends where Jᵀy vanishes.
    If the proof fails nothing is known. Unknowns without limits are taken to lie within a thousand times the size of the
    input, or of one if that is larger. Prepared for one system at its first use.
    """

    def __init__(self, system: System) -> None:
        self.system = system

    def holds(
        self, cells: Values, rows: Values, weights: Values, target: Values, lower: Values, upper: Values, tolerance: float
    ) -> Mask:  # fmt: skip
        """Mark the lanes for which it is proven that no field obeys.

        Per lane: values of all cells, and of the rows at the least violation; `weights` of the rows' squares there; `target` û
        and limits of the unknowns. All in the laws' own units.
        """
        if self.system.opaque:  # nothing is known of the rows away from the points they were evaluated at
            return np.zeros(len(cells), bool)
        whole = weights * np.where(self.system.equality, rows, np.maximum(rows, 0.0))
        far = _FAR * np.maximum(np.abs(cells[:, self.system.places]), np.abs(target)).max(axis=1, initial=1.0)[:, None]
        low, high = self._ranges(cells, lower, upper, far)
        share = np.abs(whole) / np.sqrt(weights)
        free = np.isinf(lower[0]) & np.isinf(upper[0])  # the same for all lanes
        proven = np.zeros(len(cells), bool)
        for least in _SHARES:  # any weights are valid: rows of small weight only weaken the bound
            y = np.where(share >= least * share.max(axis=1, keepdims=True, initial=0.0), whole, 0.0)
            for tried in (y, self._balanced(y, free)):
                bound = self._bound(cells, tried, low, high, far)
                proven |= np.isfinite(bound) & (bound > tolerance * np.abs(tried).sum(axis=1))
        return proven

    def _balanced(self, y: Values, free: Mask) -> Values:
        """Remove from y what moves unknowns without limits or squares, as restoration would if it went on for ever."""
        pulled = np.setdiff1d(self.system.places[free], self._squares[1])
        matrix = hstack([csr_array(self._rows[:, pulled]), self.system.linear])
        if matrix.shape[0] * matrix.shape[1] > _DENSE:
            return y
        basis = matrix.toarray()
        left: Values = y - (basis @ np.linalg.lstsq(basis, y.T, rcond=None)[0]).T
        return np.where(self.system.equality, left, np.maximum(left, 0.0))

    def _bound(self, cells: Values, y: Values, low: Values, high: Values, far: Values) -> Values:
        """Bound Σ y h from below."""
        combined = y @ self._rows
        least = np.where(combined > 0.0, combined * low, combined * high)
        least[combined == 0.0] = 0.0
        self._join_squares(cells, combined, least)
        eliminated = np.abs(y @ self.system.linear) * far
        bound: Values = least.sum(axis=1) - eliminated.sum(axis=1)
        return bound

    def _join_squares(self, cells: Values, combined: Values, least: Values) -> None:
        """Bound unknowns together with the squares (w x + b)² in them, where that is sharper. Written: least."""
        number, place, weight = self._squares
        if not len(number):
            return
        unknown, which = np.unique(place, return_inverse=True)
        ops = self._code.first + number
        c, rest = combined[:, ops], self._operand_at(cells, number) - weight * cells[:, place]
        shape = (len(cells), len(unknown))
        square, slope = np.zeros(shape), combined[:, unknown].copy()
        constant, apart = np.zeros(shape), least[:, unknown].copy()
        lanes = np.arange(len(cells))[:, None]
        np.add.at(square, (lanes, which[None]), c * weight**2)
        np.add.at(slope, (lanes, which[None]), 2.0 * c * weight * rest)
        np.add.at(constant, (lanes, which[None]), c * rest**2)
        np.add.at(apart, (lanes, which[None]), least[:, ops])
        with np.errstate(divide="ignore"):
            together = np.where(square > 0.0, constant - slope**2 / (4.0 * square), -np.inf)
        least[:, ops] = 0.0
        least[:, unknown] = np.maximum(apart, together)

    def _operand_at(self, cells: Values, number: Index) -> Values:
        """Evaluate the first operand of some operations."""
        ptr = self._code.a_ptr
        matrix = csr_array((self._code.a_weight, self._code.a_cell, ptr), shape=(len(ptr) - 1, cells.shape[1]))
        value: Values = cells @ csr_array(matrix[number]).T
        return value

    @cached_property
    def _squares(self) -> tuple[Index, Index, Values]:
        """Operations that are squares of one unknown, w x + b: their numbers, the cell of x, and w."""
        ptr, cell, weight = self._code.a_ptr, self._code.a_cell, self._code.a_weight
        varies = np.concatenate([np.isin(np.arange(self._code.first), self.system.places), self._varying])
        ops, found = self._code.ops, []
        for e in np.flatnonzero((ops == Op.SQUARE) | (ops == Op.MUL)):
            mine = np.arange(ptr[e], ptr[e + 1])
            mine = mine[varies[cell[mine]]]
            alone = len(mine) == 1 and cell[mine[0]] < self._code.first
            if alone and (ops[e] == Op.SQUARE or self._same_operands(int(e))):
                found.append((int(e), int(cell[mine[0]]), float(weight[mine[0]])))
        number, place, w = zip(*found) if found else ((), (), ())
        return np.array(number, np.int64), np.array(place, np.int64), np.array(w)

    def _ranges(self, cells: Values, lower: Values, upper: Values, far: Values) -> tuple[Values, Values]:
        """Return the range of every cell: its value if it is constant, else the range of its unknown or operation."""
        low, high = cells.copy(), cells.copy()
        low[:, self.system.places] = np.where(np.isfinite(lower), lower, -far)
        high[:, self.system.places] = np.where(np.isfinite(upper), upper, far)
        first, (least, most) = self._code.first, self._operations
        varies = first + np.flatnonzero(self._varying)
        low[:, varies], high[:, varies] = least[self._varying], most[self._varying]
        number, place, weight = self._squares
        rest = self._operand_at(cells, number) - weight * cells[:, place]
        reach = np.abs(weight) * np.maximum(np.abs(low[:, place]), np.abs(high[:, place])) + np.abs(rest)
        high[:, first + number] = reach**2
        return low, high

    @property
    def _code(self) -> Code:
        return self.system.program.code

    @cached_property
    def _rows(self) -> csr_array:
        """The rows over all cells but the spare ones."""
        ptr, cell, weight = self._code.row_ptr, self._code.row_cell, self._code.row_weight
        program = self.system.program
        return csr_array((weight, cell, ptr), shape=(len(ptr) - 1, self._code.first + program.operations))

    @cached_property
    def _operations(self) -> tuple[Values, Values]:
        """The range of every operation's values, whatever its operands are."""
        ops = self._code.ops
        low, high = np.full(len(ops), -np.inf), np.full(len(ops), np.inf)
        for op in Op:
            low[ops == op], high[ops == op] = op.range
        for e in np.flatnonzero(ops == Op.MUL):
            if self._same_operands(int(e)):
                low[e] = 0.0
        return low, high

    @cached_property
    def _varying(self) -> Mask:
        """Operations that depend on an unknown that is iterated on; the others are constant."""
        varies = np.zeros(self._code.first + self.system.program.operations, bool)
        varies[self.system.places] = True
        code = self._code
        operands = ((code.a_ptr, code.a_cell), (code.b_ptr, code.b_cell), (code.c_ptr, code.c_cell))
        for e in range(self.system.program.operations):
            varies[self._code.first + e] = any(varies[cell[ptr[e] : ptr[e + 1]]].any() for ptr, cell in operands)
        return varies[self._code.first :]

    def _same_operands(self, e: int) -> bool:
        a, b = self._code.a_ptr[e : e + 2], self._code.b_ptr[e : e + 2]
        one, two = slice(*a), slice(*b)
        return np.array_equal(self._code.a_cell[one], self._code.b_cell[two]) and np.array_equal(
            self._code.a_weight[one], self._code.b_weight[two]
        )


_ROUNDS = 3  # of correction, which remove the effect of the shift that keeps dependent rows factorable
_REBUILT = 1e-8  # share of a row that may remain; with more it does not follow from the others
_ROOM = 4.0  # safety factor of the bound on rounding


def contradicts(
    laws: CompiledLaws, implied: Index, residual: Values, u: Tensor, params: Params, tolerance: Values
) -> bool:
    """Whether an implied row of one sample contradicts the equalities, which hold to the tolerance (math.md, eq. implied).

    Every row has a tolerance (m,).
    """
    try:
        pattern = laws.pattern
    except TooDense:  # as by the field, where laws are solved over coefficients of it: nothing is known
        return False
    jacobian = laws.jacobian(u.reshape(1, *laws.shape), params)[0].numpy()
    slopes = pattern.csr(jacobian * laws.scale[pattern.indices])
    others = np.setdiff1d(np.flatnonzero(laws.equality_rows), implied)
    size = np.abs(u.numpy().ravel() / laws.scale)
    broken = np.abs(residual) if laws.equality_rows.all() else np.where(laws.equality_rows, np.abs(residual), residual)
    terms = abs(slopes) @ size
    roundings = _ROOM * laws.unknowns * np.finfo(float).eps
    rows = implied[broken[implied] > tolerance[implied] + roundings * terms[implied]]
    if not len(rows) or not np.isfinite(slopes.data).all():
        return False
    basis, wanted = csr_array(slopes[others]), csr_array(slopes[rows])
    weights, left = _rebuilt(basis, wanted)
    follows = left <= _REBUILT * np.sqrt(np.asarray(wanted.multiply(wanted).sum(axis=1)).ravel())
    bound = roundings * (np.abs(weights) @ terms[others] + terms[rows]) + np.abs(weights) @ np.abs(residual[others])
    return bool((follows & (broken[rows] > tolerance[rows] + bound)).any())


def _rebuilt(basis: csr_array, wanted: csr_array) -> tuple[Values, Values]:
    """Return the least-squares weights (wanted, basis) of rows over others, and the norms of the remainders."""
    target = wanted.toarray()
    if basis.shape[0] == 0:
        return np.zeros((len(target), 0)), np.linalg.norm(target, axis=1)
    norms = np.sqrt(np.asarray(basis.multiply(basis).sum(axis=1)).ravel())
    unit = csr_array(diags_array(1.0 / np.where(norms > 0.0, norms, 1.0)) @ basis)
    try:
        factor = factored(unit)
    except TooLarge:  # nothing is known
        return np.zeros((len(target), basis.shape[0])), np.full(len(target), np.inf)
    weights = np.zeros((len(target), basis.shape[0]))
    for _ in range(_ROUNDS):
        weights += factor.solve(unit @ (target - weights @ unit).T).T
    return weights / np.where(norms > 0.0, norms, 1.0), np.linalg.norm(target - weights @ unit, axis=1)
