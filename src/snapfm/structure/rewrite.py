"""Rewrite recorded graphs into operators that rules, vmap and derivatives all handle.

Two lists of known trouble live here: operators that torch itself can write in simpler ones (SIMPLER, used while a law is
recorded), and what functionalization leaves behind (`rewrite`, run on the recorded graph). Torch only; no law.
"""

from __future__ import annotations

import torch
from torch._decomp import get_decompositions
from torch.fx import GraphModule, Node

aten = torch.ops.aten

# Recorded as the operators they consist of, each for one of three reasons: torch 2.13 gives wrong values under nested
# vmap (_prelu_kernel), has no derivative though the slope is plainly zero (heaviside, floor_divide), or a rule for the
# whole would be denser than those of its parts.
SIMPLER = get_decompositions(
    [
        aten._prelu_kernel, aten.heaviside, aten.floor_divide, aten.addcdiv, aten.addcmul, aten.addr, aten.aminmax,
        aten.fill, aten.lerp, aten.linalg_cross, aten.norm, aten.take,
    ]
)  # fmt: skip

# Copies of views that are not called after their view, and the plain operator that gives the same values.
_COPIES = {
    aten._conj_copy.default: aten._conj.default,
    aten._neg_view_copy.default: aten.neg.default,
    aten._unsafe_view.default: aten.reshape.default,
    aten.view_copy.default: aten.reshape.default,  # a batch axis may make the strides unfit for a view
}
_NOT_VIEWS = ("copy", "_to_copy", "index_copy", "lift_fresh_copy")  # end in "copy" without being copies of a view


def rewrite(graph: GraphModule) -> None:
    """Turn the copies that functionalization made of views back into views: nothing writes to them any more."""
    for node in graph.graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        name = node.target._schema.name.removeprefix("aten::")
        if name == "copy":  # has no derivative; it is the source, spread and cast to what it overwrites
            _replace_copy(graph, node)
        elif node.target in _COPIES:
            node.target = _COPIES[node.target]
        elif name.endswith("_copy") and name not in _NOT_VIEWS and hasattr(aten, name.removesuffix("_copy")):
            node.target = getattr(getattr(aten, name.removesuffix("_copy")), node.target._overloadname)
        elif name == "slice_scatter":
            _bound_slice(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()


def _replace_copy(graph: GraphModule, node: Node) -> None:
    written, source = node.meta["val"], node.args[1]
    assert isinstance(source, Node)
    with graph.graph.inserting_before(node):
        if source.meta["val"].dtype != written.dtype:
            source = graph.graph.call_function(aten._to_copy.default, (source,), {"dtype": written.dtype})
        spread = graph.graph.call_function(aten.expand.default, (source, list(written.shape)))
    node.replace_all_uses_with(spread)
    graph.graph.erase_node(node)


def _bound_slice(node: Node) -> None:
    """Replace an open end, written as the largest integer, by the extent: vmap adds to it and overflows."""
    base, source, *place = node.args
    axis, start, end, step = (*place, *(0, None, None, 1)[len(place) :])
    assert isinstance(base, Node)
    assert isinstance(axis, int)
    extent = base.meta["val"].shape[axis]
    node.args = (base, source, axis, start, extent if end is None or end > extent else end, step)
