"""The laws linearized at any field, through the stages of a plan: J, and the factor of JDJᵀ. For draws and metrics.

Affine rows P determine as many unknowns P, whatever û is (substitutions, marches); rows R are the others, over free unknowns F,
too. J_PP never changes and is triangular by blocks in the order of the stages, so S x = b with S = JDJᵀ is a walk forward and
one back (math.md, eq. tangent):

    z = J_PP⁻¹ b_P,    (J_RF D_F J_RFᵀ) x_R = b_R − J_RP z,    x_P = J_PP⁻ᵀ (D_P⁻¹ z − J_RPᵀ x_R)

Only the matrix of R is factorized as a Gram matrix. No curvature, any diagonal D > 0. Must not import solve.newton.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csc_array, csr_array
from scipy.sparse.linalg import SuperLU, splu

from snapfm.arrays import Index, Mask, Values
from snapfm.compile import CompiledLaws, Pattern, RowKind
from snapfm.laws import Params
from snapfm.linear import Solver
from snapfm.linear.gram import Gram, GramFactor
from snapfm.solve.plan import Plan

_SOFT = 1e-13  # added to the Gram matrix relative to its diagonal: rows that repeat each other stay solvable
_PIVOT = 1e-3  # a diagonal pivot above this share of its column is taken: blocks need no more than a few exchanges


class Tangents:
    """The rows of compiled laws that do not follow from others, and what a plan says of their Jacobian. Never changes.

    `among` marks the rows that are meant, if not all; `linear` factorizes the Gram matrices.
    """

    def __init__(self, laws: CompiledLaws, plan: Plan, linear: Solver | None, among: Mask | None = None) -> None:
        self.laws, self._plan, self._linear = laws, plan, linear
        kept = np.ones(laws.rows, bool) if among is None else among.copy()
        follows = plan.reduction.implied
        kept[laws.presolve.dropped] = False
        kept[follows[laws.equality_rows[follows]]] = False
        self.rows: Index = np.flatnonzero(kept)
        self.equality: Mask = laws.equality_rows[self.rows]
        self.changing: Mask = (laws.kinds != RowKind.AFFINE)[self.rows]  # whose slopes depend on the field
        self.constant = not bool(self.changing.any())
        self._entries, self._pattern = laws.pattern.entries(self.rows), laws.pattern.take(self.rows)
        number = np.full(laws.rows, -1)
        number[self.rows] = np.arange(len(self.rows))
        self._first, self._determined = self._find_determined(number, marches=linear is None)
        others = np.ones(len(self.rows), bool)
        others[self._first] = False
        self._others: Index = np.flatnonzero(others)
        place = np.full(laws.unknowns, -1)
        place[self._determined] = np.arange(len(self._determined))
        self._inside = _Block(self._pattern, self._first, place >= 0, place, len(self._determined))
        self._across = _Block(self._pattern, self._others, place >= 0, place, len(self._determined))
        self._free = _Block(self._pattern, self._others, place < 0, np.arange(len(place)), len(place))
        self._gram = Gram(self._free.of(np.ones(self._pattern.nnz)), linear)
        self._steady: _Inside | None = None  # the factor of J_PP, made with the first Jacobian

    @cached_property
    def equalities(self) -> Tangents:
        """The equalities alone, with a factorization of their own; inequalities may be many times as many."""
        if bool(self.equality.all()):
            return self
        return Tangents(self.laws, self._plan, self._linear, self.laws.equality_rows)

    def jacobians(self, u: Values, params: Params) -> list[csr_array]:
        """Evaluate the Jacobian (m, n) at each field of u (b, n)."""
        field = torch.from_numpy(u).reshape(len(u), *self.laws.shape)
        values = self.laws.jacobian(field, params).numpy()
        return [self._pattern.csr(one[self._entries]) for one in values]

    def residuals(self, u: Values, params: Params) -> Values:
        """Evaluate the rows (b, m) at fields u (b, n)."""
        field = torch.from_numpy(u).reshape(len(u), *self.laws.shape)
        found: Values = self.laws.residual(field, params).numpy()[:, self.rows]
        return found

    def factor(self, jacobian: csr_array, diagonal: Values, active: Mask) -> Tangent:
        """Factorize JDJᵀ with D = diag(diagonal); rows that are not active, inequalities, become those of the identity."""
        data = jacobian.data if active.all() else jacobian.data * np.repeat(active, np.diff(jacobian.indptr))
        inside = self._steady
        if inside is None:
            self._steady = inside = _Inside(self._inside.of(data))
        free = self._free.of(data * np.sqrt(diagonal)[jacobian.indices])
        own = diagonal[self._determined]
        return Tangent(self._first, self._others, own, inside, self._across.of(data), self._gram.factor(free, _SOFT))

    def _find_determined(self, number: Index, marches: bool) -> tuple[Index, Index]:
        """List the rows that determine unknowns, as numbered here, and these unknowns, in the order of the stages.

        Only rows whose slopes never change: linearized at a field far from the laws, a chain of nonlinear time steps grows from
        step to step. And only those that read nothing else: pairs that a plan rotates stay with the others.
        """
        rows, unknowns, known = [], [], np.zeros(self.laws.unknowns, bool)
        for stage in self._plan.stages:
            for block in stage.determined:
                mine = number[block.rows]
                if (mine < 0).any() or (block.coupled and not marches):
                    continue
                inside = known.copy() if block.coupled else known
                inside[block.unknowns] = True
                reads = self.laws.pattern.take(block.rows)
                good = np.logical_and.reduceat(inside[reads.indices], reads.indptr[:-1]) & ~self.changing[mine]
                if block.coupled and not good.all():
                    continue
                known[block.unknowns] = good
                rows.append(mine[good])
                unknowns.append(block.unknowns[good])
        nothing = np.zeros(0, np.int64)
        return np.concatenate([nothing, *rows]), np.concatenate([nothing, *unknowns])


@dataclass(frozen=True)
class Tangent:
    """The factor of JDJᵀ at one field."""

    first: Index  # rows P, in the order of the stages
    others: Index  # rows R
    diagonal: Values  # D of the unknowns P
    inside: _Inside  # J_PP
    across: csr_array  # J_RP
    gram: GramFactor

    @cached_property
    def log_determinant(self) -> float:
        """The logarithm of det JDJᵀ."""
        return 2.0 * self.inside.log_determinant + float(np.log(self.diagonal).sum()) + self.gram.log_determinant

    def solve(self, right: Values) -> Values:
        """Solve for the rows of `right` (k, m); an answer's bits do not depend on the other rows."""
        found = np.empty_like(right)
        if not len(self.first):
            found[:, self.others] = self.gram.solve(np.ascontiguousarray(right[:, self.others]))
            return found
        z = self.inside.solve(right[:, self.first])
        x = self.gram.solve(right[:, self.others] - (self.across @ z.T).T)
        found[:, self.others] = x
        found[:, self.first] = self.inside.solve(z / self.diagonal - (self.across.T @ x.T).T, transposed=True)
        return found


