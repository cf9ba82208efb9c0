"""One law, traced: its graph, evaluated on batches by torch. What the judge goes by, whatever derivatives come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.fx import GraphModule

from snapfm.errors import LawError
from snapfm.laws import Equality, Inequality, Params
from snapfm.structure.batched import Batched
from snapfm.structure.trace import trace


@dataclass(frozen=True)
class TracedLaw:
    """The graph of one law's rows, and how to evaluate it on a batch."""

    name: str
    kind: Literal["equality", "inequality"]
    graph: GraphModule
    batched: Batched

    @property
    def rows(self) -> int:
        """Number of rows of the law."""
        return self.batched.rows

    def residual(self, u: Tensor, params: Params) -> Tensor:
        """Evaluate on a batch: (b, *shape) to (b, m)."""
        return self.batched(u, params)


def trace_law(law: Equality | Inequality, u: Tensor, params: Params) -> TracedLaw:
    """Trace a law at an example field and params of one sample, float64."""
    graph = trace(law, u, params)
    with torch.no_grad():
        rows = int(graph(u.clone(), {name: value.clone() for name, value in params.items()}).numel())
    if rows and u.numel() and not _slope_reaches(graph):
        raise LawError(unmoved(law.name))
    kind: Literal["equality", "inequality"] = "equality" if isinstance(law, Equality) else "inequality"
    return TracedLaw(law.name, kind, graph, Batched(graph, rows))


def unmoved(name: str) -> str:
    """Say why a law without any slope is refused."""
    return (
        f"law '{name}' expects a residual that changes with u; got one whose slopes all vanish, so that no move of the field "
        "could make it hold. Look for .detach() or .data in it, for steps without a slope (round, sign, u > 0), and for a "
        "residual of params or constants alone. A pattern=… without entries says the same."
    )


def _slope_reaches(graph: GraphModule) -> bool:
    """Tell whether any path from the field to the residual carries a slope past detach, which u.data is recorded as too."""
    nodes = list(graph.graph.nodes)
    carrying = {next(node for node in nodes if node.op == "placeholder")}  # the field is the first input
    for node in nodes:
        detached = node.target is torch.ops.aten.detach.default
        if not detached and not carrying.isdisjoint(node.all_input_nodes):
            carrying.add(node)
    return nodes[-1] in carrying
