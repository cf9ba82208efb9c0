"""The two costly layers of a neuralop FNO, evaluated faster with the same weights.

Profiled on 2 cores with 16 fields of 100×100 and width 24, neuralop's forward pass spends its time in two places: 1×1
convolutions (12 ms each, compared with 1 ms as a matrix product) and full FFTs of which a few modes are kept. `accelerate`
replaces both inside a built FNO; names and shapes of the weights stay those of neuralop. Imports nothing of snapfm, and does
not import neuralop.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Pointwise(nn.Module):
    """A 1×1 convolution as a matrix product: (b, c, n) in, (b, out, n) out."""

    def __init__(self, convolution: nn.Conv1d) -> None:
        super().__init__()
        self.weight = convolution.weight
        self.bias = convolution.bias
        self.out_channels = convolution.out_channels  # read by neuralop's skip connection

    def forward(self, x: Tensor) -> Tensor:
        """Mix the channels of every point by the same matrix."""
        weight = self.weight[:, :, 0].expand(len(x), -1, -1)
        # bmm rather than matmul, which would fold the batch into one product at the cost of two transposed copies.
        mixed = torch.bmm(weight, x)
        return mixed if self.bias is None else mixed.add_(self.bias[:, None])


class Spectral(nn.Module):
    """A spectral convolution that computes only the modes it keeps, as products with narrow Fourier matrices.

    Equal to neuralop's SpectralConv on even grids. On odd ones neuralop 2.0 undoes its fftshift with another fftshift,
    which shifts every mode by one frequency; here a mode keeps its frequency on any grid.
    """

    weight: Any  # tltorch's FactorizedTensor, a module that is indexed like a tensor

    def __init__(self, convolution: Any, shape: Sequence[int]) -> None:
        super().__init__()
        self.weight = convolution.weight
        self.bias = convolution.bias
        self.modes = tuple(convolution.n_modes)
        self.shape = tuple(shape)
        self._build()

    def transform(self, x: Tensor, output_shape: object = None) -> Tensor:
        """Return x: the output grid is the input grid. neuralop's blocks call this for the skip connection."""
        return x

    def forward(self, x: Tensor, output_shape: object = None) -> Tensor:
        """Transform to the kept modes, mix channels per mode, transform back: (b, c, *shape) in and out."""
        modes = torch.view_as_complex((x @ self.get_buffer("real_forward")).view(*x.shape[:-1], -1, 2))
        for axis in range(len(self.modes) - 1):
            modes = _along(axis, modes, self.get_buffer(f"forward_{axis}"))
        modes = self._mix(modes)
        for axis in range(len(self.modes) - 1):
            modes = _along(axis, modes, self.get_buffer(f"inverse_{axis}"))
        return torch.view_as_real(modes.contiguous()).flatten(-2) @ self.get_buffer("real_inverse")

    def _build(self) -> None:
        """Build the Fourier matrices on the device and in the precision of the bias."""
        *front, last = self.modes
        *sizes, size = self.shape
        matrices = {
            "zero_mode": _zero_mode(self.modes),
            "real_forward": real_forward(size, last),
            "real_inverse": real_inverse(size, last),
        }
        for axis, (n, modes) in enumerate(zip(sizes, front)):
            matrices[f"forward_{axis}"] = forward(n, modes)
            matrices[f"inverse_{axis}"] = inverse(n, modes)
        real = self.bias.dtype
        for name, matrix in matrices.items():
            dtype = real.to_complex() if matrix.is_complex() else real
            self.register_buffer(name, matrix.to(self.bias.device, dtype), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> Spectral:
        """Convert complex weights too: `.double()` would leave them unchanged, `.to(dtype)` cut them to real parts."""
        before = self.bias.dtype

        def convert(tensor: Tensor) -> Tensor:
            if not tensor.is_complex():
                return fn(tensor)  # type: ignore[no-any-return]
            return torch.view_as_complex(fn(torch.view_as_real(tensor)).contiguous())

        super()._apply(convert, recurse)  # type: ignore[no-untyped-call]
        if self.bias.dtype != before:
            self._build()  # in full precision, not from rounded numbers
        return self

    def _mix(self, modes: Tensor) -> Tensor:
        """Multiply each mode's channels by its complex matrix and add the bias to mode zero.

        In real arithmetic: torch runs a batch of complex products one by one, a batch of real ones in one call.
        """
        weight = self.weight.to_tensor().flatten(2).permute(2, 0, 1)  # (modes, in, out)
        block = torch.cat([torch.cat([weight.real, weight.imag], 2), torch.cat([-weight.imag, weight.real], 2)], 1)
        flat = modes.flatten(2).permute(2, 0, 1)
        mixed = torch.bmm(torch.cat([flat.real, flat.imag], 2), block)
        out = weight.shape[2]
        mixed = torch.complex(mixed[..., :out], mixed[..., out:])
        # A constant over the grid is mode zero: adding the bias here saves a pass over the full grid.
        mixed = mixed + self.get_buffer("zero_mode") * self.bias.flatten()
        answer: Tensor = mixed.permute(1, 2, 0).reshape(len(modes), out, *modes.shape[2:])
        return answer


def accelerate(fno: nn.Module, shape: Sequence[int]) -> None:
    """Replace the 1×1 and spectral convolutions of a neuralop FNO in place; its weights are shared, not copied."""
    for parent in list(fno.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Conv1d) and child.kernel_size == (1,):
                setattr(parent, name, Pointwise(child))
            elif type(child).__name__ == "SpectralConv":
                setattr(parent, name, Spectral(child, shape))


def _along(axis: int, modes: Tensor, matrix: Tensor) -> Tensor:
    """Multiply one grid axis of (b, c, *grid) by a matrix; the copy makes it one flat product."""
    return (modes.movedim(axis + 2, -1).contiguous() @ matrix).movedim(-1, axis + 2)


def forward(size: int, modes: int) -> Tensor:
    """Fourier matrix (size, modes) of the frequencies −modes//2 ..., scaled by 1/size as neuralop's 'forward' norm."""
    return _waves(size, torch.arange(modes) - modes // 2).conj() / size


def inverse(size: int, modes: int) -> Tensor:
    """Inverse of `forward` on the kept frequencies: (modes, size)."""
    return _waves(size, torch.arange(modes) - modes // 2).T.contiguous()


def real_forward(size: int, modes: int) -> Tensor:
    """Map real values (size) to the frequencies 0 .. modes − 1, real and imaginary parts in turn: (size, 2·modes)."""
    return torch.view_as_real(_waves(size, torch.arange(modes)).conj() / size).flatten(1)


def real_inverse(size: int, modes: int) -> Tensor:
    """Map the frequencies 0 .. modes − 1 to real values: (2·modes, size).

    Every frequency except zero and the Nyquist frequency also represents its negative.
    """
    frequencies = torch.arange(modes)
    twice = 2.0 - ((frequencies == 0) | (2 * frequencies == size)).double()
    waves = torch.view_as_real(_waves(size, frequencies).conj() * twice)
    return waves.permute(1, 2, 0).flatten(0, 1).contiguous()


def _waves(size: int, frequencies: Tensor) -> Tensor:
    """Evaluate exp(2πi·k·j/size): (size, frequencies), in double precision."""
    angle = 2 * math.pi / size * torch.outer(torch.arange(size), frequencies)
    return torch.polar(torch.ones_like(angle, dtype=torch.float64), angle.double())


def _zero_mode(modes: Sequence[int]) -> Tensor:
    """Mark mode zero among the flattened modes: (modes, 1, 1). It is in the middle of every axis but the last."""
    mark = torch.zeros(*modes)
    mark[(*(m // 2 for m in modes[:-1]), 0)] = 1.0
    return mark.view(-1, 1, 1)
