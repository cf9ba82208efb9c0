"""Lower laws to a program: nonlinear operations on single numbers, everything linear multiplied out.

Consumes the graphs of a Structure's plans; gives a `Listing`: blocks of nonlinear operations whose operands are linear
forms over cells, and the residual rows as linear forms. What cannot be lowered (a transform, a norm) raises Unlowerable,
and the caller evaluates with torch instead: slower, same answer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.fx import GraphModule, Node

from snapfm.kernels.operations import Op
from snapfm.laws import Params
from snapfm.structure.forms import Form, added, stacked
from snapfm.structure.propagate import SHAPE_ONLY
from snapfm.structure.rules.movement import move, move_by_index
from snapfm.structure.rules.reduction import labels
from snapfm.structure.rules.registry import flat, positions, rule_for
from snapfm.structure.sets import NONE, Index


class Unlowerable(Exception):
    """An operator has no scalar form here; never leaves `structure`."""


@dataclass(frozen=True)
class Block:
    """One nonlinear operation on `size` elements: cells first .. first + size − 1 = op(a, b, c)."""

    op: Op
    first: int
    a: csr_array
    b: csr_array | None = None
    c: csr_array | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.a.shape[0])


@dataclass
class Listing:
    """Cells 0 .. unknowns − 1 are the field, then the constant 1, then what blocks and params define, as met."""

    unknowns: int
    cells: int = 0
    blocks: list[Block] = field(default_factory=list)
    externals: list[tuple[int, GraphModule, int]] = field(default_factory=list)  # first cell, graph of params, count
    rows: list[Form] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cells = self.unknowns + 1

    @property
    def one(self) -> int:
        """The cell that holds the constant 1."""
        return self.unknowns

    def unit(self, first: int, size: int, shape: tuple[int, ...]) -> Form:
        """Give `size` consecutive cells as a form."""
        place = np.arange(size)
        matrix = csr_array((np.ones(size), (place, first + place)), shape=(size, self.cells))
        return Form(matrix, shape)

    def constant(self, value: Tensor) -> Form:
        """Write known numbers as multiples of the constant cell."""
        numbers = value.to(torch.float64).reshape(-1).numpy()
        present = np.flatnonzero(numbers)
        matrix = csr_array(
            (numbers[present], (present, np.full(len(present), self.one))), shape=(len(numbers), self.cells)
        )
        return Form(matrix, tuple(value.shape))

    def apply(self, op: Op, a: Form, b: Form | None = None, c: Form | None = None) -> Form:
        """Add a block and give its result."""
        first = self.cells
        parts = [None if form is None else form.widened(first).matrix for form in (a, b, c)]
        self.blocks.append(Block(op, first, parts[0], parts[1], parts[2]))
        self.cells += a.size
        return self.unit(first, a.size, a.shape)


def lower(graphs: Sequence[GraphModule], u: Tensor, params: Params) -> Listing:
    """Lower the graphs of all laws into one listing; `u` and `params` are one float64 example sample."""
    listing = Listing(u.numel())
    for graph in graphs:
        listing.rows.append(_Lowering(listing, graph, u, params).run())
    return listing


class _Lowering:
    """The walk over one law's graph."""

    def __init__(self, listing: Listing, graph: GraphModule, u: Tensor, params: Params) -> None:
        self.listing, self.graph, self.u = listing, graph, u
        self.inputs = [u, *torch.utils._pytree.tree_leaves(dict(params))]
        self.value: dict[Node, Any] = {}
        self.form: dict[Node, Form] = {}  # nodes that depend on the field
        self.known: dict[Node, bool] = {}

    def run(self) -> Form:
        inputs = iter(self.inputs)
        for node in self.graph.graph.nodes:
            if node.op == "placeholder":
                value = next(inputs)
                self.value[node], self.known[node] = value, False
                if value is self.u:
                    self.form[node] = self.listing.unit(0, value.numel(), tuple(value.shape))
            elif node.op == "get_attr":
                self.value[node], self.known[node] = getattr(self.graph, node.target), True
            elif node.op == "output":
                last = node.args[0][0] if isinstance(node.args[0], (tuple, list)) else node.args[0]
                return self.operand(last).widened(self.listing.cells)
            else:
                self.step(node)
        raise Unlowerable("no output")

    def step(self, node: Node) -> None:
        target: Any = node.target
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self.value.__getitem__)
        self.value[node] = target(*args, **kwargs)
        self.known[node] = all(self.known[used] for used in node.all_input_nodes)
        if getattr(target, "overloadpacket", None) is not None and target.overloadpacket.__name__ in SHAPE_ONLY:
            self.known[node] = True
            return
        if not any(used in self.form for used in node.all_input_nodes):
            return
        if target is operator.getitem or not isinstance(self.value[node], Tensor):
            raise Unlowerable(str(target))
        name = target.overloadpacket.__name__
        lowered = _LOWERED.get(name)
        if lowered is not None:
            self.form[node] = lowered(self, node)
        elif rule_for(target) in (move, move_by_index):
            self.form[node] = self.moved(node)
        else:
            raise Unlowerable(name)
        if self.value[node].dtype in (torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128):
            raise Unlowerable(f"{name} in {self.value[node].dtype}")

    def operand(self, argument: Any) -> Form:
        """Give an argument as a form: a tensor of the field, of params, a known one, or a number."""
        if not isinstance(argument, Node):
            return self.listing.constant(torch.as_tensor(float(argument), dtype=torch.float64))
        if argument in self.form:
            return self.form[argument]
        value = self.value[argument]
        if self.known[argument]:
            return self.listing.constant(value)
        return self.external(argument, value)

    def external(self, node: Node, value: Tensor) -> Form:
        """Make cells of a tensor that depends on params only; torch evaluates it once per call."""
        first = self.listing.cells
        self.listing.externals.append((first, _subgraph(self.graph, node), value.numel()))
        self.listing.cells += value.numel()
        form = self.listing.unit(first, value.numel(), tuple(value.shape))
        self.form[node] = form  # met again, it is the same cells
        return form

    def is_known(self, argument: Any) -> bool:
        return not isinstance(argument, Node) or (self.known[argument] and argument not in self.form)

    def number(self, argument: Any) -> Tensor:
        value = (
            self.value[argument] if isinstance(argument, Node) else torch.tensor(float(argument), dtype=torch.float64)
        )
        return value.to(torch.float64)

    def spread(self, argument: Any, node: Node) -> Form:
        """Broadcast an argument to the shape of the node's result."""
        form, shape = self.operand(argument), tuple(self.value[node].shape)
        if form.shape == shape:
            return form
        return form.gather(flat(positions(form.shape).expand(shape)), shape)

    def moved(self, node: Node) -> Form:
        """Run a moving operator on element numbers and copy the forms it points to."""
        pool: list[Form] = []
        count = 1

        def number(argument: Any) -> Any:
            nonlocal count
            value = self.value[argument]
            if argument not in self.form and not value.is_floating_point():
                if not self.known[argument]:
                    raise Unlowerable("indices from params")
                return value
            form = self.operand(argument)
            first, count = count, count + form.size
            pool.append(form)
            return positions(form.shape, first)

        target: Any = node.target
        name = target.overloadpacket.__name__
        if name in ("masked_fill", "index_fill", "scatter") or (name == "constant_pad_nd" and _fills(node)):
            raise Unlowerable(name)
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), number)
        source = flat(target(*args, **kwargs)) - 1
        return stacked(pool, self.listing.cells).gather(source, tuple(self.value[node].shape))


