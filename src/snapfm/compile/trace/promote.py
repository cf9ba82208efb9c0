"""Read a law that computes in float32 in float64: its weights and constants are exact there, its own rounding goes.

A projection works in float64. A law that casts the field to float32, as networks do, is known to seven digits only, which no
iteration can get below. The promoted graph computes the same function without that rounding. What the law returns as it is
written is still what a `Projection` reports as its violation; the difference between the two is part of its `rounding`.

A law is left as it is if it jumps (comparisons, integers, rounding to whole numbers: a promoted number may lie on the other
side), looks at the bits of numbers, or passes through half precision, where nothing is left to be promoted.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Interpreter, Node

from snapfm.compile.sparsity.propagate import dependents, reads_shape_only
from snapfm.laws import Params
from snapfm.torch_internals import tree_map

_FINER = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_HALF = (torch.float16, torch.bfloat16, torch.complex32)
_JUMPS = {"ceil", "floor", "fmod", "frac", "remainder", "round", "sgn", "sign", "trunc"}


def promoted(graph: GraphModule, u: Tensor, params: Params) -> GraphModule | None:
    """Return a graph of the same function in float64; None for one that is in float64 already, or must stay as it is."""
    inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
    varying = dependents(graph, inputs, reads_shape_only)
    values = {node: node.meta["val"] for node in varying if isinstance(node.meta.get("val"), Tensor)}
    if not any(map(_coarse, values.values())) or any(map(_stays, values, values.values())):
        return None
    finer = _rewritten(graph, varying)
    with torch.no_grad():
        expected = graph(u, dict(params))
        try:
            found = _Evaluation(finer).run(u, dict(params))
        except (RuntimeError, TypeError, ValueError, IndexError):  # an operator that exists in float32 alone
            return None
    return finer if found.shape == expected.shape and found.dtype == torch.float64 else None


def _stays(node: Node, value: Tensor) -> bool:
    """Whether a tensor that varies must not be promoted."""
    target: Any = node.target
    name = target.overloadpacket.__name__ if hasattr(target, "overloadpacket") else ""
    if value.dtype in _HALF or name in _JUMPS or target is torch.ops.aten.view.dtype:
        return True
    whole = not (value.is_floating_point() or value.is_complex())
    return whole and any(_coarse(used.meta.get("val")) for used in node.all_input_nodes)


def _coarse(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in _FINER


def _rewritten(graph: GraphModule, varying: set[Node]) -> GraphModule:
    """Convert what does not vary where something that varies reads it, and the dtypes among the arguments of the latter."""
    made = Graph()
    copied: dict[Node, Node] = {}
    exact: dict[Node, Node] = {}  # what does not vary, converted
    weights: dict[str, Any] = {}
    for node in graph.graph.nodes:
        if node not in varying:
            copied[node] = made.node_copy(node, copied.__getitem__)
            if node.op == "get_attr":
                weights[node.target] = getattr(graph, node.target)
            if _coarse(node.meta.get("val")) and any(user in varying for user in node.users):
                exact[node] = _converted(made, weights, node, copied[node])
            continue
        copied[node] = made.node_copy(node, lambda used: exact.get(used, copied[used]))
        if node.op == "call_function":
            copied[node].args, copied[node].kwargs = tree_map(_finer, (copied[node].args, copied[node].kwargs))
    made.set_codegen(graph.graph._codegen)  # takes (u, params) apart as the given graph does
    finer = GraphModule(weights, made)
    made.eliminate_dead_code()
    finer.recompile()
    return finer


def _converted(made: Graph, weights: dict[str, Any], node: Node, copy: Node) -> Node:
    """Convert a tensor that does not vary: a weight once and for all, a computed one at every evaluation."""
    dtype = _FINER[node.meta["val"].dtype]
    if node.op == "get_attr":
        name = f"{node.name}_in_float64"
        weights[name] = weights[str(node.target)].detach().to(dtype)
        return made.get_attr(name)
    return made.call_function(torch.ops.aten._to_copy.default, (copy,), {"dtype": dtype})


def _finer(one: Any) -> Any:
    return _FINER.get(one, one) if isinstance(one, torch.dtype) else one


class _Evaluation(Interpreter):
    """Run a graph and keep the value of every node, as recording does."""

    def run_node(self, n: Node) -> Any:
        """Run one node."""
        n.meta["val"] = super().run_node(n)
        return n.meta["val"]