class _Block:
    """Some rows and columns of a sparse matrix with a fixed pattern, numbered anew."""

    def __init__(self, pattern: Pattern, rows: Index, inside: Mask, place: Index, width: int) -> None:
        entries = pattern.entries(rows)
        kept = inside[pattern.indices[entries]]
        self._entries = entries[kept]
        self._columns = place[pattern.indices[self._entries]]
        counts = np.bincount(np.repeat(np.arange(len(rows)), pattern.counts[rows])[kept], minlength=len(rows))
        self._ends, self._shape = np.concatenate([[0], np.cumsum(counts)]), (len(rows), width)

    def of(self, data: Values) -> csr_array:
        """Return the block of a matrix with these entries."""
        return csr_array((data[self._entries], self._columns, self._ends), shape=self._shape)


class _Inside:
    """J_PP, factorized. A matrix that is singular has no solutions: NaN."""

    def __init__(self, matrix: csr_array) -> None:
        self._diagonal: Values | None = None
        self._factor: SuperLU | None = None
        if matrix.nnz == matrix.shape[0]:
            self._diagonal = matrix.diagonal()
            self.log_determinant = float(np.log(np.abs(self._diagonal)).sum())
            return
        self.log_determinant = -np.inf
        if np.isfinite(matrix.data).all():
            # Transposed it is upper triangular by blocks: columns meet pivots of their own block only, and nothing fills in.
            upper = csc_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
            with suppress(RuntimeError):  # SuperLU met a pivot that is exactly zero
                self._factor = splu(upper, permc_spec="NATURAL", diag_pivot_thresh=_PIVOT, options={"Equil": False})
                self.log_determinant = float(np.log(np.abs(self._factor.U.diagonal())).sum())

    def solve(self, right: Values, transposed: bool = False) -> Values:
        """Solve for the rows of `right` (k, p)."""
        if self._diagonal is not None:
            found: Values = right / self._diagonal
            return found
        if self._factor is None:
            return np.full_like(right, np.nan)
        solved = [self._factor.solve(np.ascontiguousarray(one), "N" if transposed else "T") for one in right]
        return np.stack(solved) if solved else right
