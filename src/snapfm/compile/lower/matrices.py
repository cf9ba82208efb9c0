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
from snapfm.compile.sparsity.rules.mixing import fetches, multiplications
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
    label, first, second = multiplications(*(_present(factor) for factor in (left, right)))
    size = math.prod(shape)
    if isinstance(left, Form) and isinstance(right, Form):
        terms = walk.tape.apply(Op.MUL, left.gather(first, (len(first),)), right.gather(second, (len(second),)))
        return terms.group(label, np.arange(len(first)), np.ones(len(first)), size, shape)
    if isinstance(left, Form):
        assert isinstance(right, Tensor)
        return left.group(label, first, right.reshape(-1).numpy()[second], size, shape)
    if isinstance(right, Form):
        return right.group(label, second, left.reshape(-1).numpy()[first], size, shape)
    return walk.tape.constant(torch.matmul(left, right).reshape(shape))


def _present(factor: Form | Tensor) -> Tensor:
    """Mark where a factor can be non-zero."""
    return torch.ones(factor.shape, dtype=torch.bool) if isinstance(factor, Form) else factor != 0.0


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
