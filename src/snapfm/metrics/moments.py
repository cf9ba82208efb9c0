"""Per-point mean and spread of fields against those of true fields (math.md, eq. mmse and eq. smse), and roughness.

Imports errors and the bootstrap only: the flow model is scored with this, and knows nothing of laws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import ShapeError
from snapfm.metrics.bootstrap import ROUNDS, Estimate, interval, resample

_ROUNDS_AT_ONCE = 50  # fields in memory beside the samples: 4 MB for 100 × 100


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
    """Both scores with intervals over the samples; the true fields are taken as they are, so let them be many."""

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
    """Root mean square of second differences along every axis of the grid: leftover noise shows here first."""
    return math.sqrt(sum(float(fields.double().diff(n=2, dim=dim).square().mean()) for dim in range(1, fields.ndim)))
