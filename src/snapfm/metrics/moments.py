"""Mean and spread of fields at each point against those of true fields (math.md, eq. mmse and eq. smse), and roughness.

Also holds the bootstrap intervals of all scores: how far a score would move with other samples. Imports errors only: flow
models are scored with this module, and the flow knows nothing of laws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import ShapeError

LEVEL = 0.95  # share of the resampled scores that an interval holds
ROUNDS = 1000  # resamplings: the ends of a 95 % interval are then the 25th score from either side
_ROUNDS_AT_ONCE = 50  # fields in memory besides the samples: 4 MB for 100 × 100


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


def interval(value: float, resampled: Tensor) -> Estimate:
    """Center the spread of resampled scores on the score itself; scores are never negative.

    Resampling adds scatter to a squared error, so resampled scores lie above the score. Their mean is shifted back to it.
    """
    tail = 0.5 * (1.0 - LEVEL)
    ends = torch.quantile(resampled, torch.tensor([tail, 1.0 - tail], dtype=torch.float64)) - resampled.mean()
    low, high = (value + ends).clamp(min=0.0).tolist()
    return Estimate(value, min(low, value), max(high, value))  # rounding must not put the score outside


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of a batch at every point of the grid, float64."""

    mean: Tensor
    spread: Tensor


def moments(fields: Tensor) -> Moments:
    """Take mean and standard deviation over the samples of (b, *shape); b is at least 2."""
    if len(fields) < 2:
        raise ShapeError(f"moments(fields) expects at least 2 samples; got {len(fields)}. One has no spread.")
    fields = fields.double()
    return Moments(fields.mean(0), fields.std(0))


def mmse(found: Moments, true: Moments) -> float:
    """Mean squared error of the per-point mean (math.md, eq. mmse)."""
    return float((found.mean - true.mean).square().mean())


def smse(found: Moments, true: Moments) -> float:
    """Mean squared error of the per-point standard deviation (math.md, eq. smse)."""
    return float((found.spread - true.spread).square().mean())


@dataclass(frozen=True)
class MomentErrors:
    """Both scores with intervals over the samples; the true fields are not resampled, so use many."""

    mmse: Estimate
    smse: Estimate


def moment_errors(fields: Tensor, truth: Tensor | Moments, seed: int = 0, rounds: int = ROUNDS) -> MomentErrors:
    """Score samples (b, *shape) against true fields under the same conditions, or against their moments."""
    shape = truth.mean.shape if isinstance(truth, Moments) else truth.shape[1:]
    if fields.shape[1:] != shape:
        raise ShapeError(
            f"moment_errors(fields, truth) expects fields of one shape; got {tuple(fields.shape[1:])} and "
            f"{tuple(shape)}. Simulate the truth on the grid of the samples."
        )
    found, true = moments(fields), truth if isinstance(truth, Moments) else moments(truth)
    count = len(fields)
    # Centered, so that the difference of squares below loses no digits.
    centered = (fields.double() - found.mean).flatten(1)
    offset, spread = (found.mean - true.mean).flatten(), true.spread.flatten()
    scores = []
    for weights in torch.split(resample(count, seed, rounds), _ROUNDS_AT_ONCE):
        shift = weights @ centered
        variance = (weights @ centered.square() - shift.square()).clamp(min=0.0) * count / (count - 1)
        errors = (offset + shift).square().mean(1), (variance.sqrt() - spread).square().mean(1)
        scores.append(torch.stack(errors))
    means, spreads = torch.cat(scores, dim=1)
    return MomentErrors(interval(mmse(found, true), means), interval(smse(found, true), spreads))


def roughness(fields: Tensor) -> float:
    """Root mean square of second differences along every axis of the grid; it detects leftover noise first."""
    return math.sqrt(sum(float(fields.double().diff(n=2, dim=dim).square().mean()) for dim in range(1, fields.ndim)))
