"""Gradients through a projection, by implicit differentiation of its KKT system (math.md, eq. adjoint).

At the answer F(u, λ, û, p) = (u − û + Jᵀλ, h) = 0. For a gradient g of the loss in u, one solve with the same symmetric matrix,
[[W, Jᵀ], [J, 0]] (w, ν) = (g, 0), yields w, the gradient in û, and −∂ₚ(wᵀJᵀλ + νᵀh), the gradient in the params.

Equalities, active inequalities and unknowns not held at a bound take part. Other rows and columns are replaced by those of the
identity, so that the pattern never changes and one symbolic factorization serves all samples. Rows that are much smaller than
others, or than one, are scaled by powers of two, so that the units of a law do not matter. A sample that this leaves inaccurate
is solved with pivoting. A sample that cannot be solved gets NaN, and no other. Must not import solve.newton.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import splu
from torch import Tensor
from torch.autograd.function import once_differentiable

from snapfm.arrays import Mask, Values
from snapfm.compile import CompiledLaws, LawStack, Pattern
from snapfm.compile.derivatives import differentiable_externals
from snapfm.compile.oracle import OracleLaw, no_hessian
from snapfm.errors import UnsupportedLaw
from snapfm.laws import Params
from snapfm.linear import LANES_AT_ONCE, Automatic, Workspace
from snapfm.solve.base import Adjoints, Limits
from snapfm.solve.memory import Workspaces
from snapfm.solve.single_thread import one_thread

# Relative to ‖J‖²: keeps the system solvable when rows repeat each other, far below any gradient that matters.
_SOFT = 1e-13
_SMALL = 2.0**-11  # of the largest row: what the soft diagonal costs a row above it, repeated solves remove
_EXPONENT = 1000  # of the largest scale: a power of two that is finite
_SOLVES = 3  # the later ones remove the errors of the soft diagonal and of rounding
_ACTIVE = 1e-9  # a row that pushes with more than this share of the largest push belongs to an active inequality
_ACCURATE = 1e-9  # residual allowed, relative to the gradient and the answer, before a sample is solved with pivoting


class Adjoint:
    """Prepared for compiled laws and limits; the symbolic work is done at the first gradient."""

    def __init__(self, laws: CompiledLaws, limits: Limits) -> None:
        self.laws, self.limits = laws, limits
        self._made: _System | None = None

    def solve(self, u: Tensor, params: Params, multipliers: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Solve for (w, ν) at answers u (b, *shape), given their multipliers (b, m) and the gradient (b, *shape)."""
        laws, count = self.laws, len(u)
        flat, point = (one.reshape(count, laws.unknowns).numpy() for one in (gradient, u))
        held = (point >= self.limits.upper) | (point <= self.limits.lower)
        w, nu = np.full(flat.shape, np.nan), np.full(multipliers.shape, np.nan)
        with np.errstate(all="ignore"):
            system = self._system()
            jacobian, hessian = laws.jacobian(u, params).numpy(), laws.hessian(u, params, multipliers)
            largest = system.largest(np.where(held[:, system.j_column], 0.0, jacobian))
            scale = row_scales(largest)
            active = laws.equality_rows | pushing(multipliers.numpy(), largest)
            finite = np.logical_and.reduce([np.isfinite(one).all(axis=1) for one in (flat, jacobian, hessian)])
            idle = ~finite & ~flat.any(axis=1)  # no gradient asked: NaN must not reach params that samples share
            w[idle], nu[idle] = 0.0, 0.0
            left = np.flatnonzero(finite)
            for first in range(0, len(left), LANES_AT_ONCE):
                some = left[first : first + LANES_AT_ONCE]
                own = jacobian[some] * scale[some][:, system.j_row]
                w[some], nu[some] = system.solve(own, hessian[some], active[some], held[some], flat[some])
            nu *= scale
        return torch.from_numpy(w), torch.from_numpy(nu)

    def _system(self) -> _System:
        """Return the system, made at first use. Threads that meet here each make one, and one stays."""
        made = self._made
        if made is None:
            self._made = made = _System(self.laws)
        return made


