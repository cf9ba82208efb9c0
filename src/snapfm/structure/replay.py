"""Record what a function does with tensors, to do it again without its overhead. Thread-safe: it touches nothing global.

For what is recorded during a call, where make_fx must not be used (structure.exclusive). A value read out of a tensor would
be frozen into the record, so a function that reads one is refused. So would shapes that depend on values; `vmap` refuses
those itself, but for constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, MutableMapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

_FROZEN = {torch.Tag.data_dependent_output, torch.Tag.nondeterministic_seeded}


class Unrecordable(Exception):
    """A function does other things for other values; never leaves the package."""


def replayable(function: Callable[..., Tensor], *inputs: Tensor) -> GraphModule:
    """Run a function of tensors and give the graph of the operators it ran; raises Unrecordable."""
    recorder = _Recorder()
    for number, tensor in enumerate(inputs):
        recorder.nodes[tensor] = recorder.graph.placeholder(f"input_{number}")
    with recorder:
        value = function(*inputs)
    recorder.graph.output(recorder.node(value))
    return GraphModule(recorder.root, recorder.graph)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down every operator of the thread that entered it, below vmap: with the batch axis in all tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph, self.root = Graph(), torch.nn.Module()
        # Weak, because all intermediate results of a batch may not fit in memory.
        self.nodes: MutableMapping[Tensor, Node] = WeakTensorKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not isinstance(func, torch._ops.OpOverload) or not _FROZEN.isdisjoint(func.tags):
            raise Unrecordable(str(func))
        value = func(*args, **(kwargs or {}))
        named, keywords = tree_map_only(Tensor, self.node, (args, kwargs or {}))
        made = self.graph.call_function(func, named, keywords)
        if isinstance(value, (tuple, list)):
            for number, part in enumerate(value):
                if isinstance(part, Tensor):
                    self.nodes[part] = self.graph.call_function(operator.getitem, (made, number))
        elif isinstance(value, Tensor):
            self.nodes[value] = made
        return value

    def node(self, tensor: Tensor) -> Node:
        """Give the node that made a tensor; one that none made is a constant."""
        found = self.nodes.get(tensor)
        if found is None:
            name = f"constant_{len(self.graph.nodes)}"
            self.root.register_buffer(name, tensor)
            found = self.nodes[tensor] = self.graph.get_attr(name)
        return found
