"""Derivatives by torch, for a law that cannot be lowered to scalar operations: colored passes over its own graph.

The pattern comes from sparsity rules, or from the caller. Each row may couple all the unknowns it names.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule

from snapfm.arrays import Index
from snapfm.compile.program import PAIR_LIMIT
from snapfm.compile.sparsity.passes import Passes, hessian_values, jacobian_values, plan_passes
from snapfm.compile.sparsity.pattern import Pattern
from snapfm.compile.sparsity.reads import bounded_kinds
from snapfm.compile.trace.recording import jvp
from snapfm.errors import LawError
from snapfm.kernels.coloring import color_columns
from snapfm.laws import Params


class Opaque:
    """The derivatives of one law; `reason` names the operator that has no scalar form."""

    def __init__(self, name: str, reason: str, graph: GraphModule, pattern: Pattern, u: Tensor, params: Params) -> None:
        self.reason, self.graph, self.pattern = reason, graph, pattern
        self.passes = plan_passes(pattern, np.arange(pattern.rows), _has_forward(name, graph, u, params))

    @property
    def kinds(self) -> Index:
        """Kind of every row, bounded by how many unknowns it reads."""
        return bounded_kinds(self.pattern)

    @cached_property
    def hessian_pattern(self) -> Pattern | None:
        """Where Σλ∇²h may be non-zero, both triangles; None where that is too much to write out."""
        return self.pattern.pairs(PAIR_LIMIT)

    def jacobian(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate the Jacobian's values on a batch: (b, nnz)."""
        out = u.new_zeros(len(u), self.pattern.nnz)
        for passes in self.passes:
            jacobian_values(self.graph, passes, u, params, out)
        return out

    def hessian(self, u: Tensor, params: Params, multipliers: Tensor) -> Tensor:
        """Evaluate Σλ∇²h on a batch: (b, entries of hessian_pattern), with multipliers (b, m)."""
        passes = self._hessian_passes
        out = u.new_zeros(len(u), passes.pattern.nnz)
        hessian_values(self.graph, passes, u, params, multipliers, out)
        return out

    @cached_property
    def _hessian_passes(self) -> Passes:
        pattern = self.hessian_pattern
        assert pattern is not None
        colors, count = color_columns(pattern.indptr, pattern.indices, pattern.columns)
        return Passes(np.arange(pattern.rows), pattern, np.arange(pattern.nnz), "columns", colors, count)


def _has_forward(name: str, graph: GraphModule, u: Tensor, params: Params) -> bool:
    """Try one JVP: an operator without a forward derivative raises, and then only VJPs are planned.

    Raises LawError for a law that has no derivative either way.
    """

    def residual(x: Tensor) -> Tensor:
        value: Tensor = graph(x, dict(params))
        return value

    try:
        jvp(residual, u, torch.ones_like(u))
        return True
    except (NotImplementedError, RuntimeError):
        pass
    try:
        value, pull = torch.func.vjp(residual, u)[:2]
        pull(torch.ones_like(value))
        return False
    except (NotImplementedError, RuntimeError) as cause:
        raise LawError(
            f"law '{name}' expects operators that torch can differentiate; it says: {str(cause).splitlines()[0]} "
            "Write that part with others, or detach it where its slope does not matter."
        ) from cause
