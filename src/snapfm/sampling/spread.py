"""Spread: how a model's fields vary, as a few principal directions and what is left. Gives a sampler its metric at every τ.

A field x and the state u = αx + σ·noise are jointly Gaussian to second order; given u, the variance w of a principal direction
shrinks to wσ²/(α²w + σ²) (math.md, eq. spread). Knows fields and paths, not laws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from snapfm.errors import ShapeError
from snapfm.project.metric import Metric
from snapfm.sampling.checks import is_count
from snapfm.sampling.path import Path

_EXACT = 1024  # fields or unknowns up to which all directions are computed
_SPARE = 16  # directions beyond those asked for, and rounds: the usual safety of a randomized range finder
_ROUNDS = 3
# Least variance of what is left, relative to the largest direction's: keeps the metric's inverse meaningful in float64.
_FLOOR = 1e-10


@dataclass(frozen=True, eq=False)
class Spread:
    """The covariance of fields: orthonormal `directions` (r, *shape) with `variances` (r,), and `rest` in all others."""

    directions: Tensor
    variances: Tensor
    rest: float

    @classmethod
    def of_fields(cls, fields: Tensor, rank: int = 64) -> Spread:
        """Estimate from fields (count, *shape): training data, or any that vary as the model's do.

        More fields are better: with fewer than a few times `rank`, the smaller variances are noise.
        """
        if not isinstance(fields, Tensor) or fields.ndim < 2 or len(fields) < 2 or not fields[0].numel():
            came = tuple(fields.shape) if isinstance(fields, Tensor) else type(fields).__name__
            raise ShapeError(
                f"Spread.of_fields expects at least two fields, (count, *shape); got {came}. Stack fields along a first axis."
            )
        if not is_count(rank):
            raise ShapeError(f"Spread.of_fields(rank) expects a whole number >= 1; got {rank!r}. The default is 64.")
        flat = fields.detach().to("cpu", torch.float64).flatten(1)
        centered = flat - flat.mean(dim=0)
        count, size = centered.shape
        total = float(centered.square().sum()) / (count - 1)
        values, directions = _principal(centered, min(rank, count - 1, size))
        variances = values.square() / (count - 1)
        left = max(0.0, total - float(variances.sum())) / max(1, size - len(variances))
        return cls(directions.reshape(-1, *fields.shape[1:]), variances, left)

    @classmethod
    def of_samples(cls, samples: Any, rank: int = 64) -> Spread:
        """Estimate from a sampling run: its `u`."""
        return cls.of_fields(samples.u, rank)

    @classmethod
    def of_model(
        cls, velocity: Callable[[Tensor, Any], Tensor], shape: tuple[int, ...] | None = None, count: int = 256, steps: int = 20,
        generator: torch.Generator | None = None, rank: int = 64,
    ) -> Spread:  # fmt: skip
        """Estimate from the model's own unconstrained samples."""
        from snapfm.sampling.sample import sample  # it names Conditional, which names this class

        seeded = generator or torch.Generator().manual_seed(0)
        return cls.of_samples(sample(velocity, None, None, count, steps, seeded, shape=shape), rank)

    def at(self, path: Path, tau: float) -> Metric:
        """Return the covariance of the data given a state at τ."""
        data, noise = path.data(tau) ** 2, path.noise(tau) ** 2
        shrunk = self.variances * noise / (data * self.variances + noise)
        floor = _FLOOR * float(shrunk.max()) if len(shrunk) else 0.0
        left = max(self.rest * noise / (data * self.rest + noise), floor, torch.finfo(torch.float64).tiny)
        return Metric(left, self.directions, (shrunk - left).clamp(min=0.0))


def _principal(centered: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return the largest singular values (r,) and right singular vectors (r, n)."""
    if min(centered.shape) <= _EXACT:
        _, values, directions = torch.linalg.svd(centered, full_matrices=False)
        return values[:rank], directions[:rank]
    seeded = torch.Generator().manual_seed(0)
    width = min(rank + _SPARE, *centered.shape)
    basis = centered.T @ torch.randn(len(centered), width, generator=seeded, dtype=centered.dtype)
    for _ in range(_ROUNDS):
        basis, _ = torch.linalg.qr(basis)
        basis = centered.T @ (centered @ basis)
    basis, _ = torch.linalg.qr(basis)
    _, values, turned = torch.linalg.svd(centered @ basis, full_matrices=False)
    return values[:rank], (turned @ basis.T)[:rank]
