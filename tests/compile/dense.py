"""Two references for derivatives: dense ones by plain reverse-mode autograd, and torch's colored passes over a law's graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from snapfm.compile import CompiledLaws, Pattern
from snapfm.compile.opaque import Opaque, _has_forward
from snapfm.compile.sparsity.passes import Passes, jacobian_values, plan_passes
from snapfm.compile.sparsity.propagate import propagate
from snapfm.kernels.coloring import color_columns

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


def oracle(compiled: CompiledLaws, place: int = 0, pattern: Pattern | None = None) -> Opaque:
    """Treat a law as one without a scalar form: a pattern by sparsity rules alone, derivatives by torch alone."""
    law, (u, params) = compiled.laws[place], compiled.example
    if pattern is None:
        pattern = Pattern.from_sets(propagate(law.graph, u, params, law.name, quiet=True), u.numel())
    return Opaque(law.name, "the test says so", law.graph, pattern, u, params)


def by_side(law: Opaque, u: Tensor, params: Params) -> dict[str, Tensor]:
    """Evaluate the colored passes as planned, with VJPs alone and, where the law has them, with JVPs alone."""
    rows, pattern = np.arange(law.pattern.rows), law.pattern
    sides = {"as planned": law.passes, "by rows": plan_passes(pattern, rows, forward=False)}
    if len(u) and _has_forward("law", law.graph, u[0], {name: value[0] for name, value in params.items()}):
        coloring = color_columns(pattern.indptr, pattern.indices, pattern.columns)
        sides["by columns"] = (Passes(rows, pattern, np.arange(pattern.nnz), "columns", *coloring),)
    values = {}
    for side, passes in sides.items():
        values[side] = u.new_zeros(len(u), pattern.nnz)
        for one in passes:
            jacobian_values(law.graph, one, u, params, values[side])
    return values


def pairs(pattern: Pattern | None) -> set[tuple[int, int]]:
    """List the entries of a pattern."""
    assert pattern is not None
    return set(zip(pattern.row_of().tolist(), pattern.indices.tolist()))


def assert_agrees(
    what: str, pattern: Pattern | None, values: Tensor, truth: Tensor, tolerance: float, noisy: bool = False
) -> None:
    """Assert that no non-zero of the truth is missing from the pattern and that the values are its own.

    `noisy` lets entries below the tolerance pass for zeros: what cancels leaves its rounding behind.
    """
    assert pattern is not None, f"{what} has no pattern"
    present = pattern.csr(np.ones(pattern.nnz)).toarray() > 0
    scale = max(1.0, float(truth.abs().max()) if truth.numel() else 0.0)
    missing = np.argwhere((truth.abs().numpy() > (tolerance * scale if noisy else 0.0)) & ~present)
    assert not len(missing), f"{what}: entries {missing.tolist()} are missing from the pattern"
    assert_close(what, torch.from_numpy(pattern.csr(values.numpy()).toarray()), truth, tolerance * scale)


def assert_close(what: str, one: Tensor, other: Tensor, tolerance: float) -> None:
    """Assert that two matrices differ nowhere by more than the tolerance."""
    off = float((one - other).abs().max()) if one.numel() else 0.0
    assert off <= tolerance, f"{what} is off by {off:.1e}"
