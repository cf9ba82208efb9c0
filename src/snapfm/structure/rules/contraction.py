"""Rules for products of matrices and for convolutions: the zeros of known factors are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.structure.rules.registry import Call, Found, Operand, dense, flat, positions, rule
from snapfm.structure.sets import Sets, union


@rule("mm", "bmm", "mv", "dot", "vdot")
def matrix_product(call: Call) -> Found:
    """Multiply two matrices, batches of them, or vectors."""
    return _contract(call, call.args[0], call.args[1])


@rule("addmm", "baddbmm", "addmv", "addbmm")
def matrix_product_added(call: Call) -> Found:
    """Multiply and add to a third operand; addbmm also adds up the batch."""
    return union([call.spread(call.args[0]), _contract(call, call.args[1], call.args[2])])


@rule("convolution")
def convolution(call: Call) -> Found:
    """Convolve with a kernel; one that reads no field is used tap by tap, its known zeros left out.

    Each tap is moved alone: convolving element numbers with a kernel that is 1 at this tap and 0 elsewhere gives, for
    each element of the result, the element that the tap fetches, whatever the stride, padding, dilation or groups.
    """
    image, kernel, bias = call.args[:3]
    if kernel.reads is not None or image.reads is None or (bias is not None and bias.reads is not None):
        return dense(call)
    numbers = positions(image.value.shape, 1)
    target: list[Any] = []
    source: list[Any] = []
    taps = torch.nonzero(kernel.value) if kernel.known else torch.nonzero(torch.ones_like(kernel.value))
    for tap in taps.tolist():
        single = torch.zeros(kernel.value.shape, dtype=torch.float64)
        single[tuple(tap)] = 1.0
        fetched = flat(call.target(numbers, single, None, *call.args[3:]).round()) - 1
        hit = np.flatnonzero(fetched >= 0)
        target.append(hit)
        source.append(fetched[hit])
    size = call.value.numel()
    if not target:
        return Sets.empty(size, call.width)
    return call.reads(image).group(np.concatenate(target), np.concatenate(source), size)


def _contract(call: Call, one: Operand, other: Operand) -> Sets:
    """Write the product as a list of single multiplications (left, right, result) and merge those that can count."""
    left, right = one.value, other.value
    if left.dim() == 1:
        left = left[None]
    if right.dim() == 1:
        right = right[:, None]
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])  # type: ignore[no-untyped-call]
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    left_numbers = positions(left.shape).expand(*batch, rows, inner).reshape(-1, rows, inner)
    right_numbers = positions(right.shape).expand(*batch, inner, columns).reshape(-1, inner, columns)
    result_numbers = positions((left_numbers.shape[0], rows, columns))

    present_left = _present(one, left).expand(*batch, rows, inner).reshape(-1, rows, inner)
    present_right = _present(other, right).expand(*batch, inner, columns).reshape(-1, inner, columns)
    if one.reads is None:
        b, i, k = torch.nonzero(present_left, as_tuple=True)
        picks = torch.arange(columns).repeat(len(b))
        b, i, k = (v.repeat_interleave(columns) for v in (b, i, k))
        j = picks
    else:
        b, k, j = torch.nonzero(present_right, as_tuple=True)
        picks = torch.arange(rows).repeat(len(b))
        b, k, j = (v.repeat_interleave(rows) for v in (b, k, j))
        i = picks
    size = call.value.numel()
    label = flat(result_numbers[b, i, j]) % max(size, 1)  # the remainder matters to addbmm alone
    first, second = flat(left_numbers[b, i, k]), flat(right_numbers[b, k, j])
    a, c = call.reads(one), call.reads(other)
    if one.reads is not None and other.reads is not None:
        return union([a.group(label, first, size), c.group(label, second, size)])
    return a.group(label, first, size) if one.reads is not None else c.group(label, second, size)


def _present(operand: Operand, shaped: Tensor) -> Tensor:
    """Say where a factor can be non-zero: known zeros never are."""
    if operand.reads is None and operand.known:
        return shaped != 0
    return torch.ones(shaped.shape, dtype=torch.bool)
