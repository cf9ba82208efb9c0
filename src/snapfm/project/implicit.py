"""Gradients through a projection, by implicit differentiation of its optimality system (math.md, eq. adjoint).

At the answer F(u, λ, û, p) = (u − û + Jᵀλ, h) = 0. For a gradient g of the loss in u, one solve with the same symmetric
matrix gives (w, ν); then w is the gradient in û and −∂ₚ(wᵀJᵀλ + νᵀh) the gradient in the params.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from snapfm.laws import Params
from snapfm.project.serial import one_thread
from snapfm.structure import CompiledLaws

Adjoint = Callable[[Tensor], tuple[Tensor, Tensor]]


class _Implicit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u_hat: Tensor, answer: Tensor, attach: Any, *values: Tensor) -> Tensor:
        ctx.attach = attach
        return answer.clone()  # an input handed back would be a view, which the caller could not write to

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        laws, names, params, u, multipliers, adjoint, origin = ctx.attach
        (gradient,) = gradients
        dtype, device = gradient.dtype, gradient.device
        with one_thread():
            w, nu = adjoint(gradient.detach().to("cpu", torch.float64).contiguous())
            in_params = _params_gradient(laws, names, params, u, multipliers, w.reshape(u.shape), nu, origin)
        return (w.reshape(u.shape).to(device, dtype), None, None, *in_params)


def attach_gradient(
    u_hat: Tensor, answer: Tensor, laws: CompiledLaws, params: Params, given: Params, u: Tensor, multipliers: Tensor,
    adjoint: Adjoint,
) -> Tensor:  # fmt: skip
    """Make `answer` (dtype and device of u_hat) differentiable in u_hat and in the params as given by the caller."""
    names = list(given)
    attach = (laws, names, params, u, multipliers, adjoint, given)
    result: Tensor = _Implicit.apply(u_hat, answer, attach, *(given[name] for name in names))  # type: ignore[no-untyped-call]
    return result


def _params_gradient(
    laws: CompiledLaws, names: list[str], params: Params, u: Tensor, multipliers: Tensor, w: Tensor, nu: Tensor, given: Params
) -> list[Tensor | None]:  # fmt: skip
    wanted = [name for name in names if given[name].requires_grad]
    if not wanted:
        return [None] * len(names)
    with torch.enable_grad():
        leaves = {name: given[name].detach().to("cpu", torch.float64).requires_grad_() for name in wanted}
        full = {
            name: leaves[name].expand(len(u), *leaves[name].shape[1:]) if name in leaves else params[name]
            for name in params
        }
        spoilt = _spoilt(u, multipliers, w, nu)
        if bool(spoilt.any()) and not bool(spoilt.all()):
            # 0 · NaN is NaN, and would reach params that samples share: another sample stands in, with a weight of zero.
            chosen = torch.where(spoilt, int(torch.nonzero(~spoilt)[0]), torch.arange(len(u)))
            u, full = u[chosen], {name: value[chosen] for name, value in full.items()}
            multipliers = torch.where(spoilt[:, None], 0.0, multipliers)
        field = u.detach().clone().requires_grad_()
        residual = laws.residual(field, full)
        (slope,) = torch.autograd.grad((multipliers * residual).sum(), field, create_graph=True)
        total = -(slope * w).sum() - (nu * residual).sum()
        found = torch.autograd.grad(total, [leaves[name] for name in wanted], allow_unused=True)
    by_name = dict(zip(wanted, found))
    out: list[Tensor | None] = []
    for name in names:
        value = by_name.get(name)
        out.append(None if value is None else value.to(given[name].device, given[name].dtype))
    return out


def _spoilt(u: Tensor, multipliers: Tensor, w: Tensor, nu: Tensor) -> Tensor:
    """Tell which samples are not finite and have no share in the gradient: (b,)."""
    finite = torch.isfinite(u.flatten(1)).all(dim=1) & torch.isfinite(multipliers).all(dim=1)
    return ~finite & (w.flatten(1) == 0.0).all(dim=1) & (nu == 0.0).all(dim=1)
