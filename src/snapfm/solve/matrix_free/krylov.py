"""Symmetric matrices of which only products are known: MINRES (Paige and Saunders 1975), and Lanczos for the lowest eigenvalue.

Works on flat float64 tensors of one sample. Imports nothing of snapfm.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from scipy.linalg import eigvalsh_tridiagonal
from torch import Tensor

Product = Callable[[Tensor], Tensor]


def minres(
    multiply: Product, precondition: Product, right: Tensor, enough: float, limit: int, over: Callable[[], bool]
) -> tuple[Tensor, float]:
    """Solve for one right-hand side; return the solution and its residual relative to `right`, in the preconditioned norm.

    `precondition` is symmetric and positive on the range that matters; what it maps to zero is left out. Ends when the residual
    is small `enough`, after `limit` products, or when the time is `over`.
    """
    x, residual = torch.zeros_like(right), right
    z = precondition(right)
    beta = first = _norm(right, z)
    if not 0.0 < first < math.inf:
        return x, 0.0 if first == 0.0 else math.nan
    before, older, old = torch.zeros_like(right), torch.zeros_like(right), torch.zeros_like(right)
    last_beta, tail, epsilon, left, cosine, sine = 1.0, 0.0, 0.0, first, -1.0, 0.0
    for _ in range(limit):
        if over():
            break
        v = z / beta
        y = multiply(v) - (beta / last_beta) * before
        alpha = float(v.dot(y))
        y -= (alpha / beta) * residual
        before, residual = residual, y
        z = precondition(y)
        last_beta, beta = beta, _norm(y, z)
        # The next column of the tridiagonal matrix, turned by the last two rotations and by one of its own.
        last_epsilon, delta, gap = epsilon, cosine * tail + sine * alpha, sine * tail - cosine * alpha
        epsilon, tail = sine * beta, -cosine * beta
        gamma = math.hypot(gap, beta)
        if gamma == 0.0:
            break
        cosine, sine = gap / gamma, beta / gamma
        older, old = old, (v - last_epsilon * older - delta * old) / gamma
        x += (cosine * left) * old
        left *= sine
        if not left > enough * first or beta <= _EXHAUSTED * first:
            break
    return x, left / first


def lowest(multiply: Product, start: Tensor, limit: int, over: Callable[[], bool]) -> float:
    """Approximate the smallest eigenvalue from above, in the Krylov space of a start. Orthogonalizes fully.

    A start that is zero, as where nothing can move, has no eigenvalue: infinity.
    """
    size = float(start.norm())
    if size <= _EXHAUSTED:
        return math.inf
    basis = [start / size]
    diagonal, beside = list[float](), list[float]()
    for _ in range(limit):
        y = multiply(basis[-1])
        diagonal.append(float(basis[-1].dot(y)))
        if over():
            break
        for _ in range(2):  # once is not enough in floating point
            for one in basis:
                y = y - float(one.dot(y)) * one
        beside.append(float(y.norm()))
        if beside[-1] <= _EXHAUSTED * max(1.0, max(map(abs, diagonal))):
            break
        basis.append(y / beside[-1])
    return float(eigvalsh_tridiagonal(diagonal, beside[: len(diagonal) - 1])[0])


# The Krylov space is exhausted: what is left of the next vector is rounding.
_EXHAUSTED = 1e-15


def _norm(y: Tensor, z: Tensor) -> float:
    return math.sqrt(max(0.0, float(y.dot(z)))) if bool(torch.isfinite(z).all()) else math.nan
