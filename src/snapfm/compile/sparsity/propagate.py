"""Walk a law's graph once, tracking which unknowns every element reads: the pattern of a law without a scalar form."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

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
    return _named(node.target) in _SHAPE_ONLY


def _named(target: Any) -> str:
    return getattr(getattr(target, "overloadpacket", None), "__name__", "")


def dependents(graph: GraphModule, sources: Iterable[Node], stops: Callable[[Node], bool]) -> set[Node]:
    """Find the nodes that depend on some sources, which are included, other than through a node that stops it."""
    found = set(sources)
    for node in graph.graph.nodes:
        if not found.isdisjoint(node.all_input_nodes) and not stops(node):
            found.add(node)
    return found


def propagate(graph: GraphModule, u: Tensor, params: Params, name: str, quiet: bool = False) -> Sets:
    """Track the field through the graph; operators without a rule are named once in a StructureWarning."""
    walk = _Walk(graph, u)
    try:
        result = walk.run(u, dict(params))
        found = result.reads if result.reads is not None else Sets.empty(result.value.numel(), walk.width)
        written_out = Sets(found.indptr, found.indices, found.width)
    except TooDense as refusal:
        raise TooDense(f"law '{name}' {refusal}", refusal.entries) from refusal
    except LawError as refusal:
        raise LawError(f"law '{name}': {refusal}") from refusal
    if walk.unruled and not quiet:
        warnings.warn(
            f"law '{name}': no sparsity rule for {', '.join(walk.unruled)}; treated as dense on what it reads. The result is "
            "right but slower; give Equality(..., pattern=(rows, columns)) where you know it.",
            StructureWarning,
            stacklevel=2,
        )
    return written_out


class _Walk(Interpreter):
    """Runs a graph on Operands; what nothing later reads is forgotten: at 10⁶ unknowns not all of it could be kept."""

    def __init__(self, graph: GraphModule, u: Tensor) -> None:
        super().__init__(graph)
        self.extra_traceback = False  # what a rule refuses is told as it is
        self.field, self.width, self.unruled = u, u.numel(), list[str]()

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Operand:
        """Take the field or a param."""
        value = super().placeholder(target, args, kwargs)
        return Operand(value, Sets.identity(self.width) if value is self.field else None, known=False)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Operand:
        """Take a constant."""
        return Operand(super().get_attr(target, args, kwargs), None, known=True)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Evaluate an operator, and find what its results read."""
        if target is operator.getitem:
            return args[0][args[1]]
        leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Operand)]
        plain_args, plain_kwargs = tree_map(
            lambda leaf: leaf.value if isinstance(leaf, Operand) else leaf, (args, kwargs)
        )
        value = target(*plain_args, **plain_kwargs)
        if _named(target) in _SHAPE_ONLY:
            return Operand(value, None, known=True)
        if all(leaf.reads is None for leaf in leaves):
            return _operands(value, None, all(leaf.known for leaf in leaves))
        found = rule_for(target)
        if found is None and str(target) not in self.unruled:
            self.unruled.append(str(target))
        call = OperatorCall(target, tuple(args), dict(kwargs), value, self.width)
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
