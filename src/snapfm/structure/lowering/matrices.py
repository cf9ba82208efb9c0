"""Products of matrices, convolutions, and determinants, inverses and solutions of small blocks.

Products are linear where one factor is known, and one multiplication per term where both vary. Determinants and inverses of
blocks that vary are written out by cofactors. Cofactors need no pivots, whose choice would depend on the field, and have
derivatives everywhere. Their rounding errors are those of a sum of products of n entries: harmless up to 4 × 4. A matrix
that does not depend on the field may have any size.
"""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Graph, Node

from snapfm.kernels.operators import Op
from snapfm.structure.lowering.formulas import Term, joined, lowers
from snapfm.structure.lowering.tape import Form, Unlowerable, added
from snapfm.structure.lowering.walk import Walk
from snapfm.structure.pattern import ENTRY_LIMIT
from snapfm.structure.rules.mixing import fetches
from snapfm.structure.rules.registry import flat, positions

_LARGEST_BLOCK = 4


@lowers("mm", "bmm", "mv", "dot")
def _matrix_product(walk: Walk, node: Node) -> Form:
    left, right = _factors(walk, *node.args)
    return _product(walk, left, right, tuple(walk.value[node].shape))


@lowers("addmm", "baddbmm", "addmv", "addbmm")
def _added_product(walk: Walk, node: Node) -> Form:
    """β·base + α·(one @ other); addbmm also adds up the batch."""
    base, one, other = node.args[:3]
    beta, alpha = (float(node.kwargs.get(name, 1)) for name in ("beta", "alpha"))  # type: ignore[arg-type]
    shape = tuple(walk.value[node].shape)
    left, right = _factors(walk, one, other)
    if node.target.overloadpacket is torch.ops.aten.addbmm:  # type: ignore[union-attr]
        batch = int(left.shape[0])
        whole = _product(walk, left, right, (batch, *shape))
        label = np.tile(np.arange(whole.size // max(batch, 1)), batch)
        total = whole.group(label, np.arange(whole.size), np.ones(whole.size), int(np.prod(shape)), shape)
    else:
        total = _product(walk, left, right, shape)
    kept = walk.spread(base, node)
    return added(kept.scaled(np.full(kept.size, beta)), total.scaled(np.full(total.size, alpha)), walk.tape.cells)


def _factors(walk: Walk, *nodes: Any) -> list[Form | Tensor]:
    """Return factors as numbers where they are known, else as forms."""
    return [walk.number(node) if walk.is_known(node) else walk.operand(node) for node in nodes]


def _product(walk: Walk, left: Form | Tensor, right: Form | Tensor, shape: tuple[int, ...]) -> Form:
    """Multiply matrices, batches of them or vectors: linear where one is known, else one multiplication a term."""
    one = tuple(left.shape) if len(left.shape) > 1 else (1, *left.shape)
    other = tuple(right.shape) if len(right.shape) > 1 else (*right.shape, 1)
    batch = np.broadcast_shapes(one[:-2], other[:-2])
    rows, inner, columns, count = one[-2], one[-1], other[-1], math.prod(batch)
    if count * rows * inner * columns > ENTRY_LIMIT:
        raise Unlowerable(f"matrix product of {count * rows * inner * columns:,} terms (limit {ENTRY_LIMIT:,})")
    left_number = positions(one).expand(*batch, rows, inner).reshape(count, rows, inner)
    right_number = positions(other).expand(*batch, inner, columns).reshape(count, inner, columns)
    grid = np.indices((count, rows, inner, columns)).reshape(4, -1)
    b, i, k, j = (torch.from_numpy(axis) for axis in grid)
    label = np.ravel_multi_index((grid[0], grid[1], grid[3]), (count, rows, columns)).astype(np.int64)
    first, second = flat(left_number[b, i, k]), flat(right_number[b, k, j])
    size = count * rows * columns
    if isinstance(left, Form) and isinstance(right, Form):
        terms = walk.tape.apply(Op.MUL, left.gather(first, (len(first),)), right.gather(second, (len(second),)))
        return terms.group(label, np.arange(len(first)), np.ones(len(first)), size, shape)
    known, form, place, source = (
        (right, left, second, first) if isinstance(left, Form) else (left, right, first, second)
    )
    if isinstance(known, Form) or not isinstance(form, Form):  # both are known
        return walk.tape.constant(torch.matmul(left, right).reshape(shape))  # type: ignore[arg-type]
    weight = known.reshape(-1).numpy()[place]
    live = np.flatnonzero(weight)
    return form.group(label[live], source[live], weight[live], size, shape)


@lowers("convolution")
def _convolution(walk: Walk, node: Node) -> Form:
    """Convolve with a kernel that varies (params, the field): one multiplication for each tap of each element."""
    image: Any
    kernel: Any
    bias: Any
    image, kernel, bias = node.args[:3]
    if walk.is_known(kernel):
        raise Unlowerable("convolution")  # a map with constant slopes, which is probed
    kernel_shape = walk.value[kernel].shape
    every = np.arange(kernel_shape.numel())
    places, read, weights = fetches(node.target, walk.value[image].shape, kernel_shape, node.args[3:], every)
    shape, size = tuple(walk.value[node].shape), walk.value[node].numel()
    terms = walk.tape.apply(
        Op.MUL, walk.operand(image).gather(read, (len(read),)), walk.operand(kernel).gather(weights, (len(read),))
    )
    total = terms.group(places, np.arange(len(read)), np.ones(len(read)), size, shape)
    if bias is None:
        return total
    channels = positions((shape[1],)).reshape(-1, *(1 for _ in shape[2:])).expand(shape)
    return added(total, walk.operand(bias).gather(flat(channels), shape), walk.tape.cells)


class _Block:
    """A batch of square matrices of one small size, element by element."""

    def __init__(self, walk: Walk, node: Any) -> None:
        form = walk.operand(node)
        self.size = form.shape[-1]
        if self.size > _LARGEST_BLOCK or self.size == 0:
            raise Unlowerable(f"linear algebra on varying matrices of size {self.size} (limit {_LARGEST_BLOCK})")
        self.batch = form.shape[:-2]
        numbers = positions(form.shape)
        whole = Term(walk.tape, form)
        self.entry = cache(lambda i, j: whole.gather(flat(numbers[..., i, j]), self.batch))
        self.minor = cache(self._minor)

    def _minor(self, rows: tuple[int, ...], columns: tuple[int, ...]) -> Term:
        """Expand the determinant of some rows and columns along its first row."""
        if not rows:
            return self.entry(0, 0) * 0.0 + 1.0
        if len(rows) == 1:
            return self.entry(rows[0], columns[0])
        parts = [
            self.entry(rows[0], column) * self.minor(rows[1:], columns[:k] + columns[k + 1 :]) * (-1.0) ** k
            for k, column in enumerate(columns)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def determinant(self) -> Term:
        every = tuple(range(self.size))
        return self.minor(every, every)

    def adjugate(self) -> Form:
        """Return the matrix whose product with the block is its determinant."""
        every = tuple(range(self.size))
        parts = []
        for i in every:
            for j in every:
                minor = self.minor(every[:j] + every[j + 1 :], every[:i] + every[i + 1 :])
                parts.append(minor * (-1.0) ** (i + j))
        shape = (*self.batch, self.size, self.size)
        order = flat(positions((self.size, self.size, *self.batch)).permute(*range(2, 2 + len(self.batch)), 0, 1))
        return joined(parts).gather(order, shape).form


@lowers("_linalg_det")
def _det(walk: Walk, node: Node) -> tuple[Form | None, ...]:
    """Return the determinant; its factors, which torch returns too, have no scalar form."""
    return _Block(walk, node.args[0]).determinant().form, None, None


@lowers("_linalg_slogdet")
def _log_det(walk: Walk, node: Node) -> tuple[Form | None, ...]:
    found = _Block(walk, node.args[0]).determinant()
    return found.apply(Op.SIGN).form, found.apply(Op.ABS).apply(Op.LOG).form, None, None


@lowers("linalg_inv_ex")
def _inverse(walk: Walk, node: Node) -> tuple[Form | None, ...]:
    block = _Block(walk, node.args[0])
    return _over_determinant(block, Term(walk.tape, block.adjugate())).form, None


@lowers("_linalg_solve_ex")
def _solve(walk: Walk, node: Node) -> tuple[Form | None, ...]:
    matrix: Any = node.args[0]
    right: Any = node.args[1]
    if not node.kwargs.get("left", True):
        raise Unlowerable("solve with the matrix on the right")
    square, given = walk.value[matrix].shape, walk.value[right].shape
    vector = len(given) == 1 or (len(given) == len(square) - 1 and given == square[:-1])
    shape = tuple(walk.value[node][0].shape)
    column = (*shape, 1) if vector else shape
    value = walk.operand(right)
    if vector:
        value = Form(value.matrix, (*value.shape, 1))
    if walk.reads(matrix):
        block = _Block(walk, matrix)
        scaled = Term(walk.tape, _product(walk, block.adjugate(), value, column))
        solution = _over_determinant(block, scaled).form
    elif walk.is_known(matrix):
        solution = _product(walk, torch.linalg.inv(walk.number(matrix)), value, column)
    else:
        solution = _product(walk, walk.external([matrix], _inverted, tuple(square)), value, column)
    return Form(solution.matrix, shape), None, None, None


def _inverted(graph: Graph, copied: dict[Node, Node]) -> Node:
    pair = graph.call_function(torch.ops.aten.linalg_inv_ex.default, tuple(copied.values()))
    return graph.call_function(operator.getitem, (pair, 0))


def _over_determinant(block: _Block, term: Term) -> Term:
    """Divide every element of a batch of matrices by the determinant of its block."""
    shape = term.form.shape
    places = positions(block.batch).reshape(*block.batch, 1, 1).expand(shape)
    return term / block.determinant().gather(flat(places), shape)
