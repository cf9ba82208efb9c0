"""Symbols: an approximate inverse of JJᵀ for laws that torch multiplies by (math.md, eq. matrix-free).

On a grid most laws look the same at every point, so that J is nearly a convolution of a few channels: diagonal in Fourier space,
up to a small matrix per wavenumber, its symbol. Symbols are found by one product with an impulse per channel, at the mean of the
field. On a periodic grid a product with a random field confirms them; where it does not, or rows lack the points at an edge, they
are used if a few iterations converge faster with them. Other rows are divided by their squared sizes, which a few
products with random signs estimate. Must not import solve.matrix_free.method.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from snapfm.compile import Linearization, MatrixFreeLaws
from snapfm.laws import Params
from snapfm.solve.matrix_free.krylov import minres

Product = Callable[[Tensor], Tensor]

_ENTRIES = 20_000_000  # of all symbols together: a third of a gigabyte
_AGREE = 1e-8  # of the random product, relative to its size
_RANK = 1e-11  # singular values below this share of the largest are zero: the mean under a Laplacian
_PROBES = 8  # products with random signs: sizes of rows to a third
_EDGE = 4  # points of an axis that rows may lack: both edges of a wide stencil
_TRIAL = 20  # products by which two approximations are compared


class _Symbol(NamedTuple):
    """Rows that are nearly a convolution, and the inverse of their part of JJᵀ. `exact`: a product confirms it."""

    rows: Tensor
    inverse: Product
    exact: bool


def inverse_gram(
    laws: MatrixFreeLaws, here: Linearization, u: Tensor, params: Params, sizes: Tensor, over: Callable[[], bool]
) -> Product:
    """Return the approximate inverse of JJᵀ at a field as a product with vectors (m,); `sizes` are those of its rows.

    When the time is `over`, approximations are no longer compared.
    """
    found = [one for axes in range(len(laws.shape), 0, -1) if (one := _symbol(laws, u, params, axes))]
    for symbol in found:
        if symbol.exact:
            return _combined(symbol, sizes)

    def plain(y: Tensor) -> Tensor:
        return y / sizes

    if not found:
        return plain
    return min([plain, _combined(found[0], sizes)], key=lambda one: _left(here, one, sizes, over))


def _combined(symbol: _Symbol, sizes: Tensor) -> Product:
    """Use a symbol where there is one, and sizes elsewhere."""

    def product(y: Tensor) -> Tensor:
        out = y / sizes
        out[symbol.rows] = symbol.inverse(y[symbol.rows])
        return out

    return product


def _left(here: Linearization, inverse: Product, sizes: Tensor, over: Callable[[], bool]) -> float:
    """Return what a few iterations leave of a random right-hand side, rows divided by their sizes."""
    generator = torch.Generator().manual_seed(2)
    right = torch.randn(len(sizes), generator=generator, dtype=torch.float64) * sizes.sqrt()

    def gram(y: Tensor) -> Tensor:
        return here.push(here.pull(y))

    found, _ = minres(gram, inverse, right, 0.0, _TRIAL, over)
    left = float(((right - gram(found)) / sizes.sqrt()).norm())
    return left if math.isfinite(left) else math.inf


def row_sizes(laws: MatrixFreeLaws, here: Linearization) -> Tensor:
    """Estimate ‖∇h‖² of every row, by products with random signs; 1 where it vanishes."""
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros_like(here.residual)
    for _ in range(_PROBES):
        total += here.push(1.0 - 2.0 * torch.randint(2, (laws.unknowns,), generator=generator).double()) ** 2
    sizes: Tensor = torch.where(total > 0.0, total / _PROBES, 1.0)
    return sizes


def _symbol(laws: MatrixFreeLaws, u: Tensor, params: Params, axes: int) -> _Symbol | None:
    """Find rows that are nearly a convolution over the last `axes` axes, and the inverse of their part of JJᵀ."""
    extents = laws.shape[-axes:]
    mine = [
        (rows, layout)
        for rows, layout in zip(laws.stack, laws.layouts)
        if len(layout) >= axes and all(0 <= e - r <= min(_EDGE, e // 2) for e, r in zip(extents, layout[-axes:]))
    ]
    grid = _Grid(extents, tuple((math.prod(layout[:-axes]), *layout[-axes:]) for _, layout in mine))
    inside = laws.unknowns // grid.points
    if grid.points < 2 or not grid.channels or grid.points * inside * grid.channels > _ENTRIES:
        return None
    rows = torch.cat([torch.arange(part.start, part.stop) for part, _ in mine])
    there = laws.linearize(u.mean(dim=grid.over, keepdim=True).expand(u.shape), params)
    middle = tuple(extent // 2 for extent in extents)
    columns = []
    for channel in range(inside):
        impulse = torch.zeros(inside, *extents, dtype=torch.float64)
        impulse[(channel, *middle)] = 1.0
        answer = grid.enter(there.push(impulse.reshape(-1))[rows])
        columns.append(grid.transform(answer.roll(tuple(-one for one in middle), grid.over)))
    symbol = torch.stack(columns, dim=-1).movedim(1, 0)  # (wavenumbers, rows, unknowns)
    generator = torch.Generator().manual_seed(1)
    probe = torch.randn(laws.unknowns, generator=generator, dtype=torch.float64)
    truth = grid.transform(grid.enter(there.push(probe)[rows]))
    model = torch.einsum("krc,ck->rk", symbol, grid.transform(probe.reshape(inside, *extents)))
    exact = grid.full and bool((model - truth).norm() <= _AGREE * truth.norm())
    left, values, _ = torch.linalg.svd(symbol, full_matrices=False)
    present = values > _RANK * values.max()
    # What a periodic grid maps to zero, such as the mean, is small but not zero where there are edges.
    absent = torch.inf if exact or not bool(present.any()) else float(values[present].min())
    inverse = torch.where(present, values, absent).pow(-2).to(symbol.dtype)
    matrix = (left * inverse[:, None]) @ left.mH

    def product(y: Tensor) -> Tensor:
        return grid.leave(torch.einsum("krs,sk->rk", matrix, grid.transform(grid.enter(y))))

    return _Symbol(rows, product, exact)


class _Grid(NamedTuple):
    """A grid on which rows of several laws stand at the corner: where rows stand shifts phases of their symbols only."""

    extents: tuple[int, ...]
    layouts: tuple[tuple[int, ...], ...]  # of each law: channels, then at most `_EDGE` points less than the extents

    @property
    def points(self) -> int:
        return math.prod(self.extents)

    @property
    def channels(self) -> int:
        return sum(layout[0] for layout in self.layouts)

    @property
    def over(self) -> tuple[int, ...]:
        return tuple(range(-len(self.extents), 0))

    @property
    def full(self) -> bool:
        return all(layout[1:] == self.extents for layout in self.layouts)

    def enter(self, y: Tensor) -> Tensor:
        """Put rows (m,) on the grid: (channels, *extents), zero where there is no row."""
        field, channel, first = torch.zeros((self.channels, *self.extents), dtype=torch.float64), 0, 0
        for layout in self.layouts:
            count = math.prod(layout)
            window = field[channel : channel + layout[0]][(slice(None), *map(slice, layout[1:]))]
            window[:] = y[first : first + count].reshape(layout)
            channel, first = channel + layout[0], first + count
        return field

    def transform(self, field: Tensor) -> Tensor:
        """Return the Fourier coefficients (channels, wavenumbers)."""
        found: Tensor = torch.fft.rfftn(field, dim=self.over).reshape(len(field), -1)
        return found

    def leave(self, coefficients: Tensor) -> Tensor:
        """Transform back, and take the rows (m,)."""
        half = (self.channels, *self.extents[:-1], self.extents[-1] // 2 + 1)
        field, channel, parts = torch.fft.irfftn(coefficients.reshape(half), s=self.extents, dim=self.over), 0, []
        for layout in self.layouts:
            parts.append(field[channel : channel + layout[0]][(slice(None), *map(slice, layout[1:]))].reshape(-1))
            channel += layout[0]
        return torch.cat(parts)
