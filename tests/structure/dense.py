"""The slow, obvious reference: dense derivatives of a law by plain reverse-mode autograd, no graph, no vmap."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from snapfm.kernels.coloring import color_columns
from snapfm.structure.color import Passes, plan_passes
from snapfm.structure.derivatives import jacobian_values
from snapfm.structure.plan import LawPlan, _has_forward

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


def by_side(plan: LawPlan, u: Tensor, params: Params) -> dict[str, Tensor]:
    """Evaluate the sparse Jacobian once with VJPs alone and, where the law has them, once with JVPs alone."""
    rows, pattern = np.arange(plan.rows), plan.pattern
    sides = {"by rows": plan_passes(pattern, rows, forward=False)}
    if _has_forward(plan.graph, u[0], {name: value[0] for name, value in params.items()}):
        coloring = color_columns(pattern.indptr, pattern.indices, pattern.columns)
        sides["by columns"] = (Passes(rows, pattern, np.arange(pattern.nnz), "columns", *coloring),)
    values = {}
    for side, passes in sides.items():
        values[side] = u.new_zeros(len(u), pattern.nnz)
        for one in passes:
            jacobian_values(plan.graph, one, u, params, values[side])
    return values
