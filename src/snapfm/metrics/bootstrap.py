"""Bootstrap intervals of all scores, how far a score would move with other samples; and weights of samples.

Imports errors only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import ShapeError

LEVEL = 0.95  # share of the resampled scores that an interval holds
ROUNDS = 1000  # resamplings: the ends of a 95 % interval are then the 25th score from either side


@dataclass(frozen=True)
class Estimate:
    """A score and its bootstrap interval."""

    value: float
    low: float
    high: float


def resample(count: int, seed: int, rounds: int = ROUNDS) -> Tensor:
    """Return `rounds` resamplings of `count` samples as weights (rounds, count); each row sums to one."""
    picks = torch.randint(count, (rounds, count), generator=torch.Generator().manual_seed(seed))
    weights = torch.zeros(rounds, count, dtype=torch.float64)
    weights.scatter_add_(1, picks, torch.full(picks.shape, 1.0 / count, dtype=torch.float64))
    return weights


def interval(value: float, resampled: Tensor, least: float = 0.0) -> Estimate:
    """Center the spread of resampled scores on the score itself; no end is below `least`.

    Resampling adds scatter to a squared error, so resampled scores lie above the score. Their mean is shifted back to it.
    """
    tail = 0.5 * (1.0 - LEVEL)
    ends = torch.quantile(resampled, torch.tensor([tail, 1.0 - tail], dtype=torch.float64)) - resampled.mean()
    low, high = (value + ends).clamp(min=least).tolist()
    return Estimate(value, min(low, value), max(high, value))  # rounding must not put the score outside


def normalized(weights: Tensor | None, count: int) -> Tensor:
    """Return weights (count,) that sum to one, float64; equal ones for None."""
    if weights is None:
        return torch.full((count,), 1.0 / count, dtype=torch.float64)
    weights = weights.double()
    if weights.shape != (count,) or not bool((weights >= 0).all()) or not 0.0 < float(weights.sum()) < float("inf"):
        raise ShapeError(
            f"weights expects one finite number >= 0 per sample, ({count},), not all zero; got {tuple(weights.shape)} from "
            f"{float(weights.min()):g} to {float(weights.max()):g}. Leave them out for equal weights."
        )
    return weights / weights.sum()


def effective_count(weights: Tensor) -> Tensor:
    """Return 1/Σw² of normalized weights (..., b): how many equally weighted samples they are worth."""
    return 1.0 / weights.square().sum(-1)


def resampled_weights(weights: Tensor, seed: int, rounds: int) -> Tensor:
    """Return bootstrap resamplings of weighted samples (rounds, b); each row sums to one.

    A round that picked only samples without weight is left as it was drawn.
    """
    drawn = resample(len(weights), seed, rounds)
    found = drawn * weights
    total = found.sum(1, keepdim=True)
    return torch.where(total > 0, found / total, drawn)


_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class Distances:
    """Distances of samples: to true fields on average (b,), and to each other (b, b)."""

    cross: Tensor
    within: Tensor

    def to_truth(self, weights: Tensor) -> Tensor:
        """Return E‖X − Y‖ for normalized weights (..., b)."""
        return weights @ self.cross

    def to_each_other(self, weights: Tensor) -> Tensor:
        """Return E‖X − X′‖ over different samples: Σ w_i w_j D_ij / (1 − Σw²), without bias for independent samples."""
        pairs = ((weights @ self.within) * weights).sum(-1)
        # One sample of all the weight has no pair: its distance to itself is zero.
        return pairs / (1.0 - 1.0 / effective_count(weights)).clamp(min=_TINY)


def checked(what: str, fields: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Return samples and true fields as (b, n), float64; both are at least 2, of one shape."""
    if fields.shape[1:] != truth.shape[1:] or min(len(fields), len(truth)) < 2:
        raise ShapeError(
            f"{what}(fields, truth) expects at least 2 fields of one shape on either side; got {tuple(fields.shape)} and "
            f"{tuple(truth.shape)}. Simulate the truth on the grid of the samples."
        )
    return fields.double().flatten(1), truth.double().flatten(1)
