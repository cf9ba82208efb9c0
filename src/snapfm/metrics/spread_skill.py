"""Spread–skill ratio: the spread of samples over the error of their mean, which is 1 for the right distribution.

Below 1 samples are too sure of themselves, above 1 too wide (math.md, eq. spread-skill).
"""

from __future__ import annotations

import torch
from torch import Tensor

from snapfm.errors import ShapeError
from snapfm.metrics.bootstrap import ROUNDS, Estimate, effective_count, interval, normalized, resampled_weights
from snapfm.metrics.moments import Moments, moments

_ROUNDS_AT_ONCE = 50  # fields in memory besides the samples


def spread_skill(
    fields: Tensor,
    truth: Tensor | tuple[Moments, int],
    weights: Tensor | None = None,
    seed: int = 0,
    rounds: int = ROUNDS,
) -> Estimate:
    """Compare samples (b, *shape) with true fields, or with their moments and number; the interval is over the samples.

    The mean of b samples is itself off by a b-th of their variance, for which (b + 1)/b corrects.
    """
    true, count = truth if isinstance(truth, tuple) else (moments(truth), len(truth))
    if fields.shape[1:] != true.mean.shape or len(fields) < 2:
        raise ShapeError(
            f"spread_skill(fields, truth) expects at least 2 fields of the truth's shape {tuple(true.mean.shape)}; got "
            f"{tuple(fields.shape)}. Simulate the truth on the grid of the samples."
        )
    w = normalized(weights, len(fields))
    u = (fields.double() - true.mean).flatten(1)  # centered, so that differences of squares lose no digits
    noise = float(true.spread.square().mean()) * (count - 1) / count  # mean of (y − mean of y)² over the true fields

    def ratio(of: Tensor) -> Tensor:
        mean = of @ u
        effective = effective_count(of)
        variance = (of @ u.square() - mean.square()).mean(1).clamp(min=0.0) / (1.0 - 1.0 / effective).clamp(min=1e-300)
        skill = mean.square().mean(1) + noise
        return ((effective + 1.0) / effective * variance / skill).sqrt()

    found = [ratio(part) for part in torch.split(resampled_weights(w, seed, rounds), _ROUNDS_AT_ONCE)]
    return interval(float(ratio(w[None])), torch.cat(found))
