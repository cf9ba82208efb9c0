"""The two costly layers of a neuralop FNO, evaluated faster with the same weights.

Profiled on 2 cores with 16 fields of 100×100 and width 24, neuralop's forward pass spends its time in two places:
1×1 convolutions (12 ms each, against 1 ms for the same product as a matrix product) and full FFTs of which a few
modes are kept. `quicken` replaces both inside a built FNO; names and shapes of the weights stay neuralop's own.
Imports nothing of snapfm, and neuralop only as the object handed in.
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
        """Mix the channels of every point alike."""
        weight = self.weight[:, :, 0].expand(len(x), -1, -1)
        # bmm by name: matmul would fold the batch into one product and pay for it with two transposed copies.
        mixed = torch.bmm(weight, x)
        return mixed if self.bias is None else mixed.add_(self.bias[:, None])


class Spectral(nn.Module):
    """A spectral convolution that computes only the modes it keeps, as products with narrow Fourier matrices.

    Equal to neuralop's SpectralConv on even grids. On odd ones neuralop 2.0 undoes its fftshift with another fftshift,
    which lands every mode one frequency off; here a mode keeps its frequency on any grid.
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
        """Carry the skip connection to the output grid, which is the input grid: neuralop's blocks ask for it."""
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
        """Make the Fourier matrices where the bias is and in its precision."""
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
        """Take complex weights along to another dtype: `.double()` would leave them, `.to(dtype)` cut them to real parts."""
        before = self.bias.dtype

        def follow(tensor: Tensor) -> Tensor:
            if not tensor.is_complex():
                return fn(tensor)  # type: ignore[no-any-return]
            return torch.view_as_complex(fn(torch.view_as_real(tensor)).contiguous())

        super()._apply(follow, recurse)  # type: ignore[no-untyped-call]
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
        # A constant over the grid is mode zero: adding the bias here spares a pass over the full grid.
        mixed = mixed + self.get_buffer("zero_mode") * self.bias.flatten()
        answer: Tensor = mixed.permute(1, 2, 0).reshape(len(modes), out, *modes.shape[2:])
        return answer


def quicken(fno: nn.Module, shape: Sequence[int]) -> None:
    """Replace the 1×1 and spectral convolutions of a neuralop FNO in place; its weights are shared, not copied."""
    for parent in list(fno.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Conv1d) and child.kernel_size == (1,):
                setattr(parent, name, Pointwise(child))
            elif type(child).__name__ == "SpectralConv":
                setattr(parent, name, Spectral(child, shape))


def _along(axis: int, modes: Tensor, matrix: Tensor) -> Tensor:
    """Multiply one grid axis of (b, c, *grid) by a matrix, as one flat product: hence the copy."""
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

    Every frequency but zero and the Nyquist one stands for its mirror image too.
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
