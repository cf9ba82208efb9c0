"""Approximate inverses of JJᵀ from symbols: exact on periodic grids, used at edges where they help."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from snapfm import Equality
from snapfm.compile import MatrixFreeLaws, matrix_free
from snapfm.laws import Params
from snapfm.solve.matrix_free.symbols import _left, inverse_gram, row_sizes


def laplacian(u: Tensor) -> Tensor:
    return torch.roll(u, 1, 0) + torch.roll(u, -1, 0) - 2 * u


def steps(u: Tensor, p: Params) -> Tensor:
    """Implicit steps of heat along the second axis, without an initial field."""
    return u[:, 1:] - u[:, :-1] - 2.0 * laplacian(u[:, 1:])


def diffused(u: Tensor, p: Params) -> Tensor:
    """Periodic in both axes."""
    return u - 2.0 * laplacian(u) - laplacian(u.T).T


def jagged(u: Tensor, p: Params) -> Tensor:
    """Different at every point: no convolution."""
    return u * (1.0 + torch.arange(u.numel(), dtype=u.dtype) * 7 % 30).reshape(u.shape)


def never() -> bool:
    return False


def laws(rows: object) -> MatrixFreeLaws:
    return matrix_free([Equality("rows", rows)], (16, 12), None, "so")  # type: ignore[arg-type]


@pytest.mark.parametrize(("rows", "better"), [(steps, 3.0), (diffused, 1e6)])
def test_symbols_leave_less_after_a_few_iterations_than_sizes_of_rows(rows: object, better: float):
    given = laws(rows)
    u = torch.randn(16, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    here = given.linearize(u, {})
    sizes = row_sizes(given, here)
    with_symbols = _left(here, inverse_gram(given, here, u, {}, sizes, never), sizes, never)
    assert better * with_symbols < _left(here, lambda y: y / sizes, sizes, never)


def test_symbols_that_do_not_help_are_not_used():
    given = laws(jagged)
    u, y = torch.randn(2, 16, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    here = given.linearize(u, {})
    sizes = row_sizes(given, here)
    torch.testing.assert_close(inverse_gram(given, here, u, {}, sizes, never)(y.reshape(-1)), y.reshape(-1) / sizes)
