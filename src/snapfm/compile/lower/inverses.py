"""Determinants, inverses, solutions and Cholesky factors of matrices that vary.

Up to 4 × 4 determinants and inverses are written out by cofactors. Cofactors need no pivots, whose choice would depend on the
field, and have derivatives everywhere. Their rounding errors are those of a sum of products of n entries: harmless in small
matrices.

Larger ones are eliminated with pivots, on values without slopes (Op.HOLD), which costs no derivatives. With B that inverse, and
E = A − A without its slopes, which is zero, A⁻¹ = B − BEB + BEBEB has the value, the slopes and the curvature of the inverse.
The same holds for log|det A| = log|det| + tr BE − ½ tr BEBE, its exponential, and solutions.

A matrix that does not depend on the field may have any size.
"""

from __future__ import annotations

import operator
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch.fx import Graph, Node

from snapfm.arrays import Index
from snapfm.compile.lower.formulas import Term, joined, lowers
from snapfm.compile.lower.interpreter import Lowering
from snapfm.compile.lower.matrices import product
from snapfm.compile.lower.tape import Form, Unlowerable
from snapfm.compile.sparsity.rules.registry import flat, positions
from snapfm.kernels.operators import Op

_BY_COFACTORS = 4
_LARGEST = 16  # the curvature of a determinant couples n⁴ pairs of entries
_LARGEST_FACTOR = 10  # of Cholesky, which is differentiated operation by operation


class _Matrix(Protocol):
    """A batch of square matrices that vary."""

    def determinant(self) -> Term: ...

    def log_determinant(self) -> tuple[Term, Term]:
        """Return the sign and the logarithm of the size."""
        ...

    def solve(self, right: Form, shape: tuple[int, ...]) -> Form:
        """Return the inverse times a batch of matrices, which may vary too."""
        ...

    def inverse(self) -> Form: ...


def _matrix(walk: Lowering, node: Any) -> _Matrix:
    form = walk.operand(node)
    size = form.shape[-1]
    if size > _LARGEST or size == 0:
        raise Unlowerable(f"linear algebra on varying matrices of size {size} (limit {_LARGEST})")
    return _Small(walk, form) if size <= _BY_COFACTORS else _Large(walk, form)


class _Small:
    """Matrices up to 4 × 4, by cofactors."""

    def __init__(self, walk: Lowering, form: Form) -> None:
        self.walk, self.size, self.batch = walk, form.shape[-1], form.shape[:-2]
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

    def log_determinant(self) -> tuple[Term, Term]:
        found = self.determinant()
        return found.apply(Op.SIGN), found.apply(Op.ABS).apply(Op.LOG)

    def inverse(self) -> Form:
        return self._over_determinant(Term(self.walk.tape, self._adjugate()))

    def solve(self, right: Form, shape: tuple[int, ...]) -> Form:
        return self._over_determinant(Term(self.walk.tape, product(self.walk, self._adjugate(), right, shape)))

    def _adjugate(self) -> Form:
        """Return the matrix whose product with the given one is its determinant."""
        every = tuple(range(self.size))
        parts = []
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


