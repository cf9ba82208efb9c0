"""Products of matrices and convolutions: linear where one factor is known, one multiplication a term where both vary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from snapfm.kernels.operations import Op
from snapfm.structure.forms import Form, added
from snapfm.structure.lowering.listing import Unlowerable
from snapfm.structure.lowering.table import lowers
from snapfm.structure.lowering.walk import Walk
from snapfm.structure.rules.registry import flat, positions


@lowers("mm", "bmm", "mv", "dot")
def _matrix_product(walk: Walk, node: Node) -> Form:
    one: Any
    other: Any
    one, other = node.args
    left, right = walk.value[one], walk.value[other]
    shape = tuple(walk.value[node].shape)
    left = left[None] if left.dim() == 1 else left
    right = right[:, None] if right.dim() == 1 else right
    batch = np.broadcast_shapes(tuple(left.shape[:-2]), tuple(right.shape[:-2]))
    rows, inner, columns, count = left.shape[-2], left.shape[-1], right.shape[-1], math.prod(batch)
    left_number = positions(left.shape).expand(*batch, rows, inner).reshape(count, rows, inner)
    right_number = positions(right.shape).expand(*batch, inner, columns).reshape(count, inner, columns)
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


@lowers("convolution")
def _convolution(walk: Walk, node: Node) -> Form:
    """Convolve with a kernel that varies (params, the field): one multiplication for each tap of each element."""
    image: Any
    kernel: Any
    bias: Any
    image, kernel, bias = node.args[:3]
    if walk.is_known(kernel):
        raise Unlowerable("convolution")  # a map with constant slopes, which is probed
    taps = walk.value[kernel]
    target: Any = node.target
    numbers = positions(walk.value[image].shape, 1)
    label, source, tap = ([np.zeros(0, np.int64)] for _ in range(3))
    for k in range(taps.numel()):
        single = torch.zeros(taps.numel(), dtype=torch.float64)
        single[k] = 1.0
        fetched = flat(target(numbers, single.reshape(taps.shape), None, *node.args[3:]).round()) - 1
        hit = np.flatnonzero(fetched >= 0)
        label.append(hit)
        source.append(fetched[hit])
        tap.append(np.full(len(hit), k))
    places, read, weights = (np.concatenate(parts) for parts in (label, source, tap))
    shape, size = tuple(walk.value[node].shape), walk.value[node].numel()
    terms = walk.listing.apply(
        Op.MUL, walk.operand(image).gather(read, (len(read),)), walk.operand(kernel).gather(weights, (len(read),))
    )
    total = terms.group(places, np.arange(len(read)), np.ones(len(read)), size, shape)
    if bias is None:
        return total
    channels = positions((shape[1],)).reshape(-1, *(1 for _ in shape[2:])).expand(shape)
    return added(total, walk.operand(bias).gather(flat(channels), shape), walk.listing.cells)