def _fills(node: Node) -> bool:
    """Whether a padding has a fill that is not zero."""
    arguments: Any = node.args[2:]
    return any(float(fill) != 0.0 for fill in arguments)


Lowered = Callable[[_Lowering, Node], Form]


def _add(sign: float) -> Lowered:
    def lowered(walk: _Lowering, node: Node) -> Form:
        given: Any = node.kwargs.get("alpha", 1)
        alpha = sign * float(given)
        left, right = walk.spread(node.args[0], node), walk.spread(node.args[1], node)
        return added(left, right.scaled(np.full(right.size, alpha)), walk.listing.cells)

    return lowered


def _rsub(walk: _Lowering, node: Node) -> Form:
    given: Any = node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1)
    alpha = float(given)
    left, right = walk.spread(node.args[0], node), walk.spread(node.args[1], node)
    return added(right, left.scaled(np.full(left.size, -alpha)), walk.listing.cells)


def _neg(walk: _Lowering, node: Node) -> Form:
    form = walk.operand(node.args[0])
    return form.scaled(np.full(form.size, -1.0))


def _mul(walk: _Lowering, node: Node) -> Form:
    one, other = node.args[0], node.args[1]
    if walk.is_known(one) or walk.is_known(other):
        scale, form = (one, other) if walk.is_known(one) else (other, one)
        factor = walk.number(scale).expand(walk.value[node].shape).reshape(-1).numpy()
        return walk.spread(form, node).scaled(factor)
    if one is other:
        return walk.listing.apply(Op.SQUARE, walk.operand(one))
    return walk.listing.apply(Op.MUL, walk.spread(one, node), walk.spread(other, node))


def _div(walk: _Lowering, node: Node) -> Form:
    if node.kwargs.get("rounding_mode") is not None:
        raise Unlowerable("div with rounding")
    over, under = node.args[0], node.args[1]
    if walk.is_known(under):
        factor = 1.0 / walk.number(under).expand(walk.value[node].shape).reshape(-1).numpy()
        return walk.spread(over, node).scaled(factor)
    return walk.listing.apply(Op.DIV, walk.spread(over, node), walk.spread(under, node))


