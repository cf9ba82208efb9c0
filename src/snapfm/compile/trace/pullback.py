"""Products with the transposed Jacobian of one function, by plain autograd.

torch.func.vjp returns the same numbers and can be batched, but its first use imports torch's compilers (torch 2.13), which
takes longer than all the rest of a first projection. So does torch.autograd.grad with the sympy package if it is given y itself,
not yᵀf.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def pullback(function: Callable[[Tensor], Tensor], at: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the value of a function at a point, and a function y ↦ Jᵀy there, which may be called many times."""
    with torch.inference_mode(False), torch.enable_grad():
        start = at.detach().clone().requires_grad_()
        value = function(start)

    def pull(weight: Tensor) -> Tensor:
        if not value.requires_grad:
            return torch.zeros_like(start, requires_grad=False)
        with torch.inference_mode(False), torch.enable_grad():
            total = (weight * value).sum()
        (found,) = torch.autograd.grad(total, start, retain_graph=True, materialize_grads=True)
        return found

    return value.detach(), pull
