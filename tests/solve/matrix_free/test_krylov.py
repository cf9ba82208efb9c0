"""MINRES and Lanczos against dense linear algebra."""

import math

import numpy as np
import pytest
import torch

from snapfm.solve.matrix_free.krylov import lowest, minres


def _symmetric(eigenvalues: list[float]) -> torch.Tensor:
    count = len(eigenvalues)
    turned, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((count, count)))
    return torch.from_numpy(turned * np.array(eigenvalues) @ turned.T)


def _never() -> bool:
    return False


@pytest.mark.parametrize("eigenvalues", [[1.0, 2.0, 5.0], [-3.0, -0.1, 0.5, 4.0, 7.0], [1.0, 1.0, 1.0, -1.0]])
def test_minres_solves_indefinite_systems(eigenvalues: list[float]) -> None:
    matrix = _symmetric(eigenvalues)
    right = torch.arange(1.0, len(matrix) + 1, dtype=torch.float64)
    found, left = minres(lambda x: matrix @ x, lambda x: x, right, 1e-12, 50, _never)
    assert left <= 1e-12
    torch.testing.assert_close(found, torch.linalg.solve(matrix, right), rtol=1e-9, atol=1e-9)


def test_minres_solves_a_singular_system_that_is_consistent() -> None:
    matrix = _symmetric([0.0, 1.0, -2.0, 3.0])
    right = matrix @ torch.ones(4, dtype=torch.float64)
    found, _ = minres(lambda x: matrix @ x, lambda x: x, right, 1e-12, 50, _never)
    torch.testing.assert_close(matrix @ found, right, rtol=1e-9, atol=1e-9)


def test_a_preconditioner_saves_products() -> None:
    scale = torch.logspace(0, 6, 40, dtype=torch.float64)
    count = 0

    def multiply(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return scale * x

    found, _ = minres(multiply, lambda x: x / scale, torch.ones(40, dtype=torch.float64), 1e-10, 50, _never)
    assert count <= 2
    torch.testing.assert_close(found, 1.0 / scale, rtol=1e-9, atol=0.0)


def test_minres_ends_when_time_is_over() -> None:
    found, left = minres(lambda x: x, lambda x: x, torch.ones(3, dtype=torch.float64), 1e-12, 50, lambda: True)
    assert not found.any()
    assert left == 1.0


def test_lanczos_finds_the_smallest_eigenvalue() -> None:
    matrix = _symmetric([-1.5, 0.2, 1.0, 1.0, 2.0, 3.0])
    start = torch.ones(6, dtype=torch.float64)
    assert lowest(lambda x: matrix @ x, start, 20, _never) == pytest.approx(-1.5, abs=1e-10)
    assert lowest(lambda x: matrix @ x, 0.0 * start, 20, _never) == math.inf