def _pow(walk: _Lowering, node: Node) -> Form:
    base, exponent = node.args[0], node.args[1]
    if not walk.is_known(exponent) or walk.number(exponent).numel() != 1:
        raise Unlowerable("pow with varying exponent")
    power = float(walk.number(exponent))
    form = walk.spread(base, node)
    if power == 1.0:
        return form
    if power == 2.0:
        return walk.listing.apply(Op.SQUARE, form)
    if power == 0.5:
        return walk.listing.apply(Op.SQRT, form)
    if power == 0.0:
        return walk.listing.constant(torch.ones(form.shape))
    constant = walk.listing.constant(torch.full(form.shape, power, dtype=torch.float64))
    return walk.listing.apply(Op.POW, form, constant)


def _unary(op: Op) -> Lowered:
    return lambda walk, node: walk.listing.apply(op, walk.operand(node.args[0]))


def _binary(op: Op) -> Lowered:
    return lambda walk, node: walk.listing.apply(op, walk.spread(node.args[0], node), walk.spread(node.args[1], node))


def _clamp(walk: _Lowering, node: Node) -> Form:
    name = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    limits = [*node.args[1:], node.kwargs.get("min"), node.kwargs.get("max")]
    low, high = (limits[0], None) if name == "clamp_min" else (None, limits[0]) if name == "clamp_max" else limits[:2]
    if name == "clamp" and len(node.args) < 3:
        low = node.args[1] if len(node.args) > 1 else node.kwargs.get("min")
        high = node.kwargs.get("max")
    form = walk.spread(node.args[0], node)
    if low is not None:
        form = walk.listing.apply(Op.MAX, form, walk.spread(low, node))
    if high is not None:
        form = walk.listing.apply(Op.MIN, form, walk.spread(high, node))
    return form


def _where(walk: _Lowering, node: Node) -> Form:
    condition: Any
    condition, yes, no = node.args
    if walk.is_known(condition):
        mask = walk.value[condition].expand(walk.value[node].shape).reshape(-1).numpy().astype(float)
        taken, left = walk.spread(yes, node).scaled(mask), walk.spread(no, node).scaled(1.0 - mask)
        return added(taken, left, walk.listing.cells)
    chosen = walk.spread(condition, node)
    return walk.listing.apply(Op.SELECT, walk.spread(yes, node), walk.spread(no, node), chosen)


def _compare(op: Op, swapped: bool = False) -> Lowered:
    def lowered(walk: _Lowering, node: Node) -> Form:
        one, other = walk.spread(node.args[0], node), walk.spread(node.args[1], node)
        return walk.listing.apply(op, *((other, one) if swapped else (one, other)))

    return lowered


def _total(walk: _Lowering, node: Node) -> Form:
    form = walk.operand(node.args[0])
    given: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    axes = (
        list(range(len(form.shape)))
        if given is None or given == []
        else [given]
        if isinstance(given, int)
        else list(given)
    )
    label, size = labels(form.shape, axes)
    mean = node.target.overloadpacket is torch.ops.aten.mean  # type: ignore[union-attr]
    weight = np.full(form.size, size / max(form.size, 1) if mean else 1.0)
    return form.group(label, np.arange(form.size), weight, size, tuple(walk.value[node].shape))


def _product(walk: _Lowering, node: Node) -> Form:
    """Multiply along an axis, or over all elements, one after the other."""
    form = walk.operand(node.args[0])
    given: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    numbers = positions(form.shape)
    numbers = numbers.reshape(-1) if given is None else numbers.movedim(int(given), -1)
    shape = tuple(walk.value[node].shape)
    if numbers.shape[-1] == 0:
        return walk.listing.constant(torch.ones(shape, dtype=torch.float64))
    total = form.gather(flat(numbers[..., 0]), shape)
    for k in range(1, numbers.shape[-1]):
        total = walk.listing.apply(Op.MUL, total, form.gather(flat(numbers[..., k]), shape))
    return total


def _norm(walk: _Lowering, node: Node) -> Form:
    """Take the Euclidean norm along axes: the root of the sum of squares."""
    order: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("ord", 2)
    if float(order) != 2.0:
        raise Unlowerable(f"norm of order {order}")
    given: Any = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")
    form = walk.operand(node.args[0])
    axes = list(range(len(form.shape))) if given in (None, []) else [given] if isinstance(given, int) else list(given)
    label, size = labels(form.shape, axes)
    squares = walk.listing.apply(Op.SQUARE, form)
    total = squares.group(label, np.arange(form.size), np.ones(form.size), size, tuple(walk.value[node].shape))
    return walk.listing.apply(Op.SQRT, total)


