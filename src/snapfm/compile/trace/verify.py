"""Compare derivatives of one law with torch's own: one random product for every first use, dense matrices for tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from snapfm.arrays import Values
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.compile.trace.batched import pullback
from snapfm.compile.trace.trace import TracedLaw, agreement
from snapfm.errors import LawError
from snapfm.laws import Params


def check_law(law: TracedLaw, u: Tensor, params: Params, pull: Callable[[Values], Values]) -> None:
    """Compare `pull`, which returns Jᵀy at one field, with torch's product for a random y; raises LawError."""
    if law.rows * u.numel() == 0:
        return
    weight = torch.randn(law.rows, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    try:
        value, torch_pull = pullback(partial(_residual, law, params), u)
        truth = torch_pull(weight.to(value.dtype)).flatten().double()
    except (NotImplementedError, RuntimeError):
        return  # torch has no derivative to compare with
    if not torch.isfinite(truth).all():
        return  # the example point lies outside the law's domain; the judge will see it at run time
    found = torch.from_numpy(pull(weight.numpy()))
    scale = float(truth.abs().max())
    off = (found - truth).abs().nan_to_num(nan=torch.inf)
    if float(off.max()) > agreement(law.graph) * max(scale, 1.0):
        raise LawError(
            f"law '{law.name}' expects a pattern with every entry that can be non-zero; unknown {int(off.argmax())} lacks "
            f"some (its slope is off by {float(off.max()):.1e}). Correct the pattern given, or leave it out."
        )


def verify_law(
    law: TracedLaw, u: Tensor, params: Params, pattern: Pattern, jacobian: Values, weight: Tensor,
    curved: tuple[Pattern, Values] | None,
) -> None:  # fmt: skip
    """Compare Jacobian values (b, nnz), and Hessian values for the weight λ (b, m), with dense ones; raises LawError."""
    unknowns = u.shape[1:].numel()
    if law.rows * unknowns == 0:
        return
    for i in range(len(u)):
        residual = partial(_residual, law, {name: value[i] for name, value in params.items()})
        dense = torch.func.jacrev(residual)(u[i]).reshape(law.rows, unknowns)
        _compare(law, "Jacobian", pattern, jacobian[i], dense)
        if curved is None:
            continue

        def total(x: Tensor, weight: Tensor = weight[i], residual: Callable[[Tensor], Tensor] = residual) -> Tensor:
            return (weight * residual(x)).sum()

        dense = torch.func.jacrev(torch.func.grad(total))(u[i]).reshape(unknowns, unknowns)
        _compare(law, "Hessian", curved[0], curved[1][i], dense)


def _residual(law: TracedLaw, params: Params, u: Tensor) -> Tensor:
    value: Tensor = law.graph(u, dict(params))
    return value


def _compare(law: TracedLaw, what: str, pattern: Pattern, values: Values, dense: Tensor) -> None:
    sparse = torch.from_numpy(pattern.csr(values).toarray())
    off = torch.where(dense.isfinite(), (sparse - dense).abs().nan_to_num(nan=torch.inf), 0.0)
    scale = max(1.0, float(dense.abs().nan_to_num().max())) if dense.numel() else 1.0
    if off.numel() and float(off.max()) > agreement(law.graph) * scale:
        row, column = divmod(int(off.argmax()), dense.shape[1])
        raise LawError(
            f"law '{law.name}': {what} entry ({row}, {column}) expects {float(dense[row, column]):.6e}; the sparse one is "
            f"{float(sparse[row, column]):.6e}. Give the pattern by hand and report the law."
        )
