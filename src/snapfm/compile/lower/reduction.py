"""Sums, means, products, norms, variances, extremes, softmax and scans along axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from snapfm.arrays import Index
from snapfm.compile.lower.formulas import Lowered, Term, arguments, joined, lowers
from snapfm.compile.lower.functions import log_of_sum
from snapfm.compile.lower.interpreter import Lowering
from snapfm.compile.lower.tape import Form, Unlowerable
from snapfm.compile.sparsity.rules.mixing import axes_of, labels, scanned
from snapfm.compile.sparsity.rules.registry import flat, positions
from snapfm.kernels.operators import Op


@lowers("sum", "mean")
def _total(walk: Lowering, node: Node) -> Form:
    form = walk.operand(node.args[0])
    label, size = labels(form.shape, _axes(node, form))
    mean = node.target.overloadpacket is torch.ops.aten.mean  # type: ignore[union-attr]
    weight = np.full(form.size, size / max(form.size, 1) if mean else 1.0)
    return form.group(label, np.arange(form.size), weight, size, tuple(walk.value[node].shape))


@lowers("prod")
def _product(walk: Lowering, node: Node) -> Form:
    """Multiply along an axis, or over all elements, one after the other."""
    form = walk.operand(node.args[0])
    given: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    numbers = positions(form.shape)
    numbers = numbers.reshape(-1) if given is None else numbers.movedim(int(given), -1)
    shape = tuple(walk.value[node].shape)
    if numbers.shape[-1] == 0:
        return walk.tape.constant(torch.ones(shape, dtype=torch.float64))
    total = form.gather(flat(numbers[..., 0]), shape)
    for k in range(1, numbers.shape[-1]):
        total = walk.tape.apply(Op.MUL, total, form.gather(flat(numbers[..., k]), shape))
    return total


@lowers("linalg_vector_norm")
def _norm(walk: Lowering, node: Node) -> Form:
    """Take a norm along axes; the Euclidean one is the root of the sum of squares."""
    order: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("ord", 2)
    form = walk.operand(node.args[0])
    axes = _axes(node, form)
    label, size = labels(form.shape, axes)
    shape = tuple(walk.value[node].shape)
    power = float(order)
    term = Term(walk.tape, form)
    if power == 2.0:
        return term.apply(Op.SQUARE).sum(label, size, shape).apply(Op.SQRT).form
    if math.isinf(power):
        return _extreme(term.apply(Op.ABS), Op.MAX if power > 0.0 else Op.MIN, axes, shape).form
    if power == 0.0:
        return term.nonzero().sum(label, size, shape).form
    if power == 1.0:
        return term.apply(Op.ABS).sum(label, size, shape).form
    base = term if power % 2.0 == 0.0 else term.apply(Op.ABS)
    return base.apply(Op.POW, power).sum(label, size, shape).apply(Op.POW, 1.0 / power).form


@lowers("var", "std", "var_mean", "std_mean")
def _variance(walk: Lowering, node: Node) -> Form | tuple[Form, ...]:
    """Σ(x − m)² − n(x̄ − m)² over n − correction, with m the value of the mean x̄, without its slope.

    The second square is zero. It carries the curvature that the mean has, so that only one square couples the elements.
    """
    given = arguments(node)
    form = walk.operand(given["self"])
    axes = _axes(node, form)
    label, size = labels(form.shape, axes)
    name = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    value = walk.value[node]
    shape = tuple((value[0] if isinstance(value, tuple) else value).shape)
    correction = given["correction"] if "correction" in given else float(bool(given.get("unbiased", True)))
    count = form.size / max(size, 1)
    free = max(count - (1.0 if correction is None else float(correction)), 0.0)
    x = Term(walk.tape, form)
    mean = x.sum(label, size, shape) / count
    middle = mean.held()
    around = (x - middle.gather(label, form.shape)).apply(Op.SQUARE).sum(label, size, shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = (around - (mean - middle).apply(Op.SQUARE) * count) * (np.float64(1.0) / free)
    if name.startswith("std"):
        spread = spread.apply(Op.SQRT)
    return (spread.form, mean.form) if name.endswith("mean") else spread.form


def _extremes(op: Op) -> Lowered:
    def lowered(walk: Lowering, node: Node) -> Form | tuple[Form | None, ...]:
        """Take the largest or smallest along axes; its place, which torch returns too, has no scalar form."""
        given = arguments(node)
        if "other" in given:
            return walk.term(node.args[0], node).apply(op, walk.term(node.args[1], node)).form
        value, form = walk.value[node], walk.operand(given["self"])
        single = value[0] if isinstance(value, tuple) else value
        found = _extreme(Term(walk.tape, form), op, _axes(node, form), tuple(single.shape)).form
        return (found, None) if isinstance(value, tuple) else found

    return lowered


lowers("amax", "max")(_extremes(Op.MAX))
lowers("amin", "min")(_extremes(Op.MIN))


def _extreme(term: Term, op: Op, axes: list[int], shape: tuple[int, ...]) -> Term:
    """Compare in pairs, pairs of pairs and so on: each element is read by few operators, so derivatives stay short."""
    lines = _lines(term.form.shape, axes)
    if not lines.shape[1]:
        raise Unlowerable("the largest of no elements")
    left = term.gather(lines.reshape(-1), lines.shape)
    while left.form.shape[1] > 1:
        numbers = np.arange(left.form.size).reshape(left.form.shape)
        half, odd = numbers.shape[1] // 2, numbers.shape[1] % 2
        pairs = (numbers.shape[0], half)
        one, other = (left.gather(part.reshape(-1), pairs) for part in (numbers[:, :half], numbers[:, half : 2 * half]))
        best = one.apply(op, other)
        if odd:
            over = left.gather(numbers[:, -1], (numbers.shape[0], 1))
            order = np.concatenate(
                [np.arange(best.form.size).reshape(pairs), best.form.size + np.arange(len(numbers))[:, None]], 1
            )
            best = joined([best, over]).gather(order.reshape(-1), (len(numbers), half + 1))
        left = best
    return left.gather(np.arange(left.form.size), shape)


@lowers("_softmax")
def _softmax(walk: Lowering, node: Node) -> Form:
    x, line, top = _exponents(walk, node)
    raised = x.apply(Op.EXP)
    total = raised.sum(line, top.form.size, (top.form.size,))
    # One reciprocal a line: a quotient of each element would couple all pairs on the line once for every element.
    return (raised * total.apply(Op.RECIPROCAL).gather(line, x.form.shape)).form


@lowers("_log_softmax")
def _log_softmax(walk: Lowering, node: Node) -> Form:
    x, line, top = _exponents(walk, node)
    total = x.apply(Op.EXP).sum(line, top.form.size, (top.form.size,)).apply(Op.LOG)
    return (x - total.gather(line, x.form.shape)).form


@lowers("logsumexp")
def _logsumexp(walk: Lowering, node: Node) -> Form:
    x, line, top = _exponents(walk, node)
    total = x.apply(Op.EXP).sum(line, top.form.size, (top.form.size,)).apply(Op.LOG)
    shape = tuple(walk.value[node].shape)
    return (total + top).gather(np.arange(top.form.size), shape).form


def _exponents(walk: Lowering, node: Node) -> tuple[Term, Index, Term]:
    """Return elements minus the largest on their line, the line of each, and the largest ones, held.

    The shift cancels, so its slope is left out: first and second derivatives are exact.
    """
    form = walk.operand(node.args[0])
    axes = _axes(node, form)
    line, size = labels(form.shape, axes)
    x = Term(walk.tape, form)
    top = _extreme(x.held(), Op.MAX, axes, (size,))
    return x - top.gather(line, form.shape), line, top


@lowers("any", "all", "count_nonzero")
def _count(walk: Lowering, node: Node) -> Form:
    """Count what is not zero along axes, and compare with none or all."""
    form = walk.operand(node.args[0])
    label, size = labels(form.shape, _axes(node, form))
    shape = tuple(walk.value[node].shape)
    count = Term(walk.tape, form).nonzero().sum(label, size, shape)
    name = node.target.overloadpacket.__name__  # type: ignore[union-attr]
    if name == "any":
        return count.apply(Op.GT, 0.5).form
    return count.apply(Op.GE, form.size / max(size, 1) - 0.5).form if name == "all" else count.form


@lowers("cumsum")
def _scan(walk: Lowering, node: Node) -> Form:
    form, axis = walk.operand(node.args[0]), int(node.args[1])  # type: ignore[arg-type]
    if not form.shape or not form.size:
        return form
    label, source = scanned(form.shape, axis)
    return form.group(label, source, np.ones(len(label)), form.size, form.shape)


def _scan_of(combine: Callable[[Term, Term], Term]) -> Lowered:
    def lowered(walk: Lowering, node: Node) -> Form | tuple[Form | None, ...]:
        """Combine each element with the result before it on its line."""
        form = walk.operand(node.args[0])
        lines = _lines(form.shape, [int(node.args[1])] if form.shape else [])  # type: ignore[arg-type]
        lines = lines if form.size else np.zeros((0, 0), np.int64)
        term = Term(walk.tape, form)
        found: list[Term] = []
        for column in lines.T:
            here = term.gather(column, (len(column),))
            found.append(combine(found[-1], here) if found else here)
        order = np.zeros(form.size, np.int64)
        order[lines.T.reshape(-1)] = np.arange(form.size)
        result = joined(found).gather(order, form.shape).form if found else form
        return (result, None) if isinstance(walk.value[node], tuple) else result

    return lowered


lowers("cumprod")(_scan_of(lambda before, here: before * here))
lowers("logcumsumexp")(_scan_of(log_of_sum))
lowers("cummax")(_scan_of(lambda before, here: before.apply(Op.MAX, here)))
lowers("cummin")(_scan_of(lambda before, here: before.apply(Op.MIN, here)))


def _lines(shape: tuple[int, ...], axes: list[int]) -> Index:
    """Number the elements that each result of a reduction along axes is made of: (results, elements of one)."""
    label, size = labels(shape, axes)
    if not len(label):
        return np.zeros((size, 0 if size else 1), np.int64)
    return np.argsort(label, kind="stable").reshape(size, -1)


def _axes(node: Node, form: Form) -> list[int]:
    return axes_of(len(form.shape), arguments(node).get("dim"))
