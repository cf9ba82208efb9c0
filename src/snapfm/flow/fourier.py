"""Fourier transforms to the few modes a network keeps, and back, as real products over channels-last grids.

A transform is one stage per axis. A stage multiplies slabs of adjacent numbers by one real matrix, so that nothing is
moved between stages: real and imaginary part stand beside the axis that is summed over next. For two axes, with channels
behind everything, forward goes (x, t) → (x, part, kt) → (part, kx, kt), inverse the same way back. Time comes first
because it is real: 111 operations a point and channel for 32×17 modes of 100×100, against 171 with x first. Joining the
axes of space, 8×8 points to 6×6 modes, into one matrix took 1.5 times as long.

Gives matrices; uses those of `layers`, so that both evaluate the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.flow.layers import forward, inverse, real_forward, real_inverse


@dataclass(frozen=True)
class Stage:
    """One axis: `matrix` (rows, columns) multiplies each of a sample's `slabs` (columns, rest)."""

    matrix: Tensor
    slabs: int


@dataclass(frozen=True)
class Fourier:
    """Both ways between a grid and its kept modes, ordered (part, *modes); `zero` is the place of mode zero."""

    forward: tuple[Stage, ...]
    inverse: tuple[Stage, ...]
    modes: int
    zero: int


def fourier(shape: Sequence[int], modes: Sequence[int], dtype: torch.dtype) -> Fourier:
    """Build the stages for a grid; `modes` are those of a Spectral layer, of which the last axis keeps 0, 1, …"""
    *front, size = shape
    *kept, last = modes
    there = [Stage(_real_forward(size, last), math.prod(front))]
    back = [Stage(_real_inverse(size, last), math.prod(front))]
    zero = 0
    for axis in reversed(range(len(front))):
        slabs = math.prod(front[:axis])
        there.append(Stage(_complex_forward(front[axis], kept[axis]), slabs))
        back.insert(0, Stage(_complex_inverse(front[axis], kept[axis]), slabs))
        zero += kept[axis] // 2 * math.prod(modes[axis + 1 :])
    return Fourier(_rounded(there, dtype), _rounded(back, dtype), math.prod(modes), zero)


def _real_forward(size: int, modes: int) -> Tensor:
    """Rows (part, mode), columns (point)."""
    return real_forward(size, modes).view(size, modes, 2).permute(2, 1, 0).flatten(0, 1)


def _real_inverse(size: int, modes: int) -> Tensor:
    """Rows (point), columns (part, mode)."""
    return real_inverse(size, modes).view(modes, 2, size).permute(2, 1, 0).flatten(1)


def _complex_forward(size: int, modes: int) -> Tensor:
    """Rows (part, mode), columns (point, part)."""
    return _parts(forward(size, modes).T).permute(0, 1, 3, 2).flatten(2).flatten(0, 1)


def _complex_inverse(size: int, modes: int) -> Tensor:
    """Rows (point, part), columns (part, mode)."""
    return _parts(inverse(size, modes).T).transpose(0, 1).flatten(2).flatten(0, 1)


def _parts(matrix: Tensor) -> Tensor:
    """Write a complex matrix in real numbers: (part out, row, part in, column)."""
    real, imaginary = matrix.real, matrix.imag
    return torch.stack([torch.stack([real, -imaginary], 1), torch.stack([imaginary, real], 1)])


def _rounded(stages: Sequence[Stage], dtype: torch.dtype) -> tuple[Stage, ...]:
    return tuple(Stage(stage.matrix.to(dtype).contiguous(), stage.slabs) for stage in stages)
