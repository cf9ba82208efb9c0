"""Frames of a periodic space: every member is one wave of space times one profile of time.

Principal fields of a flow that may start in any direction are many, and each has as many numbers as a field. A wave is known
without being stored, so a member takes no more than its profile. Imports nothing of snapfm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def real_waves(sizes: Sequence[int]) -> Tensor:
    """Return the orthonormal real Fourier basis of a grid, one row per wave: (points, points), float64."""
    basis = torch.ones(1, 1, dtype=torch.float64)
    for size in sizes:
        basis = torch.kron(basis, _along(size))
    return basis


def _along(size: int) -> Tensor:
    x = torch.arange(size, dtype=torch.float64) / size
    rows = [torch.full((size,), math.sqrt(1 / size), dtype=torch.float64)]
    for wave in range(1, (size + 1) // 2):
        angle = 2 * math.pi * wave * x
        rows += [math.sqrt(2 / size) * torch.cos(angle), math.sqrt(2 / size) * torch.sin(angle)]
    if size % 2 == 0:
        rows.append(math.sqrt(1 / size) * torch.cos(math.pi * size * x))
    return torch.stack(rows)


def principal_profiles(fields: Tensor, basis: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Find the `size` pairs of wave and profile with the most variance in centered fields (b, points, times).

    Returns the waves' rows in the basis (size,) and the profiles (size, times), widest first. Profiles of one wave are
    orthonormal, so the members are too.
    """
    series = basis @ fields
    covariance = torch.einsum("bwt,bws->wts", series, series)
    variances, vectors = torch.linalg.eigh(covariance)
    order = variances.flatten().argsort(descending=True)[:size]
    return order // fields.shape[-1], vectors.mT.flatten(0, 1)[order]
