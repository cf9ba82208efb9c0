"""LawPlan: everything about one law that does not depend on values. Built once, frozen, then only evaluated.

Joins trace, propagation, curvature and coloring. `Structure` stacks the plans of all laws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.fx import GraphModule

from snapfm.errors import LawError, UnsupportedLaw
from snapfm.kernels.coloring import color_columns
from snapfm.laws import Equality, Inequality, Params
from snapfm.structure.batched import Batched
from snapfm.structure.color import Passes, plan_passes
from snapfm.structure.curvature import Curvature, RowKind, bounded, curvature
from snapfm.structure.derivatives import hessian_values, jacobian_values
from snapfm.structure.exclusive import jvp
from snapfm.structure.pattern import Pattern
from snapfm.structure.propagate import propagate
from snapfm.structure.trace import trace

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LawPlan:
    """One law's graph, pattern, row kinds and passes; `constants` holds the values of rows whose slopes never change."""

    name: str
    kind: Literal["equality", "inequality"]
    graph: GraphModule
    batched: Batched
    pattern: Pattern
    curvature: Curvature
    fixed_passes: tuple[Passes, ...]
    varying_passes: tuple[Passes, ...]
    hessian_passes: Passes | None
    constants: Values
    unruled: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Number of rows of the law."""
        return self.pattern.rows

    def count(self, *kinds: RowKind) -> int:
        """Count the rows of the given kinds."""
        return int(np.isin(self.curvature.kinds, kinds).sum())

    def residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate on a batch: (b, *shape) to (b, m)."""
        return self.batched(u, params)

    def jacobian(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate the Jacobian's values on a batch: (b, nnz); constant rows are copied, not computed."""
        out = torch.from_numpy(self.constants).to(u.device).expand(len(u), -1).clone()
        for passes in self.varying_passes:
            jacobian_values(self.graph, passes, u, params, out)
        return out

    def hessian(self, u: Tensor, params: Params, weight: Tensor) -> Tensor:
        """Evaluate Σλ∇²h on the pattern `curvature.pattern`: (b, nnz of it), with weight λ (b, m)."""
        if self.hessian_passes is None:
            raise UnsupportedLaw(
                f"law '{self.name}' expects a curvature that couples few unknowns; it couples too many pairs to write out. "
                "Introduce the coupled total as an unknown of its own, or square it outside the law."
            )
        out = u.new_zeros(len(u), self.hessian_passes.pattern.nnz)
        hessian_values(self.graph, self.hessian_passes, u, params, weight, out)
        return out


def plan_law(law: Equality | Inequality, u: Tensor, params: Params) -> LawPlan:
    """Analyse a law at an example field and params of ONE sample, float64."""
    graph = trace(law, u, params)
    walk = propagate(graph, u, params, law.name, quiet=law.pattern is not None)
    rows, unknowns = walk.residual.size, u.numel()
    if law.pattern is None:
        pattern = Pattern.from_sets(walk.residual.first, unknowns)
    else:
        pattern = Pattern.from_coordinates(*law.pattern, (rows, unknowns))
    if rows and unknowns and not (pattern.nnz and walk.residual.first.nnz and _slope_reaches(graph)):
        raise LawError(_unmoved(law.name))
    # Where an operator had no rule, a pattern given by hand bounds the curvature better than the walk does.
    bent = curvature(walk, unknowns) if law.pattern is None or not walk.unruled else bounded(pattern)
    forward = _has_forward(law.name, graph, u, params)
    steady = np.flatnonzero(bent.kinds == RowKind.AFFINE)
    varying = np.flatnonzero(bent.kinds != RowKind.AFFINE)
    fixed_passes = plan_passes(pattern, steady, forward)
    constants = _constants(graph, pattern, fixed_passes, u, params)
    if rows and unknowns and not len(varying) and not constants.any():
        raise LawError(_unmoved(law.name))
    return LawPlan(
        name=law.name,
        kind="equality" if isinstance(law, Equality) else "inequality",
        graph=graph,
        batched=Batched(graph, rows),
        pattern=pattern,
        curvature=bent,
        fixed_passes=fixed_passes,
        varying_passes=plan_passes(pattern, varying, forward),
        hessian_passes=_hessian_passes(bent.pattern),
        constants=constants,
        unruled=walk.unruled,
    )


def _unmoved(name: str) -> str:
    return (
        f"law '{name}' expects a residual that changes with u; got one whose slopes all vanish, so that no move of the field "
        "could make it hold. Look for .detach() or .data in it, for steps without a slope (round, sign, u > 0), and for a "
        "residual of params or constants alone. A pattern=… without entries says the same."
    )


def _slope_reaches(graph: GraphModule) -> bool:
    """Tell whether any path from the field to the residual carries a slope past detach, which u.data is recorded as too.

    The pattern goes through detach: a detached factor still tells where the other factor's slope changes.
    """
    nodes = list(graph.graph.nodes)
    carrying = {next(node for node in nodes if node.op == "placeholder")}  # the field is the first input
    for node in nodes:
        detached = node.target is torch.ops.aten.detach.default
        if not detached and not carrying.isdisjoint(node.all_input_nodes):
            carrying.add(node)
    return nodes[-1] in carrying


def _constants(graph: GraphModule, pattern: Pattern, passes: tuple[Passes, ...], u: Tensor, params: Params) -> Values:
    """Compute, once, the values of the rows whose slopes never change; zero stands in for all others."""
    out = u.new_zeros(1, pattern.nnz)
    batch = {name: value[None] for name, value in params.items()}
    for one in passes:
        jacobian_values(graph, one, u[None], batch, out)
    return out[0].numpy()


def _hessian_passes(pattern: Pattern | None) -> Passes | None:
    if pattern is None:
        return None
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
