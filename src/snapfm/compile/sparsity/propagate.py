"""Walk a law's graph once, tracking which unknowns every element reads: the pattern of a law without a scalar form."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from snapfm.compile.sparsity.pattern import Sets, TooDense
from snapfm.compile.sparsity.rules import Operand, OperatorCall, dense, rule_for
from snapfm.errors import LawError, StructureWarning
from snapfm.laws import Params
from snapfm.torch_internals import tree_leaves, tree_map

_SHAPE_ONLY = {
    "zeros_like", "ones_like", "full_like", "empty_like", "new_zeros", "new_ones", "new_full", "new_empty",
    "new_empty_strided",
}  # fmt: skip


def reads_shape_only(node: Node) -> bool:
    """Whether an operator reads the shape of its operand and none of its values."""
    return getattr(getattr(node.target, "overloadpacket", None), "__name__", "") in _SHAPE_ONLY


def dependents(graph: GraphModule, sources: Iterable[Node], stops: Callable[[Node], bool]) -> set[Node]:
    """Find the nodes that depend on some sources, which are included, other than through a node that stops it."""
    found = set(sources)
    for node in graph.graph.nodes:
        if not found.isdisjoint(node.all_input_nodes) and not stops(node):
            found.add(node)
    return found


def propagate(graph: GraphModule, u: Tensor, params: Params, name: str, quiet: bool = False) -> Sets:
    """Track the field through the graph; operators without a rule are named once in a StructureWarning."""
    width = u.numel()
    unruled: list[str] = []
    env: dict[Node, Any] = {}
    inputs = iter([u, *tree_leaves(dict(params))])
    result: Any = None
    last_use = _last_uses(graph)
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            value = next(inputs)
            env[node] = Operand(value, Sets.identity(width) if value is u else None, known=False)
        elif node.op == "get_attr":
            env[node] = Operand(getattr(graph, node.target), None, known=True)
        elif node.op == "output":
            result = env[node.args[0][0] if isinstance(node.args[0], (tuple, list)) else node.args[0]]
        else:
            try:
                env[node] = _step(node, env, width, unruled)
            except TooDense as refusal:
                raise TooDense(f"law '{name}' {refusal}", refusal.entries) from refusal
            except LawError as refusal:
                raise LawError(f"law '{name}': {refusal}") from refusal
        for spent in last_use.get(node, ()):
            del env[spent]
    if unruled and not quiet:
        warnings.warn(
            f"law '{name}': no sparsity rule for {', '.join(unruled)}; treated as dense on what it reads. The result is "
            "right but slower; give Equality(..., pattern=(rows, columns)) where you know it.",
            StructureWarning,
            stacklevel=2,
        )
    found: Sets = result.reads if result.reads is not None else Sets.empty(result.value.numel(), width)
    try:
        return Sets(found.indptr, found.indices, found.width)
    except TooDense as refusal:
        raise TooDense(f"law '{name}' {refusal}", refusal.entries) from refusal


def _step(node: Node, env: dict[Node, Any], width: int, unruled: list[str]) -> Any:
    target: Any = node.target
    args: Any = torch.fx.node.map_arg(node.args, env.__getitem__)
    kwargs: Any = torch.fx.node.map_arg(node.kwargs, env.__getitem__)
    if target is operator.getitem:
        return args[0][args[1]]
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Operand)]
    plain_args, plain_kwargs = tree_map(lambda leaf: leaf.value if isinstance(leaf, Operand) else leaf, (args, kwargs))
    value = target(*plain_args, **plain_kwargs)
    if reads_shape_only(node):
        return Operand(value, None, known=True)
    if all(leaf.reads is None for leaf in leaves):
        return _operands(value, None, all(leaf.known for leaf in leaves))
    found = rule_for(target)
    if found is None and str(target) not in unruled:
        unruled.append(str(target))
    call = OperatorCall(target, tuple(args), dict(kwargs), value, width)
    return _operands(value, (found or dense)(call), False)


def _operands(value: Any, reads: Any, known: bool) -> Any:
    if isinstance(value, (tuple, list)):
        sets = reads if isinstance(reads, tuple) else (reads,) * len(value)
        return tuple(_operands(part, one, known) for part, one in zip(value, sets))
    if not isinstance(value, Tensor):
        return value
    if reads is not None and not (reads.nnz and (value.is_floating_point() or value.is_complex())):
        reads = None  # no slope: a known zero or a step was met, or these are indices or masks
    return Operand(value, reads, known)


def _last_uses(graph: GraphModule) -> dict[Node, list[Node]]:
    """List, by node, the values that nothing later reads: at 10⁶ unknowns the walk must not keep them all."""
    last: dict[Node, Node] = {}
    for node in graph.graph.nodes:
        for used in node.all_input_nodes:
            last[used] = node
    spent: dict[Node, list[Node]] = {}
    for used, node in last.items():
        spent.setdefault(node, []).append(used)
    return spent
