"""The walk over one law's graph: every tensor of the field becomes a form over cells, or a map that is not written out yet.

Two kinds of tensors depend on the field: those with a form, which has a last axis of two for complex ones, and results of
linear operators that are kept as maps, to be probed for their matrix when a nonlinear operator or the residual asks for them
(`regions`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from snapfm.compile.lower.formulas import COMPLEX, REAL, Term, arguments
from snapfm.compile.lower.indexing import CHOOSES, chosen
from snapfm.compile.lower.lifts import DENSE
from snapfm.compile.lower.regions import Regions, TooDenseMap
from snapfm.compile.lower.tape import Form, Tape, Unlowerable, stacked
from snapfm.compile.sparsity.pattern import TooDense
from snapfm.compile.sparsity.propagate import reads_shape_only
from snapfm.compile.sparsity.rules.mixing import transform
from snapfm.compile.sparsity.rules.movement import move, move_by_index
from snapfm.compile.sparsity.rules.registry import flat, positions, rule_for
from snapfm.kernels.operators import Op
from snapfm.laws import Params
from snapfm.torch_internals import tree_leaves

_COARSE = (torch.float32, torch.float16, torch.bfloat16, torch.complex64)  # rounds what float64 would keep


class Lowering:
    """The walk over one law's graph; `tape` receives what it finds. A `dry` one looks at sizes: no map is probed."""

    def __init__(self, tape: Tape, graph: GraphModule, u: Tensor, params: Params, dry: bool = False) -> None:
        self.tape, self.graph, self.u, self.dry = tape, graph, u, dry
        self.inputs = [u, *tree_leaves(dict(params))]
        self.value: dict[Node, Any] = {}
        self.known: dict[Node, bool] = {}
        self.form: dict[Node, Form] = {}  # tensors of the field; complex ones in parts, along a last axis of two
        self.several: dict[Node, tuple[Form | None, ...]] = {}  # tuples of them
        self.squares: dict[Node, Form] = {}  # squares of magnitudes, beside their root in `form`
        self.regions = Regions(self)

    def run(self) -> Form:
        """Return the residual as a form."""
        inputs, needed = iter(self.inputs), _needed(self.graph)
        last_use = {used: node for node in self.graph.graph.nodes if node in needed for used in node.all_input_nodes}
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                value = next(inputs)
                self.value[node], self.known[node] = value, False
                if value is self.u:
                    self.form[node] = self.tape.unit(self.tape.first_unknown, value.numel(), tuple(value.shape))
            elif node.op == "get_attr":
                self.value[node], self.known[node] = getattr(self.graph, node.target).detach(), True
            elif node.op == "output":
                last = node.args[0][0] if isinstance(node.args[0], (tuple, list)) else node.args[0]
                return self.operand(last).widened(self.tape.cells)
            elif node in needed:
                self._step(node)
                self._release([used for used in node.all_input_nodes if last_use[used] is node])
        raise Unlowerable("no output")

    def _release(self, nodes: list[Node]) -> None:
        """Forget tensors of the field that nothing uses any more: forms of large fields take hundreds of megabytes."""
        for node in nodes:
            if self.reads(node) and not self.regions.uses(node):
                for kept in (self.form, self.several, self.squares, self.value):
                    kept.pop(node, None)

    def reads(self, node: Node) -> bool:
        """Whether a tensor depends on the field, or on params through cells."""
        return node in self.form or node in self.several or node in self.regions

    def _step(self, node: Node) -> None:
        target: Any = node.target
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self.value.__getitem__)
        self.value[node] = target(*args, **kwargs)
        self.known[node] = all(self.known[used] for used in node.all_input_nodes)
        if reads_shape_only(node):
            self.known[node] = True
            return
        if not any(self.reads(used) for used in node.all_input_nodes):
            return
        name = target.overloadpacket.__name__ if hasattr(target, "overloadpacket") else str(target)
        value = self.value[node]
        if isinstance(value, Tensor) and value.dtype in _COARSE:
            raise Unlowerable(f"{name} in {value.dtype}")
        pending = [used for used in node.all_input_nodes if used in self.regions and used not in self.form]
        if (pending or self._is_complex(node) or self._mixes(node, name)) and self.regions.take(node):
            return
        try:
            self._lowered(node, name)
        except (Unlowerable, TooDense) as cause:
            if self.regions.take(node):
                return
            if isinstance(cause, TooDense):
                raise Unlowerable(f"{name} of {cause.entries:,} terms") from cause
            raise

    def _lowered(self, node: Node, name: str) -> None:
        made: Any
        if node.target is operator.getitem and node.args[0] in self.several:
            tensor, place = node.args
            made = self.several[tensor][place]  # type: ignore[index]
            if made is None:
                raise Unlowerable(f"result {place} of {tensor.target}")  # type: ignore[union-attr]
        elif self._is_complex(node):
            if name not in COMPLEX:
                raise Unlowerable(f"{name} of complex numbers")
            made = COMPLEX[name](self, node)
        elif name in REAL:
            made = REAL[name](self, node)
        elif not isinstance(self.value[node], Tensor):
            raise Unlowerable(name)
        elif rule_for(node.target) in (move, move_by_index):
            made = self._moved(node)
        else:
            raise Unlowerable(name)
        if isinstance(made, tuple):
            self.several[node] = made
        else:
            self.form[node] = made

    def _is_complex(self, node: Node) -> bool:
        """Whether complex numbers go in or come out."""
        values = tree_leaves([self.value[one] for one in (node, *node.all_input_nodes)])
        return any(isinstance(value, Tensor) and value.is_complex() for value in values)

    def _mixes(self, node: Node, name: str) -> bool:
        """Whether a dense known matrix multiplies a tensor of the field: it may be a transform."""
        known = [one for one in node.all_input_nodes if self.is_known(one)]
        if not self.tape.lifting or name not in ("mm", "bmm", "mv") or len(known) != 1:
            return False
        matrix = self.number(known[0])
        mixes = matrix.shape[-1] >= DENSE and int(torch.count_nonzero(matrix)) * 2 > matrix.numel()
        self.tape.tried |= mixes
        return mixes

    def operand(self, argument: Any) -> Form:
        """Return an argument as a form: a tensor of the field, of params, a known one, or a number."""
        if not isinstance(argument, Node):
            return self.tape.constant(torch.as_tensor(float(argument), dtype=torch.float64))
        if argument not in self.form:
            value = self.value[argument]
            if argument in self.regions:
                self.form[argument] = self.regions.written_out(argument)
            elif self.known[argument]:
                parts = torch.view_as_real(value.to(torch.complex128)) if value.is_complex() else value
                return self.tape.constant(parts)
            else:  # of params only: torch evaluates it once per call
                shape = (*value.shape, 2) if value.is_complex() else tuple(value.shape)
                self.form[argument] = self.of_params([argument], _parts if value.is_complex() else _itself, shape)
        return self.form[argument]

    def pair(self, argument: Any) -> Form:
        """Return an argument of a complex operator in real and imaginary parts, along a last axis of two."""
        if isinstance(argument, Node) and self.value[argument].is_complex():
            return self.operand(argument)
        if not isinstance(argument, Node):
            number = torch.tensor(complex(argument), dtype=torch.complex128)
            return self.tape.constant(torch.view_as_real(number))
        real = self.operand(argument)
        nothing = self.tape.constant(torch.zeros(real.shape))
        order = flat(positions((2, *real.shape)).movedim(0, -1))
        return stacked([real, nothing], self.tape.cells).gather(order, (*real.shape, 2))

    def of_params(self, nodes: list[Node], finish: Finish, shape: tuple[int, ...]) -> Form:
        """Make cells of what `finish` adds to the part of the graph that leads to `nodes`, which depend on params only."""
        size, first = int(np.prod(shape)), self.tape.cells
        self.tape.graphs.append((first, _subgraph(self.graph, nodes, finish), size))
        self.tape.cells += size
        return self.tape.unit(first, size, shape)

    def is_known(self, argument: Any) -> bool:
        """Whether an argument is the same at every call."""
        return not isinstance(argument, Node) or (self.known[argument] and not self.reads(argument))

    def number(self, argument: Any) -> Tensor:
        """Return the value of a known argument."""
        value = (
            self.value[argument] if isinstance(argument, Node) else torch.tensor(float(argument), dtype=torch.float64)
        )
        return value.to(torch.float64)

    def spread(self, argument: Any, node: Node) -> Form:
        """Broadcast an argument to the shape of the node's result."""
        return expanded(self.operand(argument), tuple(self.value[node].shape))

    def spread_pair(self, argument: Any, node: Node) -> Form:
        """Broadcast a complex argument to the shape of the node's result, parts last."""
        return expanded(self.pair(argument), (*self.value[node].shape, 2))

    def term(self, argument: Any, node: Node) -> Term:
        """Broadcast an argument to the shape of the node's result, to write formulas with."""
        return Term(self.tape, self.spread(argument, node))

    def term_as(self, argument: Any, shape: tuple[int, ...]) -> Term:
        """Broadcast an argument to a shape."""
        return Term(self.tape, expanded(self.operand(argument), shape))

    def squared(self, argument: Any) -> Form:
        """Square an argument; for a magnitude, the sum it is the root of."""
        if argument in self.squares:
            return self.squares[argument]
        return self.tape.apply(Op.SQUARE, self.operand(argument))

    def _moved(self, node: Node) -> Form:
        """Run a moving operator on element numbers and copy the forms it points to; a fill is one more element."""
        target: Any = node.target
        name = target.overloadpacket.__name__
        indices = self._indices(node)
        if any(self.reads(index) for index in indices):
            raise Unlowerable("indices from the field")
        if name in CHOOSES and not all(self.known[index] for index in indices):
            return chosen(self, node)
        if "reduce" in node.kwargs or (name == "scatter" and "reduce" in target._overloadname):
            raise Unlowerable(str(target))
        pool: list[Form] = []
        count = 1

        def number(argument: Any) -> Any:
            nonlocal count
            value = self.value[argument]
            if not self.reads(argument) and not value.is_floating_point():
                if not self.known[argument]:
                    raise Unlowerable("indices from params")
                return value
            form = self.operand(argument)
            first, count = count, count + form.size
            pool.append(form)
            return positions(form.shape, first)

        args: Any
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), number)
        place = _FILLS.get(name, len(args))
        if place < len(args) and isinstance(args[place], (int, float)) and args[place] != 0.0:
            pool.append(self.tape.constant(torch.tensor(float(args[place]), dtype=torch.float64)))
            args = (*args[:place], float(count), *args[place + 1 :])
        source = flat(target(*args, **kwargs)) - 1
        return stacked(pool, self.tape.cells).gather(source, tuple(self.value[node].shape))

    def _indices(self, node: Node) -> list[Node]:
        """List the index tensors and masks among the arguments of a moving operator."""
        given = arguments(node)
        leaves = tree_leaves([given.get(name) for name in ("index", "indices", "mask")])
        return [leaf for leaf in leaves if isinstance(leaf, Node)]


