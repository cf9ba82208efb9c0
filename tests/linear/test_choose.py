"""The choice of a solver by size and device."""

from __future__ import annotations

import numpy as np

from snapfm.linear import Lanes, Levels, Library, choose, lower_triangle
from snapfm.structure.pattern import Pattern


def test_choice_by_size_and_device():
    n = 400
    dense = lower_triangle(Pattern.from_coordinates(*np.tril_indices(n), (n, n)))
    long = Pattern.from_coordinates(*_tridiagonal(20_000), (20_000, 20_000))
    assert isinstance(choose(dense, 1), Lanes)
    assert isinstance(choose(dense, 1, "cuda"), Levels)
    assert isinstance(choose(dense, 1, tile_limit=2**22), Library)
    assert isinstance(choose(dense, 8, tile_limit=2**22), Lanes)
    assert isinstance(choose(long, 1, tile_limit=2**22), Lanes)  # its bound is beyond the limit, its factor is not


def _tridiagonal(n):
    return np.concatenate([np.arange(n), np.arange(1, n)]), np.concatenate([np.arange(n), np.arange(n - 1)])
