"""Mean and spread of fields at each point against those of true fields (math.md, eq. mmse and eq. smse), and roughness.

Imports errors and the bootstrap only: flow models are scored with this module, and the flow knows nothing of laws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import ShapeError
from snapfm.metrics.bootstrap import (
    ROUNDS,
    Estimate,
    effective_count,
    interval,
    normalized,
    resample,
    resampled_weights,
)

_TINY = torch.finfo(torch.float64).tiny  # one sample of all the weight has no spread
_ROUNDS_AT_ONCE = 50  # fields in memory besides the samples: 4 MB for 100 × 100


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of a batch at every point of the grid, float64."""

    mean: Tensor
    spread: Tensor


def moments(fields: Tensor, weights: Tensor | None = None) -> Moments:
    """Take mean and standard deviation over the samples of (b, *shape), b at least 2; weights (b,) are equal for None."""
    if len(fields) < 2:
        raise ShapeError(f"moments(fields) expects at least 2 samples; got {len(fields)}. One has no spread.")
    fields = fields.double()
    if weights is None:
        return Moments(fields.mean(0), fields.std(0))
    w = normalized(weights, len(fields))
    mean = torch.tensordot(w, fields, 1)
    biased = torch.tensordot(w, (fields - mean).square(), 1)
    return Moments(mean, (biased * _without_bias(w)).sqrt())


def _without_bias(weights: Tensor) -> Tensor:
    """Return the factor 1/(1 − Σw²) of a variance around the samples' own mean; b/(b − 1) for equal weights."""
    return 1.0 / (1.0 - 1.0 / effective_count(weights)).clamp(min=_TINY)


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


def moment_errors(
    fields: Tensor, truth: Tensor | Moments, seed: int = 0, rounds: int = ROUNDS, weights: Tensor | None = None
) -> MomentErrors:
    """Score samples (b, *shape) against true fields under the same conditions, or against their moments."""
    shape = truth.mean.shape if isinstance(truth, Moments) else truth.shape[1:]
    if fields.shape[1:] != shape:
        raise ShapeError(
            f"moment_errors(fields, truth) expects fields of one shape; got {tuple(fields.shape[1:])} and "
            f"{tuple(shape)}. Simulate the truth on the grid of the samples."
        )
    found, true = moments(fields, weights), truth if isinstance(truth, Moments) else moments(truth)
    count = len(fields)
    # Centered, so that the difference of squares below loses no digits.
    centered = (fields.double() - found.mean).flatten(1)
    offset, spread = (found.mean - true.mean).flatten(), true.spread.flatten()
    scores = []
    equal = weights is None
    drawn = resample(count, seed, rounds) if equal else resampled_weights(normalized(weights, count), seed, rounds)
    # A resampling of b equal weights is b samples again, some of them twice.
    factor = torch.full((rounds,), count / (count - 1), dtype=torch.float64) if equal else _without_bias(drawn)
    for part, scale in zip(torch.split(drawn, _ROUNDS_AT_ONCE), torch.split(factor, _ROUNDS_AT_ONCE)):
        shift = part @ centered
        variance = (part @ centered.square() - shift.square()).clamp(min=0.0) * scale[:, None]
        errors = (offset + shift).square().mean(1), (variance.sqrt() - spread).square().mean(1)
        scores.append(torch.stack(errors))
    means, spreads = torch.cat(scores, dim=1)
    return MomentErrors(interval(mmse(found, true), means), interval(smse(found, true), spreads))


def roughness(fields: Tensor) -> float:
    """Root mean square of second differences along every axis of the grid; it detects leftover noise first."""
    return math.sqrt(sum(float(fields.double().diff(n=2, dim=dim).square().mean()) for dim in range(1, fields.ndim)))