def refuse_dense_maps(graph: GraphModule, u: Tensor, params: Params, lifting: bool) -> None:
    """Raise Unlowerable if one map of a law with several transforms would be too dense, before any is probed."""
    called = [node for node in graph.graph.nodes if node.op == "call_function"]
    if sum(rule_for(node.target) is transform for node in called) < 2:
        return
    try:
        Lowering(Tape(u.numel(), lifting=lifting), graph, u, params, dry=True).run()
    except TooDenseMap:
        raise
    except Unlowerable:
        pass  # the walk itself will find out, or a stand-in led it elsewhere


def expanded(form: Form, shape: tuple[int, ...]) -> Form:
    """Broadcast a form to a shape."""
    return form if form.shape == shape else form.gather(flat(positions(form.shape).expand(shape)), shape)


# Operators with a fill value, and where it stands. A fill of zero needs no element.
_FILLS = {"constant_pad_nd": 2, "index_fill": 3, "scatter": 3}

# Adds operators to a graph, given the copies of nodes of the law's graph, and returns the one to evaluate.
Finish: TypeAlias = Callable[[torch.fx.Graph, dict[Node, Node]], Node]


def _itself(graph: torch.fx.Graph, copied: dict[Node, Node]) -> Node:
    return list(copied.values())[-1]


