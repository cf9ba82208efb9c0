"""Record the operators that a function runs on tensors, as a graph.

Below autograd, vmap and functionalization: whatever a function calls arrives here as operators on plain tensors. torch's make_fx
records the same operators (tests/compile/test_recording.py), but its first use imports torch's compilers, which takes longer
than all the rest of a first projection, and while it runs, modules made by torch.compile refuse to run in other threads. So it
records only what is not followed here, and only to prepare, never in a call.
"""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils.weak import WeakTensorKeyDictionary

from snapfm.torch_internals import DispatchMode, OpOverload, decomposed, make_fx, nested, tree_leaves, tree_map

aten = torch.ops.aten

Decompositions = Mapping[Any, Callable[..., Any]]

_PLAIN = (Tensor, torch.nn.Parameter)  # other classes of tensors have operators of their own
# Arguments that a graph can hold.
_WRITTEN_OUT = (
    bool, int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip


class Unrecordable(Exception):
    """A function does what no graph of operators can hold, or other things for other values; never leaves the package."""


def recorded(function: Callable[..., Any], *inputs: Any, decompositions: Decompositions | None = None) -> GraphModule:
    """Run a function on copies of nested tensors and return the graph of its operators, which is called in the same way.

    Operators in `decompositions` are recorded as what their functions run.
    """
    with alone():
        try:
            return record(function, *tree_map(torch.clone, inputs), decompositions=decompositions or {})
        except Unrecordable:
            maker = make_fx(function, tracing_mode="real", decomposition_table=decompositions)
            return maker(*tree_map(torch.clone, inputs))


def record(
    function: Callable[..., Any], *inputs: Any, decompositions: Decompositions = MappingProxyType({})
) -> GraphModule:
    """Do so without make_fx, on the inputs themselves: the function may write to them. Raises Unrecordable.

    Where inputs and value are tensors that are not nested, nothing has to be unpacked when the graph is called.
    """
    recorder = _Recorder(decompositions)
    for tensor in tree_leaves(inputs):
        recorder.placeholder(tensor)
    value = recorder.run(function, *inputs)
    flat = all(isinstance(one, Tensor) for one in (*inputs, value))
    recorder.graph.output(recorder.node(value) if flat else [recorder.node(one) for one in tree_leaves(value)])
    if not flat and not nested(recorder.graph, inputs, value):
        raise Unrecordable("nested inputs")
    return GraphModule(recorder.root, recorder.graph)


class _Recorder(DispatchMode):  # type: ignore[no-untyped-call]
    """Writes down every operator of the thread that entered it."""

    def __init__(self, decompositions: Decompositions) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph, self.root = Graph(), torch.nn.Module()
        self._decompositions, self._lost = decompositions, ""
        # Weak, because all intermediate results may not fit in memory.
        self._nodes: MutableMapping[Tensor, Node] = WeakTensorKeyDictionary()
        self._constants: MutableMapping[Tensor, Node] = WeakTensorKeyDictionary()

    def placeholder(self, tensor: Tensor) -> None:
        """Let the next input of the graph be a tensor."""
        self._made(tensor, self.graph.placeholder(f"input_{len(self.graph.nodes)}"))

    def run(self, function: Callable[..., Any], *inputs: Any) -> Any:
        """Run a function and record it; raises Unrecordable even if the function catches that."""
        try:
            with alone(), self:
                value = function(*inputs)
        except NotImplementedError as cause:  # operators of higher order
            raise Unrecordable(str(cause)) from cause
        if self._lost:
            raise Unrecordable(self._lost)
        return value

    def node(self, value: Any) -> Any:
        """Return the node that computed a tensor, a constant's if none did; what is not a tensor stands for itself."""
        if not isinstance(value, Tensor):
            if not isinstance(value, _WRITTEN_OUT):
                raise self._unrecordable(f"an argument of type {type(value).__name__}")
            return value
        found = self._nodes.get(value)
        if found is None:
            found = self._constants.get(value)
        if found is None:
            name = f"constant_{len(self._constants)}"
            self.root.register_buffer(name, value)
            found = self._constants[value] = self.graph.get_attr(name)
            found.meta["val"] = _described(value)
        return found

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        if not isinstance(func, OpOverload) or any(type(one) not in _PLAIN for one in tensors):
            raise self._unrecordable(str(func))
        with self:
            if func in self._decompositions:
                return self._decompositions[func](*args, **kwargs)
            value = decomposed(func, args, kwargs)
            if value is not NotImplemented:
                return value
        if torch.Tag.data_dependent_output in func.tags:
            if any(one in self._nodes for one in tensors):
                raise self._unrecordable(f"{func} reads a value")
            return func(*args, **kwargs)  # of constants only
        if func is aten.lift_fresh.default:  # what torch.tensor makes: a copy, lest writes into it change the constant
            func = aten.lift_fresh_copy.default
        operands, options = tree_map(self.node, (args, kwargs))
        try:
            value = func(*args, **kwargs)
        except Exception:  # a function that goes on does what these values make it do
            self._lost = f"{func} raised"
            raise
        self._made(value, self.graph.call_function(func, operands, options))
        return value

    def _made(self, value: Any, node: Node) -> None:
        """Note which node computed a tensor, or several."""
        node.meta["val"] = tree_map(_described, value)
        if isinstance(value, Tensor):
            self._nodes[value] = node
        elif isinstance(value, (tuple, list)):
            for number, part in enumerate(value):
                if isinstance(part, Tensor):
                    self._made(part, self.graph.call_function(operator.getitem, (node, number)))

    def _unrecordable(self, reason: str) -> Unrecordable:
        self._lost = reason
        return Unrecordable(reason)


def _described(value: Any) -> Any:
    """Return a tensor without numbers, of the same shape, strides and dtype; what is not a tensor as it is."""
    if not isinstance(value, Tensor):
        return value
    if value.layout is not torch.strided:
        return None
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


_lock = threading.RLock()  # a law may itself record or differentiate


@contextmanager
def alone() -> Iterator[None]:
    """Let no other thread of the package do such a thing meanwhile."""
    with _lock:
        yield


def jvp(function: Callable[[Tensor], Tensor], at: Tensor, direction: Tensor) -> Tensor:
    """Differentiate a function forward: its slope at a point, along a direction."""
    with alone():
        slope: Tensor = torch.func.jvp(function, (at,), (direction,))[1]
    return slope


def _before_fork() -> None:
    _lock.acquire()


def _after_fork_in_parent() -> None:
    _lock.release()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
