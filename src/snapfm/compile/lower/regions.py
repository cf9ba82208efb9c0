"""Linear regions: chains of operators that are linear in what they read are kept as maps and probed for their matrix.

An operator joins when it is linear in the field with slopes that never change. A transform, a multiplication by known wave
numbers and the transform back are then one map, whose inner complex tensors are never written out. A map begins at tensors
that are written out already: forms, pairs, and values of params. Probing takes few evaluations, on sums of unit vectors that
share no row. A last, random evaluation checks the matrix, because its pattern comes from rules, and rules may be wrong.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.fx import Node

from snapfm.arrays import Index, Values
from snapfm.compile.lower.lifts import lifted
from snapfm.compile.lower.tape import Form, Unlowerable, added, stacked, units
from snapfm.compile.sparsity.pattern import Pattern, Sets
from snapfm.compile.sparsity.rules import Operand, OperatorCall, rule_for
from snapfm.compile.sparsity.rules.mixing import matrix_product, resample, transform
from snapfm.compile.sparsity.rules.movement import accumulate, move, move_by_index
from snapfm.compile.trace.batched import pullback
from snapfm.errors import LawError
from snapfm.kernels.coloring import color_columns

if TYPE_CHECKING:
    from snapfm.compile.lower.interpreter import Lowering

# Entries of one map's matrix. 20 million take a quarter of a gigabyte and some seconds to probe: a transform of whole
# 64 × 64 planes fits; larger ones are left to torch, which transforms faster than any written-out matrix.
ENTRY_LIMIT = 20_000_000

Function = Callable[[Tensor], Tensor]

# A product with the transposed matrix takes about as long as three evaluations.
_ROWS_PAY = 3

# Agreement asked of the random evaluation, relative to the sum of the terms' sizes: rounding of a long transform.
_AGREE = 1e-12
# Numbers in flight at once: evaluations are made in blocks below this size.
_BLOCK = 8_000_000
# Entries below this share of their row's largest are what transforms leave of zeros: terms × eps, with room.
_NOISE = 64 * np.finfo(np.float64).eps
# Operators, and rules of operators, that are linear in the field where all else is known.
_SUMS = {
    "add", "sub", "rsub", "neg", "deg2rad", "rad2deg", "sum", "mean", "nansum", "trace", "cumsum", "view_as_real",
    "view_as_complex", "real", "imag",
}  # fmt: skip
_PRODUCTS = {"mul", "mm", "bmm", "mv", "dot", "vdot", "convolution", "addmm", "baddbmm", "addmv", "addbmm"}
_FAMILIES = (move, move_by_index, accumulate, resample, transform)
_PICKS = ("amax", "amin", "prod")  # reductions of scatter_reduce that are not linear


class TooDenseMap(Unlowerable):
    """The matrix of a map has too many entries."""


class Regions:
    """The maps of one walk; `node in regions` means that a tensor is given by one."""

    def __init__(self, walk: Lowering) -> None:
        self.walk = walk
        self._tracked: dict[Node, Any] = {}  # Operand, or a tuple of them, over the numbers of the beginnings
        self._begins: dict[Node, int] = {}  # first number of each beginning
        self._width = 0

    def __contains__(self, node: Node) -> bool:
        return node in self._tracked

    def uses(self, node: Node) -> bool:
        """Whether a map is given by this node or begins at it."""
        return node in self._tracked or node in self._begins

    def take(self, node: Node) -> bool:
        """Make a node part of the maps if it is linear in what it reads, with slopes that never change."""
        target: Any = node.target
        args: Any
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self._operand)
        if target is operator.getitem:
            if node.args[0] not in self._tracked:
                return False
            self._tracked[node] = args[0][args[1]]
            return True
        rule = rule_for(target)
        if rule is None:
            return False
        value = self.walk.value[node]
        call = OperatorCall(target, tuple(args), dict(kwargs), value, self._width)
        if not _is_linear(call):
            return False
        try:
            found = rule(call)
        except LawError:
            return False
        parts = found if isinstance(found, tuple) else (found,)
        values = value if isinstance(value, (tuple, list)) else (value,)
        if any(part is None for part in parts) or not all(isinstance(v, Tensor) for v in values):
            return False
        tracked = tuple(Operand(one, part, False) for one, part in zip(values, parts))
        self._tracked[node] = tracked if isinstance(value, (tuple, list)) else tracked[0]
        return True

    def written_out(self, node: Node) -> Form:
        """Return the tensor of a map as a form over cells; a complex one in parts, along a last axis of two."""
        walk, inside = self.walk, self._inside(node)
        begins = [one for one in self._begins if any(one in member.all_input_nodes for member in inside)]
        forms = [walk.operand(one) for one in begins]
        entries = self._tracked[node].reads.nnz * (2 if walk.value[node].is_complex() else 1)
        splits = [walk.value[one].is_complex() for one in begins]

        def function(flat: Tensor, end: Node = node) -> Tensor:
            known = dict(walk.value)
            start = 0
            for one, form, split in zip(begins, forms, splits):
                # A copy, because views of complex numbers need their own start.
                part = flat[start : start + form.size].reshape(form.shape).clone()
                known[one] = torch.view_as_complex(part) if split else part
                start += form.size
            for member in inside:
                target: Any = member.target
                args, kwargs = torch.fx.node.map_arg((member.args, member.kwargs), known.__getitem__)
                known[member] = target(*args, **kwargs)
            result: Tensor = known[end]
            return (torch.view_as_real(result) if result.is_complex() else result).reshape(-1)

        mixing = [member for member in inside if rule_for(member.target) in (transform, matrix_product)]
        whole_map = partial(function, end=mixing[-1] if mixing else node)
        over = lifted(walk.tape, forms[0], whole_map, function, entries) if len(begins) == 1 else None
        if entries > ENTRY_LIMIT and over is None:
            raise TooDenseMap(
                f"{_names(inside)}, whose matrix of {entries:,} entries is too dense to write out (limit {ENTRY_LIMIT:,})"
            )
        if walk.dry:
            return self._stand_in(node)
        try:
            if over is None:
                matrix, offset = probe(function, self._pattern(node, begins, [form.size for form in forms]))
                whole = stacked(forms, walk.tape.cells).matrix
            else:
                lift, pattern = over
                matrix, offset = probe(
                    lambda y: function(torch.from_numpy(lift.back(y.numpy()[None])[0])), pattern, False
                )
                whole = walk.tape.unit(lift.first, len(lift.unknowns), lift.shape).matrix
        except NotLinear as cause:
            raise Unlowerable(f"{_names(inside)} ({cause})") from cause
        shape = tuple(walk.value[node].shape)
        shape = (*shape, 2) if walk.value[node].is_complex() else shape
        linear = Form(csr_array(matrix @ whole), shape)
        return added(linear, walk.tape.constant(torch.from_numpy(offset).reshape(shape)), walk.tape.cells)

    def _stand_in(self, node: Node) -> Form:
        """Return a form of the right shape that reads one unknown alone: for a walk that looks at sizes."""
        value = self.walk.value[node]
        shape = (*value.shape, 2) if value.is_complex() else tuple(value.shape)
        size = int(np.prod(shape))
        tape = self.walk.tape
        return Form(units(np.full(size, tape.first_unknown), tape.cells), shape)

    def _operand(self, node: Node) -> Any:
        """See a node as rules do; one that is written out begins maps, under numbers of its own."""
        if node in self._tracked:
            return self._tracked[node]
        value = self.walk.value[node]
        floating = isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
        if self.walk.is_known(node) or not floating:
            return Operand(value, None, self.walk.known[node])
        each, count = 2 if value.is_complex() else 1, value.numel()
        if node not in self._begins:
            self._begins[node] = self._width
            self._width += each * count
        first = self._begins[node]
        sets = Sets(each * np.arange(count + 1), first + np.arange(each * count), first + each * count)
        return Operand(value, sets, False)

    def _inside(self, node: Node) -> list[Node]:
        """List the operators between the beginnings and a node, in the order of the graph."""
        needed = {node}
        found = []
        for earlier in reversed(list(self.walk.graph.graph.nodes)):
            if earlier in needed and earlier in self._tracked:
                found.append(earlier)
                needed.update(earlier.all_input_nodes)
        return found[::-1]

    def _pattern(self, node: Node, begins: list[Node], sizes: list[int]) -> Pattern:
        """Return where the matrix can be non-zero, over the beginnings one after the other."""
        reads: Sets = self._tracked[node].reads
        if self.walk.value[node].is_complex():
            reads = reads.gather(np.repeat(np.arange(reads.size), 2))
        place = np.zeros(self._width, np.int64)
        start = 0
        for one, size in zip(begins, sizes):
            first = self._begins[one]
            place[first : first + size] = start + np.arange(size)
            start += size
        columns: Index = place[reads.indices]
        if len(begins) > 1:
            columns = columns[np.lexsort((columns, reads.rows()))]
        return Pattern(reads.size, start, reads.indptr, columns)


def _names(inside: list[Node]) -> str:
    names = [str(getattr(node.target, "overloadpacket", node.target)).removeprefix("aten.") for node in inside]
    return " → ".join(dict.fromkeys(names))


def _is_linear(call: OperatorCall) -> bool:
    """Whether a call is linear in what reads the field, all else being known."""
    operands = call.operands()
    reading = [operand for operand in operands if operand.reads is not None]
    if not all(operand.known for operand in operands if operand.reads is None):
        return False
    if call.name == "_to_copy":
        return bool(call.value.dtype.is_floating_point or call.value.is_complex())
    if call.name in _PRODUCTS:
        factors = call.args[1:3] if call.name.startswith("add") or call.name == "baddbmm" else call.args[:2]
        return sum(isinstance(one, Operand) and one.reads is not None for one in factors) <= 1
    if call.name == "div":
        under = call.args[1]
        return call.kwargs.get("rounding_mode") is None and not (isinstance(under, Operand) and under.reads is not None)
    if call.name == "where":
        return call.args[0].reads is None
    if call.name == "scatter_reduce" and call.args[4] in _PICKS:
        return False
    return call.name in _SUMS or (rule_for(call.target) in _FAMILIES and all(_plain(operand) for operand in reading))


def _plain(operand: Operand) -> bool:
    """Whether an operand holds numbers, not indices or masks."""
    return bool(operand.value.is_floating_point() or operand.value.is_complex())


class NotLinear(Exception):
    """A random evaluation differs from the matrix; never leaves `structure`."""


def probe(function: Function, pattern: Pattern, differentiable: bool = True) -> tuple[csr_array, Values]:
    """Return the matrix and the offset of an affine function from (columns,) to (rows,), float64."""
    offset = function(torch.zeros(pattern.columns, dtype=torch.float64)).numpy()
    turned = _transposed(pattern)
    longest = pattern.counts.max(initial=0)
    if differentiable and _ROWS_PAY * turned[0].counts.max(initial=0) < longest:  # few long rows: a few totals or modes
        flipped, entry = turned
        start = torch.zeros(pattern.columns, dtype=torch.float64)
        values = np.empty(pattern.nnz)
        values[entry] = _products(pullback(function, start)[1], flipped)
    else:
        values = _products(lambda seed: function(seed) - torch.from_numpy(offset), pattern)
    matrix = pattern.csr(_equalized(pattern, values)).copy()  # the pattern is not to lose its zeros
    _check(function, matrix, offset)
    matrix.eliminate_zeros()
    return matrix, offset


def _transposed(pattern: Pattern) -> tuple[Pattern, Index]:
    """Return the pattern of the transposed matrix, and the place of each of its entries in the given one."""
    turned = csr_array(pattern.csr(np.arange(1.0, pattern.nnz + 1)).T)
    indptr, indices = turned.indptr.astype(np.int64), turned.indices.astype(np.int64)
    return Pattern(pattern.columns, pattern.rows, indptr, indices), turned.data.astype(np.int64) - 1


def _products(function: Function, pattern: Pattern) -> Values:
    """Return the entries of a linear function's matrix, from products with sums of unit vectors that share no row."""
    colors, count = _colors(pattern)
    values = np.zeros(pattern.nnz)
    row, column = pattern.row_of(), pattern.indices
    by_color = np.argsort(colors[column], kind="stable")
    ends = np.searchsorted(colors[column][by_color], np.arange(count + 1))
    step = max(1, _BLOCK // max(1, pattern.rows + pattern.columns))
    for first in range(0, count, step):
        last = min(count, first + step)
        seeds = torch.zeros(last - first, pattern.columns, dtype=torch.float64)
        chosen = np.flatnonzero((colors >= first) & (colors < last))
        seeds[torch.from_numpy(colors[chosen] - first), torch.from_numpy(chosen)] = 1.0
        products = np.stack([function(seed).numpy() for seed in seeds])
        entry = by_color[ends[first] : ends[last]]
        values[entry] = products[colors[column[entry]] - first, row[entry]]
    return values


def _colors(pattern: Pattern) -> tuple[Index, int]:
    """Color the columns; blocks that are full, such as transforms have, are numbered without a search."""
    graph = csr_array(
        (np.ones(pattern.nnz, bool), (pattern.row_of(), pattern.rows + pattern.indices)),
        shape=(pattern.rows + pattern.columns,) * 2,
    )
    label = connected_components(graph, directed=False)[1]
    row_label, column_label = label[: pattern.rows], label[pattern.rows :]
    width = np.bincount(column_label, minlength=label.max(initial=0) + 1)
    counts = pattern.counts
    if not ((counts == 0) | (counts == width[row_label])).all():
        return color_columns(pattern.indptr, pattern.indices, pattern.columns)
    order = np.argsort(column_label, kind="stable")
    start = np.concatenate([[0], np.cumsum(width)])
    colors = np.empty(pattern.columns, np.int64)
    colors[order] = np.arange(pattern.columns) - start[column_label[order]]
    return colors, int(width.max(initial=0))


def _equalized(pattern: Pattern, values: Values) -> Values:
    """Clear the noise that transforms leave of zeros, and make entries that are equal up to it bitwise equal.

    A transform along an axis is the same matrix on every line, but torch's vectors and their remainders round it
    differently; parts with the same structure are recognized by their bits.
    """
    row = pattern.row_of()
    largest = np.zeros(pattern.rows)
    np.maximum.at(largest, row, np.abs(values))
    scale = np.where(largest > 0.0, largest, 1.0)[row]
    out = np.where(np.abs(values) <= _NOISE * scale, 0.0, values)
    kind, share = _runs(np.log(scale)), _runs(out / scale)
    both = kind * (share.max(initial=0) + 1) + share
    _, first, member = np.unique(both, return_index=True, return_inverse=True)
    same: Values = out[first][member]
    return same


def _runs(values: Values) -> Index:
    """Number the runs of values that follow each other, in order of size, within the noise."""
    order = np.argsort(values, kind="stable")
    apart = np.diff(values[order], prepend=-np.inf) > _NOISE
    number = np.empty(len(values), np.int64)
    number[order] = np.cumsum(apart)
    return number


def _check(function: Function, matrix: csr_array, offset: Values) -> None:
    probe = torch.randn(matrix.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    truth = function(probe).numpy()
    terms = abs(matrix) @ np.abs(probe.numpy()) + np.abs(offset)
    off = np.abs(matrix @ probe.numpy() + offset - truth)
    if not (off <= _AGREE * max(1.0, float(terms.max(initial=0.0)))).all():
        raise NotLinear("it does not act as its matrix does")