class _Large:
    """Matrices by elimination on values without slopes, and expansions to second order around them."""

    def __init__(self, walk: Lowering, form: Form) -> None:
        self.walk, self.size = walk, form.shape[-1]
        self.shape, self.batch = form.shape, form.shape[:-2]
        self.whole = Term(walk.tape, form)

    def determinant(self) -> Term:
        first, second = self._traces
        _, sign, size = self._eliminated
        return sign * size.apply(Op.EXP) * (first + (first.apply(Op.SQUARE) - second) * 0.5 + 1.0)

    def log_determinant(self) -> tuple[Term, Term]:
        first, second = self._traces
        _, sign, size = self._eliminated
        return sign, size + first - second * 0.5

    def inverse(self) -> Form:
        return self._expanded(self._eliminated[0], self.shape)

    def solve(self, right: Form, shape: tuple[int, ...]) -> Form:
        return self._expanded(self._times(self._eliminated[0], Term(self.walk.tape, right), shape), shape)

    def _expanded(self, solution: Term, shape: tuple[int, ...]) -> Form:
        """Return (I − BE + BEBE) times what the inverse without slopes makes of the right-hand side."""
        first = self._times(self._off, solution, shape)
        return (solution - first + self._times(self._off, first, shape)).form

    @cached_property
    def _off(self) -> Term:
        """BE: zero, with the slopes of B A."""
        return self._times(self._eliminated[0], self.whole - self.whole.held(), self.shape)

    @cached_property
    def _traces(self) -> tuple[Term, Term]:
        """Tr BE and tr BEBE."""
        numbers, count = positions(self.shape), int(np.prod(self.batch))
        label = np.repeat(np.arange(count), self.size**2)
        squares = self._off.apply(Op.MUL, self._off.gather(flat(numbers.mT), self.shape))
        own = flat(numbers.diagonal(dim1=-2, dim2=-1))
        diagonal = self._off.gather(own, (len(own),))
        return diagonal.sum(label[:: self.size], count, self.batch), squares.sum(label, count, self.batch)

    def _times(self, one: Term, other: Term, shape: tuple[int, ...]) -> Term:
        return Term(self.walk.tape, product(self.walk, one.form, other.form, shape))

    @cached_property
    def _eliminated(self) -> tuple[Term, Term, Term]:
        """Return the inverse, the sign of the determinant and the logarithm of its size: values without slopes.

        Gauss–Jordan with the largest pivot of each column, on the matrix and the identity side by side, row by row.
        """
        n, count, tape = self.size, int(np.prod(self.batch)), self.walk.tape
        numbers = positions(self.shape).reshape(count, n, n)
        held = self.whole.held()
        one = np.eye(n)
        rows = []
        for i in range(n):
            given = held.gather(flat(numbers[:, i]), (count, n))
            beside = Term(tape, tape.constant(torch.tensor(one[i]).expand(count, n)))
            rows.append(_arranged([given, beside], (count,), (2 * n,), axis=1))
        sign, size = rows[0].gather(_column(count, n, 0), (count,)) * 0.0 + 1.0, None
        for k in range(n):
            sign = self._pivoted(rows, k, sign)
            pivot = rows[k].gather(_column(count, n, k), (count,))
            sign = sign * pivot.apply(Op.SIGN)
            logarithm = pivot.apply(Op.ABS).apply(Op.LOG)
            size = logarithm if size is None else size + logarithm
            rows[k] = rows[k] / _along(pivot, count, n)
            for i in range(n):
                if i != k:
                    factor = rows[i].gather(_column(count, n, k), (count,))
                    rows[i] = rows[i] - _along(factor, count, n) * rows[k]
        assert size is not None
        right = [row.gather(flat(positions((count, 2 * n))[:, n:]), (count, n)) for row in rows]
        inverse = _arranged(right, (count,), (n, n), axis=1).gather(np.arange(count * n * n), self.shape)
        each = np.arange(count)
        return inverse, sign.gather(each, self.batch), size.gather(each, self.batch)

    def _pivoted(self, rows: list[Term], k: int, sign: Term) -> Term:
        """Bring the row with the largest element of column k to place k; return the sign of the determinant after that."""
        n, count = self.size, int(np.prod(self.batch))
        column = _column(count, n, k)
        for i in range(k + 1, n):
            one, other = (rows[place].gather(column, (count,)).apply(Op.ABS) for place in (i, k))
            larger = one.apply(Op.GT, other)
            swap = _along(larger, count, n)
            rows[k], rows[i] = swap.select(rows[i], rows[k]), swap.select(rows[k], rows[i])
            sign = sign * (1.0 - larger * 2.0)
        return sign


def _column(count: int, n: int, k: int) -> Index:
    """Return the places of column k in rows of 2n elements, one row for each matrix."""
    return np.arange(count) * 2 * n + k


def _along(term: Term, count: int, n: int) -> Term:
    """Repeat one number for each matrix along a row of 2n elements."""
    return term.gather(np.repeat(np.arange(count), 2 * n), (count, 2 * n))


def _arranged(parts: list[Term], batch: tuple[int, ...], shape: tuple[int, ...], axis: int | None = None) -> Term:
    """Put parts, each with the axes of the batch first, together to matrices of a shape: its elements, or its rows."""
    if axis is None:
        order = positions((*shape, *batch)).permute(*range(len(shape), len(shape) + len(batch)), *range(len(shape)))
    else:
        order = positions((len(parts), *parts[0].form.shape)).movedim(0, axis)
    return joined(parts).gather(flat(order), (*batch, *shape))


@lowers("_linalg_det")
def _det(walk: Lowering, node: Node) -> tuple[Form | None, ...]:
    """Return the determinant; its factors, which torch returns too, have no scalar form."""
    return _matrix(walk, node.args[0]).determinant().form, None, None


@lowers("_linalg_slogdet")
def _log_det(walk: Lowering, node: Node) -> tuple[Form | None, ...]:
    sign, size = _matrix(walk, node.args[0]).log_determinant()
    return sign.form, size.form, None, None


@lowers("linalg_inv_ex")
def _inverse(walk: Lowering, node: Node) -> tuple[Form | None, ...]:
    return _matrix(walk, node.args[0]).inverse(), None


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
        solution = _matrix(walk, matrix).solve(value, column)
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
    form = walk.operand(node.args[0])
    n, batch = form.shape[-1], form.shape[:-2]
    if n > _LARGEST_FACTOR or n == 0 or node.kwargs.get("upper", False):
        raise Unlowerable(f"Cholesky factor of varying matrices of size {n} (limit {_LARGEST_FACTOR})")
    numbers, whole = positions(form.shape), Term(walk.tape, form)
    zero = walk.tape.constant(torch.zeros(batch, dtype=torch.float64))
    factor = [[Term(walk.tape, zero)] * n for _ in range(n)]
    for j in range(n):
        for i in range(j, n):
            left = whole.gather(flat(numbers[..., i, j]), batch)
            for k in range(j):
                left = left - factor[i][k] * factor[j][k]
            factor[i][j] = left.apply(Op.SQRT) if i == j else left / factor[j][j]
    return _arranged([entry for row in factor for entry in row], batch, (n, n)).form, None
