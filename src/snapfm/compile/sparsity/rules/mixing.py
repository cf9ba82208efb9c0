"""Rules for operators that combine elements: along axes (sums, scans, sorts), by products and convolutions, by transforms.

The zeros of known factors are used. Every Fourier coefficient reads its whole line. Interpolation is the same on every plane and
separable by axis: its weights along one axis are probed by running the operator on fields that are 1 on one index of that
axis and 0 elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index
from snapfm.compile.sparsity.pattern import Sets, refuse_entries, union
from snapfm.compile.sparsity.rules.registry import Found, Operand, OperatorCall, dense, flat, positions, rule


@rule(
    "sum", "mean", "nansum", "prod", "linalg_vector_norm", "var", "std", "logsumexp", "var_mean", "std_mean", "amax",
    "amin", "max", "min", "median", "nanmedian", "mode", "argmax", "argmin", "any", "all", "count_nonzero",
)  # fmt: skip
def total(call: OperatorCall) -> Found:
    """Combine all elements along axes."""
    place = 2 if call.name == "linalg_vector_norm" else 1
    given = call.args[place] if len(call.args) > place else call.kwargs.get("dim")
    along = _along(call, axes_of(call.args[0].value.dim(), given))
    return (along, along) if isinstance(call.value, (tuple, list)) else along


@rule("trace")
def diagonal_total(call: OperatorCall) -> Found:
    """Add up the diagonal."""
    source = flat(positions(call.args[0].value.shape).diagonal())
    return call.reads(call.args[0]).group(np.zeros(len(source), np.int64), source, 1)


@rule("sort", "topk", "kthvalue")
def ordering(call: OperatorCall) -> Found:
    """Reorder along one axis by value: any element of the line may come out anywhere on it."""
    place = 1 if call.name == "sort" and call.target._overloadname != "stable" else 2
    axis = call.args[place] if len(call.args) > place else call.kwargs.get("dim", -1)
    # of kthvalue one of the line is left, and its axis may be gone
    line = _along(call, [axis]) if call.name == "kthvalue" else spread_lines(call, [axis], call.value[0].shape)
    return (line, line)


@rule("cumsum", "logcumsumexp", "cumprod", "cummax", "cummin")
def scan(call: OperatorCall) -> Found:
    """Combine each element with those before it on its line."""
    operand = call.args[0]
    axis = call.args[1] if len(call.args) > 1 else call.kwargs["dim"]
    if operand.value.dim() == 0:
        return dense(call)
    result = call.reads(operand).group(*scanned(operand.value.shape, axis), operand.value.numel())
    return (result, result) if isinstance(call.value, (tuple, list)) else result


def scanned(shape: torch.Size | tuple[int, ...], axis: int) -> tuple[Index, Index]:
    """List (element, itself or one before it on its line) along an axis."""
    numbers = positions(shape).movedim(axis, -1)
    length = numbers.shape[-1]
    refuse_entries(numbers.numel() * (length + 1) // 2)
    later, earlier = np.tril_indices(length)
    lines = flat(numbers).reshape(-1, length) if length else np.zeros((0, 0), np.int64)
    return lines[:, later].ravel(), lines[:, earlier].ravel()


@rule("_softmax", "_log_softmax")
def normalized(call: OperatorCall) -> Found:
    """Mix a whole line into each of its elements."""
    return spread_lines(call, [call.args[1]], call.value.shape)


def spread_lines(call: OperatorCall, axes: list[int], shape: torch.Size) -> Sets:
    """Let every element of a result of that shape read all that stands on its line (plane, block) along axes."""
    operand = call.args[0]
    if operand.value.dim() == 0:
        return call.reads(operand)
    reduced = {axis % operand.value.dim() for axis in axes}
    kept = tuple(1 if i in reduced else extent for i, extent in enumerate(operand.value.shape))
    return _along(call, axes).shared(flat(positions(kept).expand(shape)))


def _along(call: OperatorCall, axes: list[int]) -> Sets:
    """Merge the elements along axes; the result is flattened without them."""
    sets = call.reads(call.args[0])
    label, size = labels(call.args[0].value.shape, axes)
    return sets.group(label, np.arange(sets.size), size)


def labels(shape: torch.Size | tuple[int, ...], axes: list[int]) -> tuple[Index, int]:
    """Number the results of a reduction: for each element, the result it enters; and how many results there are."""
    reduced = {axis % len(shape) for axis in axes} if len(shape) else set()
    kept = tuple(1 if i in reduced else extent for i, extent in enumerate(shape))
    return flat(positions(kept).expand(tuple(shape))), int(np.prod(kept))


def axes_of(dimensions: int, given: Any) -> list[int]:
    """Read the axes of a reduction; none given means all, and so does a flag in their place."""
    if isinstance(given, bool) or given is None or given == []:
        return list(range(dimensions))
    return [given] if isinstance(given, int) else list(given)


@rule("mm", "bmm", "mv", "dot", "vdot")
def matrix_product(call: OperatorCall) -> Found:
    """Multiply two matrices, batches of them, or vectors."""
    return _contract(call, call.args[0], call.args[1])


@rule("addmm", "baddbmm", "addmv", "addbmm")
def matrix_product_added(call: OperatorCall) -> Found:
    """Multiply and add to a third operand; addbmm also adds up the batch."""
    return union([call.spread(call.args[0]), _contract(call, call.args[1], call.args[2])])


@rule("convolution")
def convolution(call: OperatorCall) -> Found:
    """Convolve with a kernel; one that reads no field is used tap by tap, its known zeros left out."""
    image, kernel, bias = call.args[:3]
    if kernel.reads is not None or image.reads is None or (bias is not None and bias.reads is not None):
        return dense(call)
    used = np.flatnonzero(_present(kernel, kernel.value).numpy())
    target, source, _ = fetches(call.target, image.value.shape, kernel.value.shape, call.args[3:], used)
    return call.reads(image).group(target, source, call.value.numel())


def fetches(
    convolve: Any, image: torch.Size, kernel: torch.Size, settings: tuple[Any, ...], taps: Index
) -> tuple[Index, Index, Index]:
    """List (element of the result, element of the image, tap) for every multiplication of a convolution with these taps.

    Each tap is moved alone: convolving element numbers with a kernel that is 1 at this tap and 0 elsewhere shows, for each
    element of the result, which element the tap fetches, whatever the stride, padding, dilation or groups.
    """
    numbers = positions(image, 1)
    found = [np.zeros((3, 0), np.int64)]
    for tap in taps:
        single = torch.zeros(kernel.numel(), dtype=torch.float64)
        single[tap] = 1.0
        fetched = flat(convolve(numbers, single.reshape(kernel), None, *settings).round()) - 1
        hit = np.flatnonzero(fetched >= 0)
        found.append(np.stack([hit, fetched[hit], np.full(len(hit), tap)]))
    target, source, tap = np.concatenate(found, axis=1)
    return target, source, tap


def _contract(call: OperatorCall, one: Operand, other: Operand) -> Sets:
    """Merge what the single multiplications of a product read, if they can count."""
    label, first, second = multiplications(_present(one, one.value), _present(other, other.value))
    size = call.value.numel()
    label = label % max(size, 1)  # the remainder matters to addbmm alone
    return union([call.reads(one).group(label, first, size), call.reads(other).group(label, second, size)])


def multiplications(left: Tensor, right: Tensor) -> tuple[Index, Index, Index]:
    """List (element of the result, of the left factor, of the right one) for every multiplication of a matrix product.

    The factors, matrices, batches of them or vectors, are given by where they can be non-zero; all of one of them counts.
    """
    left = left if left.dim() > 1 else left[None]
    right = right if right.dim() > 1 else right[:, None]
    batch = torch.Size(np.broadcast_shapes(left.shape[:-2], right.shape[:-2]))  # that of torch imports sympy: seconds
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    refuse_entries(batch.numel() * rows * inner * columns)

    def spread(factor: Tensor) -> Tensor:
        return factor.expand(*batch, *factor.shape[-2:]).reshape(batch.numel(), *factor.shape[-2:])

    if bool(left.all()) and not bool(right.all()):
        b, k, j = (one.repeat_interleave(rows) for one in torch.nonzero(spread(right), as_tuple=True))
        i = torch.arange(rows).repeat(len(b) // max(rows, 1))
    else:
        b, i, k = (one.repeat_interleave(columns) for one in torch.nonzero(spread(left), as_tuple=True))
        j = torch.arange(columns).repeat(len(b) // max(columns, 1))
    first, second = spread(positions(left.shape))[b, i, k], spread(positions(right.shape))[b, k, j]
    return flat((b * rows + i) * columns + j), flat(first), flat(second)


def _present(operand: Operand, shaped: Tensor) -> Tensor:
    """Mark where a factor can be non-zero: known zeros never are."""
    if operand.reads is None and operand.known:
        return shaped != 0
    return torch.ones(shaped.shape, dtype=torch.bool)


@rule("_fft_r2c", "_fft_c2r", "_fft_c2c")
def transform(call: OperatorCall) -> Found:
    """Let every coefficient read its whole line (plane, block) and nothing else."""
    return spread_lines(call, list(call.args[1]), call.value.shape)


@rule(
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "avg_pool2d",
    "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
)  # fmt: skip
def resample(call: OperatorCall) -> Found:
    """Mix neighbours on every plane with fixed weights."""
    shape = tuple(call.args[0].value.shape)
    axes = int(call.target.overloadpacket.__name__.split("_aa")[0][-2])
    plane, planes = shape[-axes:], int(np.prod(shape[:-axes]))
    target, source = np.zeros(1, np.int64), np.zeros(1, np.int64)
    result_plane = tuple(call.value.shape[-axes:])
    for axis in range(axes):
        to, frm = _weights(call, plane, axis)
        target = (target[:, None] * result_plane[axis] + to[None]).ravel()
        source = (source[:, None] * plane[axis] + frm[None]).ravel()
    copies = np.arange(planes)[:, None]
    label = (copies * int(np.prod(result_plane)) + target[None]).ravel()
    origin = (copies * int(np.prod(plane)) + source[None]).ravel()
    return call.reads(call.args[0]).group(label, origin, call.value.numel())


def _weights(call: OperatorCall, plane: tuple[int, ...], axis: int) -> tuple[Index, Index]:
    """List (index of the result, index of the operand) with a non-zero weight along one axis."""
    extent = plane[axis]
    single = torch.eye(extent, dtype=torch.float64)
    view = [extent, 1, *(extent if i == axis else 1 for i in range(len(plane)))]
    probe = single.reshape(view).expand(extent, 1, *plane).contiguous()
    answer = call.target(probe, *call.args[1:], **call.kwargs)
    others = tuple(i for i in range(1, answer.dim()) if i != axis + 2)
    hit = (answer.abs().amax(dim=others) > 0) if others else answer.abs() > 0
    source, target = torch.nonzero(hit, as_tuple=True)
    return target.numpy(), source.numpy()
