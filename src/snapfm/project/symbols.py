"""Symbols: an approximate inverse of JJᵀ for laws that torch multiplies by (math.md, eq. matrix-free).

On a periodic grid most laws look the same at every point, so that J is a convolution of a few channels: diagonal in Fourier
space, up to a small matrix per wavenumber, its symbol. Symbols are found by one product with an impulse per channel, at the mean
of the field, and used if a product with a random field confirms them. Other rows are divided by their squared sizes, which a
few products with random signs estimate. Must not import project.matrix_free.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from snapfm.laws import Params
from snapfm.structure import Linearization, MatrixFreeLaws

Product = Callable[[Tensor], Tensor]

_ENTRIES = 20_000_000  # of all symbols together: a third of a gigabyte
_AGREE = 1e-8  # of the random product, relative to its size
_RANK = 1e-11  # singular values below this share of the largest are zero: the mean under a Laplacian
_PROBES = 8  # products with random signs: sizes of rows to a third


def inverse_gram(laws: MatrixFreeLaws, u: Tensor, params: Params, sizes: Tensor) -> Product:
    """Return the approximate inverse of JJᵀ at a field as a product with vectors (m,); `sizes` are those of its rows."""
    found = next((one for axes in range(len(laws.shape), 0, -1) if (one := _symbol(laws, u, params, axes))), None)
    if found is None:
        return lambda y: y / sizes
    rows, inverse = found

    def product(y: Tensor) -> Tensor:
        out = y / sizes
        out[rows] = inverse(y[rows])
        return out

    return product


def row_sizes(laws: MatrixFreeLaws, here: Linearization) -> Tensor:
    """Estimate ‖∇h‖² of every row, by products with random signs; 1 where it vanishes."""
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros_like(here.residual)
    for _ in range(_PROBES):
        total += here.push(1.0 - 2.0 * torch.randint(2, (laws.unknowns,), generator=generator).double()) ** 2
    sizes: Tensor = torch.where(total > 0.0, total / _PROBES, 1.0)
    return sizes


def _symbol(laws: MatrixFreeLaws, u: Tensor, params: Params, axes: int) -> tuple[Tensor, Product] | None:
    """Find rows that are a convolution over the last `axes` axes, and the pseudo-inverse of their part of JJᵀ."""
    grid = laws.shape[-axes:]
    mine = [rows for rows, layout in zip(laws.stack, laws.layouts) if layout[-axes:] == grid]
    points, inside = math.prod(grid), laws.unknowns // math.prod(grid)
    outside = sum(rows.stop - rows.start for rows in mine) // points
    if points < 2 or not outside or points * inside * outside > _ENTRIES:
        return None
    rows = torch.cat([torch.arange(part.start, part.stop) for part in mine])
    over = tuple(range(-axes, 0))
    mean = u.mean(dim=over, keepdim=True).expand(u.shape)
    there = laws.linearize(mean, params)

    def transformed(y: Tensor, channels: int) -> Tensor:
        found: Tensor = torch.fft.rfftn(y.reshape(channels, *grid), dim=over).reshape(channels, -1)
        return found

    columns = []
    for channel in range(inside):
        impulse = torch.zeros(laws.unknowns, dtype=torch.float64)
        impulse[channel * points] = 1.0
        columns.append(transformed(there.push(impulse)[rows], outside))
    symbol = torch.stack(columns, dim=-1).movedim(1, 0)  # (wavenumbers, rows, unknowns)
    generator = torch.Generator().manual_seed(1)
    probe = torch.randn(laws.unknowns, generator=generator, dtype=torch.float64)
    truth = transformed(there.push(probe)[rows], outside)
    model = torch.einsum("krc,ck->rk", symbol, transformed(probe, inside))
    if not bool((model - truth).norm() <= _AGREE * truth.norm()):
        return None
    left, values, _ = torch.linalg.svd(symbol, full_matrices=False)
    inverse = torch.where(values > _RANK * values.max(), values, torch.inf).pow(-2).to(symbol.dtype)
    matrix = (left * inverse[:, None]) @ left.mH

    def product(y: Tensor) -> Tensor:
        scaled = torch.einsum("krs,sk->rk", matrix, transformed(y, outside))
        half = (outside, *grid[:-1], grid[-1] // 2 + 1)
        back: Tensor = torch.fft.irfftn(scaled.reshape(half), s=grid, dim=over).reshape(-1)
        return back

    return rows, product
