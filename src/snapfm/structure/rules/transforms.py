"""Rules for linear operators that mix along axes: Fourier transforms, interpolation and average pooling.

Every Fourier coefficient reads its whole line. Interpolation is the same on every plane and separable by axis: the weights
along one axis are probed by running the operator on fields that are 1 on one index of that axis and 0 elsewhere.
"""

from __future__ import annotations

import numpy as np
import torch

from snapfm.arrays import Index
from snapfm.structure.rules.reduction import labels
from snapfm.structure.rules.registry import Call, Found, flat, positions, rule


@rule("_fft_r2c", "_fft_c2r", "_fft_c2c")
def transform(call: Call) -> Found:
    """Let every coefficient read its whole line (plane, block) and nothing else."""
    operand, axes = call.args[0], list(call.args[1])
    shape = operand.value.shape
    label, size = labels(shape, axes)
    merged = call.reads(operand).group(label, flat(positions(shape)), size)
    reduced = {axis % len(shape) for axis in axes}
    kept = tuple(1 if i in reduced else extent for i, extent in enumerate(shape))
    return merged.gather(flat(positions(kept).expand(call.value.shape)))


@rule(
    "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d", "upsample_nearest1d",
    "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "avg_pool2d",
    "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d",
)  # fmt: skip
def resample(call: Call) -> Found:
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


def _weights(call: Call, plane: tuple[int, ...], axis: int) -> tuple[Index, Index]:
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
