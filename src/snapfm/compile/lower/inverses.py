"""Determinants, inverses, solutions and Cholesky factors of small matrices that vary, written out.

Determinants and inverses by cofactors: they need no pivots, whose choice would depend on the field, and have derivatives
everywhere. Their rounding errors are those of a sum of products of n entries: harmless in small matrices. Larger ones are left
to torch. A matrix that does not depend on the field may have any size.
"""

from __future__ import annotations

import operator
from functools import cache, reduce
from typing import Any

import torch
from torch.fx import Graph, Node

from snapfm.compile.lower.formulas import Term, joined, lowers
from snapfm.compile.lower.interpreter import Lowering
from snapfm.compile.lower.matrices import product
from snapfm.compile.lower.tape import Form, Unlowerable
from snapfm.compile.sparsity.rules.registry import flat, positions
from snapfm.kernels.operators import Op

_LARGEST = 5  # a determinant takes n 2ⁿ⁻¹ products: 80


class _Matrix:
    """A batch of square matrices that vary."""

    def __init__(self, walk: Lowering, node: Any) -> None:
        form = walk.operand(node)
        self.walk, self.size, self.batch = walk, form.shape[-1], form.shape[:-2]
        if not 0 < self.size <= _LARGEST:
            raise Unlowerable(f"linear algebra on varying matrices of size {self.size} (limit {_LARGEST})")
        numbers = positions(form.shape)
        whole = Term(walk.tape, form)
        self.entry = cache(lambda i, j: whole.gather(flat(numbers[..., i, j]), self.batch))
        self.minor = cache(self._minor)
        self.every = tuple(range(self.size))

    def _minor(self, rows: tuple[int, ...], columns: tuple[int, ...]) -> Term:
        """Expand the determinant of some rows and columns along its first row."""
        if not rows:
            return self.entry(0, 0) * 0.0 + 1.0
        if len(rows) == 1:
            return self.entry(rows[0], columns[0])
        return reduce(operator.add, [
            self.entry(rows[0], column) * self.minor(rows[1:], columns[:k] + columns[k + 1 :]) * (-1.0) ** k
            for k, column in enumerate(columns)
        ])  # fmt: skip

    def determinant(self) -> Term:
        return self.minor(self.every, self.every)

    def inverse(self) -> Form:
        return self._over_determinant(Term(self.walk.tape, self._adjugate()))

    def solve(self, right: Form, shape: tuple[int, ...]) -> Form:
        """Return the inverse times a batch of matrices, which may vary too."""
        return self._over_determinant(Term(self.walk.tape, product(self.walk, self._adjugate(), right, shape)))

    def _adjugate(self) -> Form:
        """Return the matrix whose product with the given one is its determinant."""
        every, parts = self.every, []
        for i in every:
            for j in every:
                minor = self.minor(every[:j] + every[j + 1 :], every[:i] + every[i + 1 :])
                parts.append(minor * (-1.0) ** (i + j))
        return _arranged(parts, self.batch, (self.size, self.size)).form

    def _over_determinant(self, term: Term) -> Form:
        """Divide every element of a batch of matrices by the determinant of its matrix."""
        shape = term.form.shape
        places = positions(self.batch).reshape(*self.batch, 1, 1).expand(shape)
        return (term / self.determinant().gather(flat(places), shape)).form


def _arranged(parts: list[Term], batch: tuple[int, ...], shape: tuple[int, int]) -> Term:
    """Put elements, each for the whole batch, together to matrices of a shape."""
    order = positions((*shape, *batch)).permute(*range(2, 2 + len(batch)), 0, 1)
    return joined(parts).gather(flat(order), (*batch, *shape))


@lowers("_linalg_det")
def _det(walk: Lowering, node: Node) -> tuple[Form | None, ...]:
    """Return the determinant; its factors, which torch returns too, have no scalar form."""
    return _Matrix(walk, node.args[0]).determinant().form, None, None


@lowers("_linalg_slogdet")
def _log_det(walk: Lowering, node: Node) -> tuple[Form | None, ...]:
    found = _Matrix(walk, node.args[0]).determinant()
    return found.apply(Op.SIGN).form, found.apply(Op.ABS).apply(Op.LOG).form, None, None


@lowers("linalg_inv_ex")
def _inverse(walk: Lowering, node: Node) -> tuple[Form | None, ...]:
    return _Matrix(walk, node.args[0]).inverse(), None


@lowers("_linalg_solve_ex")
def _solve(walk: Lowering, node: Node) -> tuple[Form | None, ...]:
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
        solution = _Matrix(walk, matrix).solve(value, column)
    elif walk.is_known(matrix):
        solution = product(walk, torch.linalg.inv(walk.number(matrix)), value, column)
    else:
        solution = product(walk, walk.of_params([matrix], _inverted, tuple(square)), value, column)
    return Form(solution.matrix, shape), None, None, None


def _inverted(graph: Graph, copied: dict[Node, Node]) -> Node:
    pair = graph.call_function(torch.ops.aten.linalg_inv_ex.default, tuple(copied.values()))
    return graph.call_function(operator.getitem, (pair, 0))


@lowers("linalg_cholesky_ex")
def _cholesky(walk: Lowering, node: Node) -> tuple[Form | None, ...]:
    """Return the lower factor, column by column; it needs no pivots."""
    matrix = _Matrix(walk, node.args[0])
    if node.kwargs.get("upper", False):
        raise Unlowerable("upper Cholesky factor")
    zero = walk.tape.constant(torch.zeros(matrix.batch, dtype=torch.float64))
    factor = [[Term(walk.tape, zero)] * matrix.size for _ in matrix.every]
    for j in matrix.every:
        for i in range(j, matrix.size):
            left = matrix.entry(i, j)
            for k in range(j):
                left = left - factor[i][k] * factor[j][k]
            factor[i][j] = left.apply(Op.SQRT) if i == j else left / factor[j][j]
    return _arranged([entry for row in factor for entry in row], matrix.batch, (matrix.size, matrix.size)).form, None
