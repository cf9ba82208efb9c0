"""The functions of torch that are not public, in one place, each with what is done where a version of torch lacks it.

Tested from torch 2.6 on. Nothing else of the package imports a name of torch that begins with an underscore. Imports nothing of
snapfm.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = [
    "DispatchMode", "OpOverload", "decomposed", "decompositions", "is_mutable", "make_fx", "mixes_dtypes", "nested", "schema",
    "silence_vmap", "transformed", "tree_leaves", "tree_map", "wrapped",
]  # fmt: skip


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The base of modes that see every operator of their thread."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Let torch call the mode as it is: to keep torch.compile out of it, torch would import its compilers first."""
        return False


OpOverload = type(torch.ops.aten.add.Tensor)  # the class of an operator with its types


def _found(module: str, name: str) -> Any:
    """Return a function of torch, or None where it is gone."""
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


_flatten = _found("torch.utils._pytree", "tree_flatten")
_unpacking, _packed = _found("torch.fx.graph", "_PyTreeCodeGen"), _found("torch.fx.graph", "_PyTreeInfo")
_decomposes = _found("torch.utils._python_dispatch", "autograd_would_have_decomposed")
_current_level = _found("torch._C._functorch", "maybe_current_level")
_modes = _found("torch._C", "_len_torch_dispatch_stack")
_is_wrapped = _found("torch._C._functorch", "is_functorch_wrapped_tensor")


def tree_leaves(tree: Any) -> list[Any]:
    """List what nested tuples, lists and dicts hold, in their order."""
    if isinstance(tree, Mapping):
        return [leaf for part in tree.values() for leaf in tree_leaves(part)]
    if isinstance(tree, (tuple, list)):
        return [leaf for part in tree for leaf in tree_leaves(part)]
    return [tree]


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Apply a function to what nested tuples, lists and dicts hold."""
    if isinstance(tree, Mapping):
        return {name: tree_map(function, part) for name, part in tree.items()}
    if isinstance(tree, (tuple, list)):
        parts = [tree_map(function, part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return function(tree)


def schema(operator: Any) -> Any:
    """Return the name and the arguments that an operator declares."""
    return operator._schema


def is_mutable(operator: Any) -> bool:
    """Whether an operator writes to what it is given."""
    return bool(operator._schema.is_mutable)


def decompositions(operators: Sequence[Any]) -> dict[Any, Callable[..., Any]]:
    """Return torch's own definitions of operators by simpler ones; without them such operators are left to torch."""
    get = _found("torch._decomp", "get_decompositions")
    return {} if get is None else dict(get(operators))


def decomposed(operator: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run an operator as the operators that autograd takes it for, where autograd has not; NotImplemented for the others."""
    if _decomposes is not None and not _decomposes(operator, tree_leaves((args, kwargs))):
        return NotImplemented
    return operator.decompose(*args, **kwargs)


def nested(graph: Graph, inputs: tuple[Any, ...], value: Any) -> bool:
    """Let a graph of flat inputs and outputs be called with inputs nested like these, and return what is nested like `value`.

    Return whether torch can do that.
    """
    if _unpacking is None or _packed is None or _flatten is None:
        return False
    names = [f"given_{number}" for number in range(len(inputs))]
    graph.set_codegen(_unpacking(_packed(names, _flatten(inputs)[1], _flatten(value)[1])))
    return True


def transformed() -> bool:
    """Whether torch is differentiating, batching or recording, so that it must see every operator.

    Where that cannot be asked, it may be: the answer is yes.
    """
    if _current_level is None or _modes is None:
        return True
    return _current_level() is not None or _modes() > 0


def wrapped(value: torch.Tensor) -> bool:
    """Whether a tensor belongs to a transform of torch.func, so that it has no memory of its own.

    Where that cannot be asked the answer is no, and torch raises when memory is read that is not there.
    """
    return _is_wrapped is not None and bool(_is_wrapped(value))


def silence_vmap() -> None:
    """Switch off torch's warning that an operator is batched by a loop, where there is such a switch."""
    switch = _found("torch._C._functorch", "_set_vmap_fallback_warning_enabled")
    if switch is not None:
        switch(False)


# How torch says that an operator got two dtypes: it has no exception class for it.
_TWO_DTYPES = (
    "same dtype",
    "same datatype",
    "same scalar type",
    "expected scalar type",
    "type (double)",
    "type (float)",
    "::Half)",
)


def mixes_dtypes(error: BaseException) -> bool:
    """Tell whether torch refused operands of different dtypes."""
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _TWO_DTYPES)
