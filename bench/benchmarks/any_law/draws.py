"""What true fields are drawn from: smooth random fields, and marches of periodic equations with a stiff linear part."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_WAVES = 3  # highest wave number of a smooth field
_SWEEPS = 500  # of the fixed point of an implicit step; all marches here contract in far fewer
_SETTLED = 1e-13


def smooth(samples: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw periodic fields of low waves along all axes with unit root mean square: (b, *shape)."""
    total = torch.zeros(samples, *shape, dtype=torch.float64)
    for _ in range(6):
        angle = torch.zeros(samples, *shape, dtype=torch.float64)
        for axis, extent in enumerate(shape):
            wave = torch.randint(-_WAVES, _WAVES + 1, (samples,), generator=generator).double()
            place = torch.arange(extent, dtype=torch.float64) / extent
            spread = [1] * len(shape)
            spread[axis] = extent
            angle = angle + 2 * math.pi * (wave[:, None] * place).reshape(samples, *spread)
        phase, height = 2 * math.pi * _rand(samples, generator), 0.5 + _rand(samples, generator)
        column = (samples, *[1] * len(shape))
        total = total + height.reshape(column) * torch.sin(angle + phase.reshape(column))
    axes = tuple(range(1, total.dim()))
    return total / total.square().mean(axes, keepdim=True).sqrt()


def randn(*shape: int, generator: torch.Generator) -> Tensor:
    """Draw white noise in float64."""
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def implicit_march(
    start: Tensor, steps: int, dt: float, linear: Callable[[Tensor], Tensor], nonlinear: Callable[[Tensor], Tensor]
) -> Tensor:
    """March u₁ = u₀ + dt (L u₁ + N(u₁)) from start (b, *space), periodic, to (b, *space, steps), the start included.

    L commutes with shifts: its symbol is the transform of what it makes of a single point. N is a contraction for dt.
    """
    axes = tuple(range(1, start.dim()))
    point = torch.zeros_like(start[:1])
    point[(0, *[0] * len(axes))] = 1.0
    divisor = 1.0 - dt * torch.fft.fftn(linear(point), dim=axes)
    slices, u = [start], start
    for _ in range(steps - 1):
        before = u
        for _ in range(_SWEEPS):
            after = torch.fft.ifftn(torch.fft.fftn(before + dt * nonlinear(u), dim=axes) / divisor, dim=axes).real
            moved, u = float((after - u).abs().max()), after
            if moved < _SETTLED * max(1.0, float(u.abs().max())):
                break
        slices.append(u)
    return torch.stack(slices, dim=-1)


def _rand(samples: int, generator: torch.Generator) -> Tensor:
    return torch.rand(samples, generator=generator, dtype=torch.float64)
