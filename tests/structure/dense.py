"""The slow, obvious reference: dense derivatives of a law by plain reverse-mode autograd, no graph, no vmap."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Params = Mapping[str, Tensor]
Residual = Callable[[Tensor, Params], Tensor]


def jacobian(law: Residual, u: Tensor, params: Params) -> Tensor:
    """Differentiate the law itself at one field: (m, n)."""
    rows = law(u, params).numel()
    if rows * u.numel() == 0:
        return u.new_zeros(rows, u.numel())
    return torch.autograd.functional.jacobian(lambda x: law(x, params).reshape(-1), u).reshape(rows, -1).double()


def hessian(law: Residual, u: Tensor, params: Params, weight: Tensor) -> Tensor:
    """Differentiate Σλh twice at one field: (n, n)."""
    n = u.numel()
    if n * weight.numel() == 0:
        return u.new_zeros(n, n)
    return torch.autograd.functional.hessian(lambda x: (weight * law(x, params).reshape(-1)).sum(), u).reshape(n, n)
