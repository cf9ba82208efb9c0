"""The optimality system's transpose at an answer, for gradients through a projection (math.md, eq. adjoint).

[[W, Jᵀ], [J, 0]] (w, ν) = (g, 0) over the rows and unknowns that take part: equalities, inequalities that hold with a
multiplier, and unknowns that no bound holds. Where every row is a sum of functions of one unknown, W is diagonal and a
whole batch is solved at once through J W⁻¹ Jᵀ, on one symbolic analysis; otherwise, and for samples that this leaves
inaccurate, one sparse factorisation a sample. A sample that cannot be solved gets NaN, and no other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import block_array, csr_array, diags_array, eye_array
from scipy.sparse.linalg import splu
from torch import Tensor

from snapfm.errors import UnsupportedLaw
from snapfm.kernels.gram import gram, plan
from snapfm.kernels.sparse import lanes_product, lanes_transposed
from snapfm.laws import Params
from snapfm.linear import LANES_AT_ONCE, Lanes, Workspace
from snapfm.project.limits import Limits
from snapfm.project.workspaces import Workspaces
from snapfm.structure import CompiledLaws, RowKind
from snapfm.structure.pattern import Pattern

Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# Relative to ‖J‖²: keeps the system solvable when rows repeat each other, far below any gradient that matters.
_SOFT = 1e-13
# A multiplier above this share of the largest one belongs to an inequality that holds.
_HOLDS = 1e-9
# What may be left of J w, relative to its terms, before a sample is solved by the slower way.
_ACCURATE = 1e-9
_SOLVES = 3  # each for what is left of J w: the further ones take out what the soft diagonal and rounding leave


class Adjoint:
    """Prepared for one structure and its limits; the symbolic work is done at the first gradient.

    `batched=False` leaves out the batched way.
    """

    def __init__(self, laws: CompiledLaws, limits: Limits, batched: bool = True) -> None:
        self.laws, self.limits = laws, limits
        self._schur: tuple[_Schur | None] | None = None if batched else (None,)

    def solve(self, u: Tensor, params: Params, multipliers: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Solve for (w, ν) at answers u (b, *shape), given their multipliers (b, m) and the gradient (b, *shape)."""
        with np.errstate(all="ignore"):
            return self._solve(u, params, multipliers, gradient)

    def _solve(self, u: Tensor, params: Params, multipliers: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        laws, count = self.laws, len(u)
        flat, point = gradient.reshape(count, -1).numpy(), u.reshape(count, -1).numpy()
        held = (point >= self.limits.upper) | (point <= self.limits.lower)
        jacobian = laws.jacobian(u, params).numpy()
        active = laws.equality_rows | _holding(multipliers.numpy())
        w, nu = np.full(flat.shape, np.nan), np.full(multipliers.shape, np.nan)
        finite = np.isfinite(flat).all(axis=1) & np.isfinite(jacobian).all(axis=1)
        idle = ~finite & ~flat.any(axis=1)  # nobody asks, so that shared params need not hear of it
        w[idle], nu[idle] = 0.0, 0.0
        left = np.flatnonzero(finite)
        schur = self.schur
        if schur is not None and len(left):
            curved = self._curvature(u, params, multipliers)
            for first in range(0, len(left), LANES_AT_ONCE):
                some = left[first : first + LANES_AT_ONCE]
                w[some], nu[some] = schur.solve(jacobian[some], curved[some], active[some], held[some], flat[some])
            left = np.flatnonzero(finite & ~np.isfinite(w).all(axis=1))
        if len(left):
            # Where every sample goes this way, one that is not finite is replaced by another: sums round by the batch's size.
            some = left if schur is not None else np.where(finite, np.arange(count), left[0])
            hessians = self._hessians(u[some], {name: value[some] for name, value in params.items()}, multipliers[some])
            for i, hessian in dict(zip(some.tolist(), hessians)).items():
                w[i], nu[i] = _alone(laws, jacobian[i], hessian, active[i], held[i], flat[i])
        return torch.from_numpy(w), torch.from_numpy(nu)

    @property
    def schur(self) -> _Schur | None:
        """The batched way, where W is diagonal. Made at first use; threads that come together each make one, and one stays."""
        made = self._schur
        if made is None:
            separable = bool((self.laws.kinds <= RowKind.SEPARABLE).all())
            usable = separable and len(self.laws.presolve.kept) > 0
            self._schur = made = (_Schur(self.laws, self.limits) if usable else None,)
        return made[0]

    def _curvature(self, u: Tensor, params: Params, multipliers: Tensor) -> Values:
        """Evaluate the diagonal of W = I + Σλ∇²h: (b, n)."""
        out, pattern = np.ones((len(u), self.laws.unknowns)), self._hessian_pattern()
        out[:, pattern.indices] += self.laws.hessian(u, params, multipliers)
        return out

    def _hessians(self, u: Tensor, params: Params, multipliers: Tensor) -> list[csr_array]:
        """Evaluate Σλ∇²h, one sparse matrix (n, n) per sample."""
        pattern = self._hessian_pattern()
        return [pattern.csr(values) for values in self.laws.hessian(u, params, multipliers)]

    def _hessian_pattern(self) -> Pattern:
        pattern = self.laws.hessian_pattern
        if pattern is None:
            names = ", ".join(f"'{law.name}'" for law in self.laws.laws)
            raise UnsupportedLaw(
                f"a gradient through a projection expects laws that couple few unknowns; one of {names} couples too many pairs "
                "to write out. Introduce the coupled total as an unknown of its own, or square it outside the law."
            )
        return pattern


class _Schur:
    """J W⁻¹ Jᵀ over the rows that presolve keeps; what it pins cannot move, and its multiplier follows."""

    def __init__(self, laws: CompiledLaws, limits: Limits) -> None:
        found = laws.presolve
        self.rows, self.fixed, self.pins = found.kept, found.fixed, found.pins
        self.size = (laws.unknowns, laws.rows)
        self.entries = laws.pattern.entries(self.rows)
        kept = laws.pattern.take(self.rows)
        self.indptr, self.indices = kept.indptr, kept.indices
        self.pin_value = np.asarray(laws.pattern.csr(laws.constants)[self.pins, self.fixed]).ravel()
        curved = limits.bounded.copy()
        if laws.hessian_pattern is not None:
            curved[laws.hessian_pattern.indices] = True
        curved[self.fixed] = True  # their weight is 0
        constant = (laws.kinds == RowKind.AFFINE) & laws.equality_rows
        known = np.where(constant[laws.pattern.row_of()], laws.constants, np.nan)[self.entries]
        self.plan = plan(self.indptr, self.indices, laws.unknowns, known, ~curved)
        self.diagonal = self.plan.indptr[1:] - 1
        matrix = Pattern(len(self.rows), len(self.rows), self.plan.indptr, self.plan.indices)
        self._factors: Workspaces[Workspace] = Workspaces(Lanes().prepare(matrix).workspace)

    def solve(
        self, jacobian: Values, curvature: Values, active: Mask, held: Mask, gradient: Values
    ) -> tuple[Values, Values]:
        """Give w (b, n) and ν (b, m); NaN where the answer is not accurate."""
        lanes, (unknowns, rows) = len(gradient), self.size
        idle = ~active[:, self.rows].T
        values = np.ascontiguousarray(jacobian[:, self.entries].T)
        values[np.repeat(idle, np.diff(self.indptr), axis=0)] = 0.0
        still = held.T.copy()
        still[self.fixed] = True
        inverse = np.where(still, 0.0, 1.0 / np.where(curvature.T == 0.0, np.nan, curvature.T))
        right = np.ascontiguousarray(gradient.T)
        matrix = np.empty((len(self.plan.indices), lanes))
        gram(self.plan, values.ravel(), inverse.ravel(), lanes, matrix.ravel())
        scale = np.maximum(1.0, (values**2).max(axis=0, initial=0.0))
        matrix[self.diagonal] += _SOFT * scale + idle
        moved, terms = np.empty((len(self.rows), lanes)), np.empty((len(self.rows), lanes))
        nu, pulled, w = np.zeros_like(moved), np.zeros((unknowns, lanes)), inverse * right
        lanes_product(self.indptr, self.indices, values, w, moved)
        with self._factors.lend() as factors:
            factors.factorize(matrix)
            for _ in range(_SOLVES):
                nu += factors.solve(moved)
                lanes_transposed(self.indptr, self.indices, values, nu, pulled)
                w = inverse * (right - pulled)
                lanes_product(self.indptr, self.indices, values, w, moved)
        lanes_product(self.indptr, self.indices, np.abs(values), np.abs(inverse * right), terms)
        accurate = np.abs(moved).max(axis=0) <= _ACCURATE * np.maximum(terms.max(axis=0), np.abs(w).max(axis=0))
        whole = np.zeros((lanes, rows))
        whole[:, self.rows] = nu.T
        whole[:, self.pins] = ((right - pulled)[self.fixed] / self.pin_value[:, None]).T
        out = np.ascontiguousarray(w.T)
        out[~accurate] = np.nan
        return out, whole


def _alone(
    laws: CompiledLaws, jacobian: Values, hessian: csr_array, active: Mask, held: Mask, gradient: Values
) -> tuple[Values, Values]:
    """Solve one sample by a sparse factorisation of the whole system; NaN where there is none."""
    w, nu = np.zeros(len(gradient)), np.zeros(laws.rows)
    if not np.isfinite(hessian.data).all():
        return w + np.nan, nu + np.nan
    rows, free = np.flatnonzero(active), np.flatnonzero(~held)
    matrix = csr_array(csr_array(laws.pattern.csr(jacobian)[rows])[:, free])
    curved = csr_array(eye_array(laws.unknowns) + hessian)[free][:, free]
    soft = _SOFT * max(1.0, float((matrix.data**2).max(initial=0.0)))
    system = block_array([[curved, matrix.T], [matrix, diags_array(np.full(len(rows), -soft))]], format="csc")
    try:
        factor = splu(system)
    except RuntimeError:  # SuperLU's word for a pivot that is exactly zero
        return w + np.nan, nu + np.nan
    answer = factor.solve(np.concatenate([gradient[free], np.zeros(len(rows))]))
    w[free], nu[rows] = answer[: len(free)], answer[len(free) :]
    return w, nu


def _holding(multipliers: Values) -> Mask:
    largest = np.abs(multipliers).max(axis=1, initial=0.0, keepdims=True)
    holds: Mask = multipliers > _HOLDS * np.maximum(1.0, largest)
    return holds
