"""Gradients through a projection, by implicit differentiation of its KKT system (math.md, eq. adjoint).

At the answer F(u, λ, û, p) = (u − û + Jᵀλ, h) = 0. For a gradient g of the loss in u, one solve with the same symmetric matrix,
[[W, Jᵀ], [J, 0]] (w, ν) = (g, 0), yields w, the gradient in û, and −∂ₚ(wᵀJᵀλ + νᵀh), the gradient in the params. A method solves
it (for a plan: the stages of the linearized problem); here torch is told. Must not import solve.newton.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from snapfm.compile import CompiledLaws, LawStack
from snapfm.compile.derivatives import differentiable_params
from snapfm.compile.oracle import OracleLaw, no_hessian
from snapfm.errors import UnsupportedLaw
from snapfm.laws import Params
from snapfm.solve.base import Adjoints
from snapfm.solve.single_thread import one_thread


def refuse_without_hessian(laws: CompiledLaws) -> None:
    """Raise UnsupportedLaw for laws whose Hessian is not known, or too much to write out."""
    if laws.without_hessian:
        raise UnsupportedLaw(no_hessian(laws.without_hessian))
    if laws.hessian_pattern is None:
        names = ", ".join(f"'{law.name}'" for law in laws.laws)
        raise UnsupportedLaw(
            f"a gradient through a projection expects laws that couple few unknowns; one of {names} couples too many pairs "
            "to write out. Introduce the coupled total as an unknown of its own, or square it outside the law."
        )


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
        return (found.by_input.reshape(u.shape).to(device, dtype), None, None, *in_params)


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
    w, nu = found.w.reshape(u.shape), found.nu
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
        by_cells = found.by_params
        total = _paired(laws, full, u, multipliers, w, nu) if by_cells is None else _of_cells(laws, full, by_cells)
        if not total.requires_grad:  # no law reads them
            return [None] * len(names)
        slopes = torch.autograd.grad(total, [leaves[name] for name in wanted], allow_unused=True)
    by_name = {name: value.to(given[name]) for name, value in zip(wanted, slopes) if value is not None}
    return [by_name.get(name) for name in names]


def _of_cells(laws: LawStack, params: Params, by_cells: Tensor) -> Tensor:
    """Return −Σ of the cells of params times what was found by them: torch goes on from there."""
    assert isinstance(laws, CompiledLaws)
    return -(by_cells * differentiable_params(laws.scalar.tape, laws.example[0], params, len(by_cells))).sum()


def _paired(laws: LawStack, params: Params, u: Tensor, multipliers: Tensor, w: Tensor, nu: Tensor) -> Tensor:
    """Return −(wᵀJᵀλ + νᵀh), where torch has to differentiate the laws."""
    unused = _unused(u, multipliers, w, nu)
    if bool(unused.any()) and not bool(unused.all()):
        # 0 · NaN is NaN, and would reach params that samples share: another sample replaces it, with a weight of zero.
        chosen = torch.where(unused, int(torch.nonzero(~unused)[0]), torch.arange(len(u)))
        u, params = u[chosen], {name: value[chosen] for name, value in params.items()}
        multipliers = torch.where(unused[:, None], 0.0, multipliers)
    field = u.detach().clone().requires_grad_()
    residual = laws.residual(field, params)
    (slope,) = torch.autograd.grad((multipliers * residual).sum(), field, create_graph=True)
    return -((slope * w).sum() + (nu * residual).sum())


def _unused(u: Tensor, multipliers: Tensor, w: Tensor, nu: Tensor) -> Tensor:
    """Mark samples (b,) that are not finite and have no share in the gradient."""
    finite = torch.isfinite(u.flatten(1)).all(dim=1) & torch.isfinite(multipliers).all(dim=1)
    return ~finite & (w.flatten(1) == 0.0).all(dim=1) & (nu == 0.0).all(dim=1)
