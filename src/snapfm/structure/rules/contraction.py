"""Rules for products of matrices and for convolutions: the zeros of known factors are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.structure.dependence import PARAMETRIC, Dependence, combined
from snapfm.structure.rules.registry import Call, Operand, Tracked, dense, flat, positions, rule


@rule("mm", "bmm", "mv", "dot", "vdot")
def matrix_product(call: Call) -> Tracked:
    """Multiply two matrices, batches of them, or vectors."""
    return _contract(call, call.args[0], call.args[1])


@rule("addmm", "baddbmm", "addmv", "addbmm")
def matrix_product_added(call: Call) -> Tracked:
    """Multiply and add to a third operand; addbmm also adds up the batch."""
    return combined([call.spread(call.args[0]), _contract(call, call.args[1], call.args[2])])


@rule("convolution")
def convolution(call: Call) -> Tracked:
    """Convolve with a kernel; one that reads no field is used tap by tap, its known zeros left out.

    Each tap is moved alone: convolving element numbers with a kernel that is 1 at this tap and 0 elsewhere gives, for
    each element of the result, the element that the tap fetches, whatever the stride, padding, dilation or groups.
    """
    image, kernel, bias = call.args[:3]
    if kernel.track is not None or image.track is None or (bias is not None and bias.track is not None):
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
        return Dependence.none(size, call.width)
    track = call.track(image).group(np.concatenate(target), np.concatenate(source), size)
    return track if kernel.known else track.marked(PARAMETRIC)


def _contract(call: Call, one: Operand, other: Operand) -> Dependence:
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
    if one.track is None:
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
    a, c = call.track(one), call.track(other)
    if one.track is not None and other.track is not None:
        a, c = a.gather(first), c.gather(second)
        terms = call.events.bend(combined([a, c]), a.first, c.first).scaled(a.first, c.first)
        return terms.group(label, np.arange(terms.size), size)
    track, source, factor = (a, first, other) if one.track is not None else (c, second, one)
    result = track.group(label, source, size)
    return result if factor.known else result.marked(PARAMETRIC)


def _present(operand: Operand, shaped: Tensor) -> Tensor:
    """Say where a factor can be non-zero: known zeros never are."""
    if operand.track is None and operand.known:
        return shaped != 0
    return torch.ones(shaped.shape, dtype=torch.bool)
