"""Elements chosen by indices from params: Σₖ [i = k] uₖ over all candidates k, with weights 0 and 1 that torch evaluates.

A law such as a sensor whose position is a param reads one element of many, and which one changes from sample to sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.fx import Graph, Node

from snapfm.compile.lower.tape import Form, Unlowerable
from snapfm.compile.sparsity.rules.registry import flat, positions
from snapfm.kernels.operators import Op

if TYPE_CHECKING:
    from snapfm.compile.lower.interpreter import Lowering

CHOOSES = ("index", "index_select", "gather")
_CANDIDATES = 4096  # elements that one index may point to
_PRODUCTS = 1_000_000  # over all elements of the result

aten = torch.ops.aten


def chosen(walk: Lowering, node: Node) -> Form:
    """Lower an operator of CHOOSES some of whose indices are from params."""
    target: Any = node.target
    source: Any = node.args[0]
    form = walk.operand(source)
    varying = [used for used in node.all_input_nodes if used is not source and not walk.known[used]]
    if any(walk.value[index].dtype not in (torch.int64, torch.int32) for index in varying):
        raise Unlowerable("masks from params")
    axes = _axes(walk, node, varying)
    strides = [int(np.prod(form.shape[axis + 1 :])) for axis in axes]
    extents = [form.shape[axis] for axis in axes]
    size, candidates = walk.value[node].numel(), int(np.prod(extents))
    if candidates > _CANDIDATES or size * candidates > _PRODUCTS:
        raise Unlowerable(f"indices from params with {candidates:,} candidates for each of {size:,} elements")

    def weights(graph: Graph, index: dict[Node, Node]) -> Node:
        """Compare where the index points to with every candidate, counted from where index 0 would point to."""
        call = graph.call_function
        numbers = call(aten.reshape.default, (call(aten.arange.default, (form.size,)), list(form.shape)))
        zeros = {one: call(aten.zeros_like.default, (index[one],)) for one in varying}

        def pointed(to: dict[Node, Node]) -> Node:
            swap = {**index, **to, source: numbers}
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), swap.__getitem__)
            return call(target, args, kwargs)

        distance = call(aten.sub.Tensor, (pointed({}), pointed(zeros)))
        every: Any = None
        for extent, stride in zip(extents, strides):
            steps = call(aten.mul.Tensor, (call(aten.arange.default, (extent,)), stride))
            if every is not None:
                steps = call(aten.add.Tensor, (call(aten.unsqueeze.default, (every, -1)), steps))
                steps = call(aten.reshape.default, (steps, [-1]))
            every = steps
        hit = call(aten.eq.Tensor, (call(aten.reshape.default, (distance, [-1, 1])), every))
        return call(aten._to_copy.default, (hit,), {"dtype": torch.float64})

    given = {one: torch.zeros_like(walk.value[one]) for one in varying}
    args, kwargs = torch.fx.node.map_arg(
        (node.args, node.kwargs),
        lambda one: positions(form.shape) if one is source else given.get(one, walk.value[one]),
    )
    first = flat(target(*args, **kwargs))
    offsets = np.zeros(1, np.int64)
    for extent, stride in zip(extents, strides):
        offsets = (offsets[:, None] + stride * np.arange(extent)).reshape(-1)
    places = (first[:, None] + offsets).reshape(-1)
    weight = walk.of_params([one for one in node.all_input_nodes if one is not source], weights, (len(places),))
    terms = walk.tape.apply(Op.MUL, weight, form.gather(places, (len(places),)))
    label = np.repeat(np.arange(size), candidates)
    return terms.group(label, np.arange(len(places)), np.ones(len(places)), size, tuple(walk.value[node].shape))


def _axes(walk: Lowering, node: Node, varying: list[Node]) -> list[int]:
    """List the axes of the source that the indices from params run over."""
    arguments: Any = node.args
    if node.target.overloadpacket is not aten.index:  # type: ignore[union-attr]
        return [int(arguments[1]) % max(walk.value[arguments[0]].dim(), 1)]
    if any(one is not None and walk.value[one].dtype == torch.bool for one in arguments[1]):
        raise Unlowerable("indices from params beside a mask")
    return [axis for axis, index in enumerate(arguments[1]) if index in varying]