class _System:
    """The KKT matrix of all rows and unknowns, factorized for many samples at once."""

    def __init__(self, laws: CompiledLaws) -> None:
        hessian = laws.hessian_pattern
        if laws.without_hessian:
            raise UnsupportedLaw(no_hessian(laws.without_hessian))
        if hessian is None:
            names = ", ".join(f"'{law.name}'" for law in laws.laws)
            raise UnsupportedLaw(
                f"a gradient through a projection expects laws that couple few unknowns; one of {names} couples too many pairs "
                "to write out. Introduce the coupled total as an unknown of its own, or square it outside the law."
            )
        n, m = laws.unknowns, laws.rows
        self.unknowns, self.rows, size = n, m, n + m
        self.below = np.flatnonzero(hessian.indices <= hessian.row_of())
        self.w_row, self.w_column = hessian.row_of()[self.below], hessian.indices[self.below]
        self.j_row, self.j_column = laws.pattern.row_of(), laws.pattern.indices
        self.filled, self.first = np.unique(self.j_row, return_index=True)  # rows with entries, and where they begin
        each = np.arange(size)
        row = np.concatenate([each, self.w_row, n + self.j_row])
        column = np.concatenate([each, self.w_column, self.j_column])
        pattern = Pattern.from_coordinates(row, column, (size, size))
        keys = pattern.row_of() * size + pattern.indices
        self.diagonal, self.at_w, self.at_j = np.split(
            np.searchsorted(keys, row * size + column), [size, size + len(self.w_row)]
        )
        # Both triangles, for products: entry k is entry source[k] of the lower one.
        below, above = pattern.row_of(), pattern.indices
        off = np.flatnonzero(below != above)
        whole = csr_array(
            (np.concatenate([np.arange(pattern.nnz), off]) + 1.0,
             (np.concatenate([below, above[off]]), np.concatenate([above, below[off]]))), shape=(size, size),
        )  # fmt: skip
        self._source, self._whole = whole.data.astype(np.int64) - 1, whole
        signs = np.concatenate([np.ones(n, np.int64), -np.ones(m, np.int64)])
        self._factors: Workspaces[Workspace] = Workspaces(Automatic().prepare(pattern, signs).workspace)
        self._entries = pattern.nnz

    def largest(self, jacobian: Values) -> Values:
        """Return the largest absolute value in each row (b, m) of Jacobians (b, nnz); 0 where there is none."""
        found = np.zeros((len(jacobian), self.rows))
        if len(self.filled):
            found[:, self.filled] = np.maximum.reduceat(np.abs(jacobian), self.first, axis=1)
        return found

    def solve(
        self, jacobian: Values, hessian: Values, active: Mask, held: Mask, gradient: Values
    ) -> tuple[Values, Values]:
        """Return w (b, n) and ν (b, m) for Jacobians with scaled rows; NaN where no accurate answer exists."""
        lanes, n = len(gradient), self.unknowns
        values = np.zeros((self._entries, lanes))
        values[self.diagonal[:n]] = 1.0
        moving = ~(held[:, self.w_row] | held[:, self.w_column])
        np.add.at(values, self.at_w, np.where(moving, hessian[:, self.below], 0.0).T)
        values[self.at_j] = np.where(active[:, self.j_row] & ~held[:, self.j_column], jacobian, 0.0).T
        values[self.diagonal[n:]] = np.where(active, 0.0, -1.0).T
        soft = values.copy()
        scale = np.maximum(1.0, (values[self.at_j] ** 2).max(axis=0, initial=0.0))
        soft[self.diagonal[n:]] -= _SOFT * scale
        right = np.zeros((n + self.rows, lanes))
        right[:n] = np.where(held, 0.0, gradient).T
        answer, left = np.zeros_like(right), right.copy()
        matrices = [self._matrix(values[:, lane]) for lane in range(lanes)]
        with self._factors.lend() as factors:
            factors.factorize(soft)
            for _ in range(_SOLVES):
                answer += factors.solve(left)
                for lane, matrix in enumerate(matrices):
                    left[:, lane] = right[:, lane] - matrix @ answer[:, lane]
        allowed = _ACCURATE * np.maximum(np.abs(right).max(axis=0), np.abs(answer).max(axis=0))
        for lane in np.flatnonzero(~(np.abs(left).max(axis=0, initial=0.0) <= allowed)).tolist():
            answer[:, lane] = _pivoted(self._matrix(soft[:, lane]), right[:, lane])
        return np.ascontiguousarray(answer[:n].T), np.ascontiguousarray(answer[n:].T)

    def _matrix(self, values: Values) -> csr_array:
        return csr_array((values[self._source], self._whole.indices, self._whole.indptr), shape=self._whole.shape)


def _pivoted(matrix: csr_array, right: Values) -> Values:
    try:
        answer: Values = splu(matrix.tocsc()).solve(right)
    except RuntimeError:  # SuperLU met a pivot that is exactly zero
        return np.full(len(right), np.nan)
    return answer


def row_scales(largest: Values, small: float = _SMALL) -> Values:
    """Return the powers of two (…, m) that bring small rows to the size of the largest, or of one.

    `largest` is the largest entry of each row; those that are not `small` beside the largest of all are left as they are.
    """
    sizes = np.where(np.isfinite(largest), largest, 0.0)
    top = sizes.max(axis=-1, initial=1.0, keepdims=True)
    exponent = np.minimum(np.frexp(top)[1] - np.frexp(sizes)[1], _EXPONENT)
    scale: Values = np.ldexp(1.0, np.where((sizes > 0.0) & (sizes < small * top), exponent, 0))
    return scale


def pushes(multipliers: Values, largest: Values) -> Values:
    """Return how hard each row (…, m) pushes the field, given its largest entry: multipliers in the units of the field."""
    return multipliers * np.where(largest > 0.0, largest, 1.0)


