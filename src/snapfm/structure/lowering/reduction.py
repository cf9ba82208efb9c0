"""Sums, means, products, norms and running sums along axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.fx import Node

from snapfm.kernels.operations import Op
from snapfm.structure.forms import Form
from snapfm.structure.lowering.listing import Unlowerable
from snapfm.structure.lowering.table import lowers
from snapfm.structure.lowering.walk import Walk
from snapfm.structure.rules.reduction import labels
from snapfm.structure.rules.registry import flat, positions


@lowers("sum", "mean")
def _total(walk: Walk, node: Node) -> Form:
    form = walk.operand(node.args[0])
    label, size = labels(form.shape, _axes(form, node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")))
    mean = node.target.overloadpacket is torch.ops.aten.mean  # type: ignore[union-attr]
    weight = np.full(form.size, size / max(form.size, 1) if mean else 1.0)
    return form.group(label, np.arange(form.size), weight, size, tuple(walk.value[node].shape))


@lowers("prod")
def _product(walk: Walk, node: Node) -> Form:
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


@lowers("linalg_vector_norm")
def _norm(walk: Walk, node: Node) -> Form:
    """Take the Euclidean norm along axes: the root of the sum of squares."""
    order: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("ord", 2)
    if float(order) != 2.0:
        raise Unlowerable(f"norm of order {order}")
    form = walk.operand(node.args[0])
    label, size = labels(form.shape, _axes(form, node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")))
    squares = walk.listing.apply(Op.SQUARE, form)
    total = squares.group(label, np.arange(form.size), np.ones(form.size), size, tuple(walk.value[node].shape))
    return walk.listing.apply(Op.SQRT, total)


@lowers("cumsum")
def _scan(walk: Walk, node: Node) -> Form:
    form, axis = walk.operand(node.args[0]), int(node.args[1])  # type: ignore[arg-type]
    numbers = positions(form.shape).movedim(axis, -1)
    length = numbers.shape[-1]
    later, earlier = np.tril_indices(length)
    lines = flat(numbers).reshape(-1, length)
    label, source = lines[:, later].ravel(), lines[:, earlier].ravel()
    return form.group(label, source, np.ones(len(label)), form.size, form.shape)


def _axes(form: Form, given: Any) -> list[int]:
    """Read the axes of a reduction; none given means all."""
    if given is None or given == []:
        return list(range(len(form.shape)))
    return [given] if isinstance(given, int) else list(given)
