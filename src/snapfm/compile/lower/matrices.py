"""Products of matrices and convolutions: linear where one factor is known, and one multiplication per term where both vary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx import Node

from snapfm.compile.lower.formulas import lowers
from snapfm.compile.lower.interpreter import Lowering
from snapfm.compile.lower.tape import Form, Unlowerable, added
from snapfm.compile.sparsity.pattern import ENTRY_LIMIT
from snapfm.compile.sparsity.rules.mixing import fetches
from snapfm.compile.sparsity.rules.registry import flat, positions
from snapfm.kernels.operators import Op


@lowers("mm", "bmm", "mv", "dot")
def _matrix_product(walk: Lowering, node: Node) -> Form:
    left, right = _factors(walk, *node.args)
    return product(walk, left, right, tuple(walk.value[node].shape))


@lowers("addmm", "baddbmm", "addmv", "addbmm")
def _added_product(walk: Lowering, node: Node) -> Form:
    """β·base + α·(one @ other); addbmm also adds up the batch."""
    base, one, other = node.args[:3]
    beta, alpha = (float(node.kwargs.get(name, 1)) for name in ("beta", "alpha"))  # type: ignore[arg-type]
    shape = tuple(walk.value[node].shape)
    left, right = _factors(walk, one, other)
    if node.target.overloadpacket is torch.ops.aten.addbmm:  # type: ignore[union-attr]
        batch = int(left.shape[0])
        whole = product(walk, left, right, (batch, *shape))
        label = np.tile(np.arange(whole.size // max(batch, 1)), batch)
        total = whole.group(label, np.arange(whole.size), np.ones(whole.size), int(np.prod(shape)), shape)
    else:
        total = product(walk, left, right, shape)
    kept = walk.spread(base, node)
    return added(kept.scaled(np.full(kept.size, beta)), total.scaled(np.full(total.size, alpha)), walk.tape.cells)


def _factors(walk: Lowering, *nodes: Any) -> list[Form | Tensor]:
    """Return factors as numbers where they are known, else as forms."""
    return [walk.number(node) if walk.is_known(node) else walk.operand(node) for node in nodes]


def product(walk: Lowering, left: Form | Tensor, right: Form | Tensor, shape: tuple[int, ...]) -> Form:
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
def _convolution(walk: Lowering, node: Node) -> Form:
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