def _matrix_product(walk: _Lowering, node: Node) -> Form:
    one: Any
    other: Any
    one, other = node.args[-2:] if node.target.overloadpacket.__name__ != "baddbmm" else node.args[1:3]  # type: ignore[union-attr]
    left, right = walk.value[one], walk.value[other]
    shape = tuple(walk.value[node].shape)
    left = left[None] if left.dim() == 1 else left
    right = right[:, None] if right.dim() == 1 else right
    batch = np.broadcast_shapes(tuple(left.shape[:-2]), tuple(right.shape[:-2]))
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    left_number = positions(left.shape).expand(*batch, rows, inner).reshape(-1, rows, inner)
    right_number = positions(right.shape).expand(*batch, inner, columns).reshape(-1, inner, columns)
    count = left_number.shape[0]
    grid = np.indices((count, rows, inner, columns)).reshape(4, -1)
    b, i, k, j = (torch.from_numpy(axis) for axis in grid)
    label = np.ravel_multi_index((grid[0], grid[1], grid[3]), (count, rows, columns)).astype(np.int64)
    first, second = flat(left_number[b, i, k]), flat(right_number[b, k, j])
    size = count * rows * columns
    if walk.is_known(one) or walk.is_known(other):
        known, form, place, source = (one, other, first, second) if walk.is_known(one) else (other, one, second, first)
        weight = walk.number(known).reshape(-1).numpy()[place]
        live = np.flatnonzero(weight)
        return walk.operand(form).group(label[live], source[live], weight[live], size, shape)
    terms = walk.listing.apply(
        Op.MUL, walk.operand(one).gather(first, (len(first),)), walk.operand(other).gather(second, (len(second),))
    )
    return terms.group(label, np.arange(len(first)), np.ones(len(first)), size, shape)


def _scan(walk: _Lowering, node: Node) -> Form:
    form, axis = walk.operand(node.args[0]), int(node.args[1])  # type: ignore[arg-type]
    numbers = positions(form.shape).movedim(axis, -1)
    length = numbers.shape[-1]
    later, earlier = np.tril_indices(length)
    lines = flat(numbers).reshape(-1, length)
    label, source = lines[:, later].ravel(), lines[:, earlier].ravel()
    return form.group(label, source, np.ones(len(label)), form.size, form.shape)


def _cast(walk: _Lowering, node: Node) -> Form:
    if walk.value[node].dtype != torch.float64:
        raise Unlowerable(f"cast to {walk.value[node].dtype}")
    return walk.operand(node.args[0])


_LOWERED: dict[str, Lowered] = {
    "add": _add(1.0), "sub": _add(-1.0), "rsub": _rsub, "neg": _neg, "mul": _mul, "div": _div, "pow": _pow,
    "square": _unary(Op.SQUARE), "sqrt": _unary(Op.SQRT), "exp": _unary(Op.EXP), "log": _unary(Op.LOG),
    "sin": _unary(Op.SIN), "cos": _unary(Op.COS), "tanh": _unary(Op.TANH), "sigmoid": _unary(Op.SIGMOID),
    "reciprocal": _unary(Op.RECIPROCAL), "abs": _unary(Op.ABS), "relu": _unary(Op.RELU), "rsqrt": _unary(Op.RSQRT),
    "maximum": _binary(Op.MAX), "minimum": _binary(Op.MIN), "clamp": _clamp, "clamp_min": _clamp, "clamp_max": _clamp,
    "where": _where, "gt": _compare(Op.GT), "lt": _compare(Op.GT, swapped=True), "ge": _compare(Op.GE),
    "le": _compare(Op.GE, swapped=True), "sum": _total, "mean": _total, "mm": _matrix_product, "bmm": _matrix_product,
    "mv": _matrix_product, "dot": _matrix_product, "cumsum": _scan, "_to_copy": _cast,
    "prod": _product, "linalg_vector_norm": _norm,
}  # fmt: skip


def _subgraph(graph: GraphModule, node: Node) -> GraphModule:
    """Cut out the part of a graph that leads to one node; it keeps the graph's inputs."""
    part = torch.fx.Graph()
    copied: dict[Node, Node] = {}
    needed = {node}
    for earlier in reversed(list(graph.graph.nodes)):
        if earlier in needed:
            needed.update(earlier.all_input_nodes)
    for one in graph.graph.nodes:
        if one.op == "placeholder" or one in needed:
            copied[one] = part.node_copy(one, copied.__getitem__)
    last = next(one for one in graph.graph.nodes if one.op == "output").args[0]
    part.output([copied[node]] if isinstance(last, (list, tuple)) else copied[node])
    part.set_codegen(graph.graph._codegen)  # takes (u, params) apart as the whole graph does
    return GraphModule(graph, part)


__all__ = ["NONE", "Block", "Index", "Listing", "Unlowerable", "lower"]
