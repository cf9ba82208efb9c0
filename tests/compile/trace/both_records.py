"""Compare the graph of a law recorded by us with the one that torch's make_fx gives: operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from snapfm.compile.trace import recording
from snapfm.compile.trace.trace import trace
from snapfm.laws import Equality, Inequality

Params = Mapping[str, Tensor]


def _never(*inputs: Any, **options: Any) -> GraphModule:
    raise AssertionError("left to make_fx")


def _always(*inputs: Any, **options: Any) -> GraphModule:
    raise recording.Unrecordable("the test says so")


def ours(law: Equality | Inequality, u: Tensor, params: Params) -> GraphModule:
    """Trace a law; fails if any of it is left to make_fx."""
    with patch.object(recording, "make_fx", _never):
        return trace(law, u, params)


def torchs(law: Equality | Inequality, u: Tensor, params: Params) -> GraphModule:
    """Trace a law with make_fx alone."""
    with patch.object(recording, "record", _always):
        return trace(law, u, params)


def assert_same(law: Equality | Inequality, u: Tensor, params: Params) -> None:
    """Trace a law in both ways: the same operators, operands, constants, shapes and dtypes, in the same order."""
    found, expected = operators(ours(law, u, params)), operators(torchs(law, u, params))
    assert [one[0] for one in found] == [one[0] for one in expected]
    for one, other in zip(found, expected):
        assert _alike(one, other), f"{one}\n{other}"


def operators(graph: GraphModule) -> list[tuple[Any, ...]]:
    """List operators with their operands and what is known of their results; operands by their place, constants as they are."""
    places: dict[Node, Any] = {}
    found = []
    for node in graph.graph.nodes:
        if node.op == "get_attr":
            places[node] = getattr(graph, node.target)
            continue
        places[node] = f"%{sum(isinstance(place, str) for place in places.values())}"
        if node.op != "placeholder":
            given = torch.fx.node.map_arg((node.args, node.kwargs), places.__getitem__)
            found.append((str(node.target), *given, _described(node.meta.get("val"))))
    return found


def _described(value: Any) -> Any:
    if isinstance(value, Tensor):
        return (str(value.dtype), tuple(value.shape), value.stride())
    return [_described(one) for one in value] if isinstance(value, (tuple, list)) else value


def _alike(one: Any, other: Any) -> bool:
    """Compare nested values with the bits of tensors; NaN equals NaN."""
    if isinstance(one, Tensor) or isinstance(other, Tensor):
        same: Callable[[Tensor, Tensor], bool] = torch.equal
        return one.dtype == other.dtype and same(one.nan_to_num(), other.nan_to_num())
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(_alike(one[name], other[name]) for name in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_alike, one, other))
    return type(one) is type(other) and (one == other or repr(one) == repr(other))
