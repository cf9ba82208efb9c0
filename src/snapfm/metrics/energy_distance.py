"""Energy distance of whole fields: 2E‖X − Y‖ − E‖X − X′‖ − E‖Y − Y′‖ (math.md, eq. energy-distance).

Zero if and only if samples and true fields have the same joint distribution, correlations between points included. All three
terms are U-statistics over different fields, so the score of true fields is zero on average and may be negative.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.metrics.bootstrap import ROUNDS, Distances, Estimate, checked, interval, normalized, resampled_weights

_DISTANCES_AT_ONCE = 2**20  # 8 MB of distances besides the fields


@dataclass(frozen=True)
class TrueFields:
    """True fields (m, *shape), centered, with the mean distance of two of them: computed once for many batches."""

    centered: Tensor
    center: Tensor
    spread: float  # E‖Y − Y′‖ over different fields

    @classmethod
    def of(cls, truth: Tensor) -> TrueFields:
        """Prepare true fields (m, *shape), m at least 2."""
        center = truth.double().mean(0)
        centered = truth.double() - center  # squared distances by products then lose no digits to a common offset
        rows, _ = checked("energy_distance", centered, centered)
        pairs = sum(float(part.sum()) for part in _distances(rows, rows))
        return cls(centered, center, pairs / (len(rows) * (len(rows) - 1)))


def energy_distance(
    fields: Tensor, truth: Tensor | TrueFields, weights: Tensor | None = None, seed: int = 0, rounds: int = ROUNDS
) -> Estimate:
    """Score samples (b, *shape) against true fields, with a bootstrap interval over the samples.

    The norm is the root mean square over points, so the score is in the units of the field on any grid.
    """
    true = truth if isinstance(truth, TrueFields) else TrueFields.of(truth)
    u, y = checked("energy_distance", fields, true.centered)
    u = u - true.center.flatten()
    cross = torch.cat([part.mean(1) for part in _distances(u, y)])
    within = torch.cat(list(_distances(u, u)))
    distances, w = Distances(cross, within.fill_diagonal_(0.0)), normalized(weights, len(u))

    def score(of: Tensor) -> Tensor:
        return 2.0 * distances.to_truth(of) - distances.to_each_other(of) - true.spread

    return interval(float(score(w)), score(resampled_weights(w, seed, rounds)), least=-math.inf)


def _distances(u: Tensor, y: Tensor) -> Iterator[Tensor]:
    """Yield root mean square distances between rows, in pieces of the rows of u: (b, m) together.

    By a matrix product: rows that are equal are 1e-8 of their norm apart, not zero.
    """
    step = max(1, _DISTANCES_AT_ONCE // len(y))
    sizes = y.square().sum(1)
    for part in torch.split(u, step):
        squares = part.square().sum(1, keepdim=True) + sizes - 2.0 * part @ y.T
        yield (squares.clamp(min=0.0) / u.shape[1]).sqrt()