def pushing(multipliers: Values, largest: Values) -> Mask:
    """Mark the inequalities (…, m) that are active: those that push, whatever the units of their laws."""
    push = pushes(multipliers, largest)
    active: Mask = push > _ACTIVE * np.abs(push).max(axis=-1, initial=1.0, keepdims=True)
    return active


class _Implicit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u_hat: Tensor, answer: Tensor, attach: Any, *values: Tensor) -> Tensor:
        ctx.attach = attach
        return answer.clone()  # a returned input would be a view, which the caller could not write to

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        laws, names, params, u, multipliers, adjoint, origin = ctx.attach
        (gradient,) = gradients
        dtype, device = gradient.dtype, gradient.device
        with one_thread():
            wanted = any(value.requires_grad for value in origin.values())
            found = adjoint(gradient.detach().to("cpu", torch.float64).contiguous(), wanted)
            in_params = _params_gradient(laws, names, params, u, multipliers, found, origin)
        return (found.w.reshape(u.shape).to(device, dtype), None, None, *in_params)


def attach_gradient(
    u_hat: Tensor, answer: Tensor, laws: LawStack, params: Params, given: Params, u: Tensor, multipliers: Tensor,
    adjoint: Callable[[Tensor, bool], Adjoints],
) -> Tensor:  # fmt: skip
    """Make `answer` (dtype and device of u_hat) differentiable in u_hat and in the params as given by the caller."""
    names = list(given)
    attach = (laws, names, params, u, multipliers, adjoint, given)
    result: Tensor = _Implicit.apply(u_hat, answer, attach, *(given[name] for name in names))  # type: ignore[no-untyped-call]
    return result


def _params_gradient(
    laws: LawStack, names: list[str], params: Params, u: Tensor, multipliers: Tensor, found: Adjoints, given: Params
) -> list[Tensor | None]:  # fmt: skip
    w, nu, on_kinks = found.w.reshape(u.shape), found.nu, list(found.externals)
    wanted = [name for name in names if given[name].requires_grad]
    if not wanted:
        return [None] * len(names)
    if not len(u):
        return [torch.zeros_like(given[name]) if name in wanted else None for name in names]
    reading = [law.name for law in laws.laws if isinstance(law, OracleLaw) and law.may_read(wanted)]
    if reading:
        raise UnsupportedLaw(
            f"a gradient in params {wanted} expects laws that torch can differentiate by them; Oracle "
            f"{', '.join(map(repr, reading))} may read them. Detach them, or name what it does read: Oracle(…, reads=[…])."
        )
    with torch.enable_grad():
        # Of the params that were projected with, not of those given: the caller may have written to them.
        leaves = {name: params[name][: len(given[name])].detach().requires_grad_() for name in wanted}
        full = {
            name: leaves[name].expand(len(u), *leaves[name].shape[1:]) if name in leaves else params[name]
            for name in params
        }
        unused = _unused(u, multipliers, w, nu)
        if bool(unused.any()) and not bool(unused.all()):
            # 0 · NaN is NaN, and would reach params that samples share: another sample replaces it, with a weight of zero.
            chosen = torch.where(unused, int(torch.nonzero(~unused)[0]), torch.arange(len(u)))
            u, full = u[chosen], {name: value[chosen] for name, value in full.items()}
            multipliers = torch.where(unused[:, None], 0.0, multipliers)
        field = u.detach().clone().requires_grad_()
        residual = laws.residual(field, full)
        (slope,) = torch.autograd.grad((multipliers * residual).sum(), field, create_graph=True)
        elsewhere = torch.ones(len(u), dtype=torch.bool)
        elsewhere[on_kinks] = False
        pairs = (slope * w).flatten(1).sum(1) + (nu * residual).sum(1)
        total = -pairs[elsewhere].sum()
        if on_kinks and isinstance(laws, CompiledLaws):  # torch takes the slope of one side there
            own = {name: value[on_kinks] for name, value in full.items()}
            pull, first = torch.stack([found.externals[i] for i in on_kinks]), laws.unknowns + 1
            for cell, value in differentiable_externals(laws.scalar.tape, laws.example[0], own, len(on_kinks)):
                total = total - (pull[:, cell - first : cell - first + value.shape[1]] * value).sum()
        slopes = torch.autograd.grad(total, [leaves[name] for name in wanted], allow_unused=True)
    by_name = {name: value.to(given[name]) for name, value in zip(wanted, slopes) if value is not None}
    return [by_name.get(name) for name in names]


def _unused(u: Tensor, multipliers: Tensor, w: Tensor, nu: Tensor) -> Tensor:
    """Mark samples (b,) that are not finite and have no share in the gradient."""
    finite = torch.isfinite(u.flatten(1)).all(dim=1) & torch.isfinite(multipliers).all(dim=1)
    return ~finite & (w.flatten(1) == 0.0).all(dim=1) & (nu == 0.0).all(dim=1)