def _parts(graph: torch.fx.Graph, copied: dict[Node, Node]) -> Node:
    return graph.call_function(torch.ops.aten.view_as_real.default, (_itself(graph, copied),))


def _needed(graph: GraphModule) -> set[Node]:
    """List what the residual is made of: assertions have no part in it; torch runs them at every evaluation."""
    needed: set[Node] = set()
    for node in reversed(list(graph.graph.nodes)):
        if node.op == "output" or node in needed:
            needed.update(node.all_input_nodes)
    return needed


def _subgraph(graph: GraphModule, nodes: list[Node], finish: Finish) -> GraphModule:
    """Cut out the part of a graph that leads to some nodes and finish it; it keeps the graph's inputs."""
    part = torch.fx.Graph()
    copied: dict[Node, Node] = {}
    needed = set(nodes)
    for earlier in reversed(list(graph.graph.nodes)):
        if earlier in needed:
            needed.update(earlier.all_input_nodes)
    for one in graph.graph.nodes:
        if one.op == "placeholder" or one in needed:
            copied[one] = part.node_copy(one, copied.__getitem__)
    result = finish(part, {node: copied[node] for node in nodes})
    last = next(one for one in graph.graph.nodes if one.op == "output").args[0]
    part.output([result] if isinstance(last, (list, tuple)) else result)
    part.set_codegen(graph.graph._codegen)  # takes (u, params) apart as the whole graph does
    return GraphModule(graph, part)
