"""Determinants, inverses and solutions of small blocks that vary: by cofactors, written out.

Cofactors need no pivots, whose choice would depend on the field, and have derivatives everywhere. Their rounding errors are
those of a sum of products of n entries: harmless up to 4 × 4. A matrix that does not depend on the field may have any size.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from snapfm.kernels.operators import Op
from snapfm.structure.lowering.contraction import product
from snapfm.structure.lowering.formulas import Term, joined
from snapfm.structure.lowering.table import lowers
from snapfm.structure.lowering.tape import Form, Unlowerable
from snapfm.structure.lowering.walk import Walk
from snapfm.structure.rules.registry import flat, positions

_LARGEST_BLOCK = 4


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
        """Give the matrix whose product with the block is its determinant."""
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
    """Give the determinant; its factors, which torch gives too, have no scalar form."""
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
    value: Form | Tensor = walk.operand(right)
    if isinstance(value, Form):
        value = Form(value.matrix, (*value.shape, 1)) if vector else value
    if walk.reads(matrix):
        block = _Block(walk, matrix)
        scaled = Term(walk.tape, product(walk, block.adjugate(), value, column))
        solution = _over_determinant(block, scaled).form
    elif walk.is_known(matrix):
        solution = product(walk, torch.linalg.inv(walk.number(matrix)), value, column)
    else:
        solution = product(walk, walk.external([matrix], _inverted, tuple(square)), value, column)
    return Form(solution.matrix, shape), None, None, None


def _inverted(graph: Graph, copied: dict[Node, Node]) -> Node:
    pair = graph.call_function(torch.ops.aten.linalg_inv_ex.default, tuple(copied.values()))
    return graph.call_function(operator.getitem, (pair, 0))


def _over_determinant(block: _Block, term: Term) -> Term:
    """Divide every element of a batch of matrices by the determinant of its block."""
    shape = term.form.shape
    places = positions(block.batch).reshape(*block.batch, 1, 1).expand(shape)
    return term / block.determinant().gather(flat(places), shape)
