"""Stacks of small matrices: rotations, determinants, covariances."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import randn
from snapfm.laws import Equality, Inequality, Params


@case(16, tiny=2, group="issue", small=0.1, far=1.5)
def rotations(samples: int, generator: torch.Generator, size: int) -> Setting:
    """RᵀR = I for a stack of 3 × 3 matrices, from inputs far from orthogonal."""
    u = torch.linalg.qr(randn(samples, size, 3, 3, generator=generator)).Q

    def rows(u: Tensor, p: Params) -> Tensor:
        gram = u.transpose(1, 2) @ u - torch.eye(3, dtype=u.dtype)
        row, column = torch.triu_indices(3, 3)
        return gram[:, row, column]

    return Setting((Equality("orthogonal", rows),), u, {})


@case(8, tiny=2, small=0.1, far=1.0)
def frames(samples: int, generator: torch.Generator, size: int) -> Setting:
    """RᵀR = I written with all nine entries, three of them twice."""
    u = torch.linalg.qr(randn(samples, size, 3, 3, generator=generator)).Q

    def rows(u: Tensor, p: Params) -> Tensor:
        return u.transpose(1, 2) @ u - torch.eye(3, dtype=u.dtype)

    return Setting((Equality("orthogonal", rows),), u, {})


@case(6, tiny=2, group="issue", far=0.3)
def determinant(samples: int, generator: torch.Generator, size: int) -> Setting:
    """det A = 1 for a stack of 3 × 3 matrices, by torch.linalg.det."""
    u = torch.eye(3, dtype=torch.float64) + 0.3 * randn(samples, size, 3, 3, generator=generator)
    scale = torch.linalg.det(u)
    u = u / (scale.sign() * scale.abs() ** (1 / 3))[..., None, None]
    return Setting((Equality("determinant", lambda u, p: torch.linalg.det(u) - 1.0),), u, {})


@case(8, tiny=3)
def covariance(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A covariance and its Cholesky factor together: C = LLᵀ, L lower triangular, trace one."""
    lower = torch.tril(randn(samples, size, size, generator=generator))
    lower = lower / lower.square().sum((1, 2), keepdim=True).sqrt()
    u = torch.stack([lower @ lower.transpose(1, 2), lower], dim=1)
    row, column = torch.triu_indices(size, size, 1)
    laws = (
        Equality("factor", lambda u, p: u[0] - u[1] @ u[1].T),
        Equality("triangle", lambda u, p: u[1][row, column]),
        Equality("trace", lambda u, p: u[0].diagonal().sum() - 1.0),
    )
    return Setting(laws, u, {})


@case(12, tiny=3)
def inverse_pair(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A matrix and its inverse together: A B = I."""
    a = torch.eye(size, dtype=torch.float64) + 0.5 * randn(samples, size, size, generator=generator) / size**0.5
    u = torch.stack([a, torch.linalg.inv(a)], dim=1)
    return Setting((Equality("inverse", lambda u, p: u[0] @ u[1] - torch.eye(size, dtype=u.dtype)),), u, {})


@case(6, tiny=2, far=0.3)
def log_determinant(samples: int, generator: torch.Generator, size: int) -> Setting:
    """log det A is given for a stack of positive 5 × 5 matrices, by torch.linalg.slogdet."""
    half = randn(samples, size, 5, 5, generator=generator)
    u = torch.eye(5, dtype=torch.float64) + 0.2 * half @ half.transpose(2, 3)

    def amount(u: Tensor) -> Tensor:
        return torch.linalg.slogdet(u).logabsdet

    return Setting((Equality("log determinant", lambda u, p: amount(u) - p["amount"]),), u, {"amount": amount(u)})


@case(5, tiny=3, far=0.3)
def smallest_eigenvalue(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A symmetric matrix of given trace whose smallest eigenvalue is at least 0.1, by torch.linalg.eigvalsh."""
    half = randn(samples, size, size, generator=generator)
    u = 0.11 * torch.eye(size, dtype=torch.float64) + half @ half.transpose(1, 2) / size
    row, column = torch.triu_indices(size, size, 1)
    laws = (
        Inequality("positive", lambda u, p: 0.1 - torch.linalg.eigvalsh(0.5 * (u + u.T))[0]),
        Equality("symmetric", lambda u, p: (u - u.T)[row, column]),
        Equality("trace", lambda u, p: u.diagonal().sum() - p["trace"]),
    )
    return Setting(laws, u, {"trace": u.diagonal(dim1=1, dim2=2).sum(1)})
