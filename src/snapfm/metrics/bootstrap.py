"""How far a score would move with other samples: bootstrap intervals, seeded, over samples.

Imports nothing of snapfm.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LEVEL = 0.95  # share of the resampled scores that an interval holds
ROUNDS = 1000  # resamplings: the ends of a 95 % interval are then the 25th score from either side


@dataclass(frozen=True)
class Estimate:
    """A score and its bootstrap interval."""

    value: float
    low: float
    high: float


def resample(count: int, seed: int, rounds: int = ROUNDS) -> Tensor:
    """Give `rounds` resamplings of `count` samples as weights (rounds, count), each row summing to one."""
    picks = torch.randint(count, (rounds, count), generator=torch.Generator().manual_seed(seed))
    weights = torch.zeros(rounds, count, dtype=torch.float64)
    weights.scatter_add_(1, picks, torch.full(picks.shape, 1.0 / count, dtype=torch.float64))
    return weights


def interval(value: float, resampled: Tensor) -> Estimate:
    """Put the spread of resampled scores around the score itself; scores are never negative.

    Resampling adds its own scatter to a squared error, so resampled scores lie above the score: their mean is moved
    back onto it.
    """
    tail = 0.5 * (1.0 - LEVEL)
    ends = torch.quantile(resampled, torch.tensor([tail, 1.0 - tail], dtype=torch.float64)) - resampled.mean()
    low, high = (value + ends).clamp(min=0.0).tolist()
    return Estimate(value, min(low, value), max(high, value))  # rounding must not put the score outside
