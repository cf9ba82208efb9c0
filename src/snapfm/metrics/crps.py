"""Continuous ranked probability score at every point, against true fields (math.md, eq. crps).

It is least for the true distribution at every point, where it is half the mean distance of two true fields, not zero.
The estimator is fair: for independent samples its mean does not depend on how many there are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from snapfm.metrics.bootstrap import ROUNDS, Distances, Estimate, checked, interval, normalized, resampled_weights

_NUMBERS_AT_ONCE = 2**21  # of sorted values: 16 MB an array
_RESAMPLED_POINTS = 1024  # the interval is that of so many points, evenly spread: it needs the distances of all pairs


def crps(fields: Tensor, truth: Tensor, weights: Tensor | None = None, seed: int = 0, rounds: int = ROUNDS) -> Estimate:
    """Return the fair CRPS of samples (b, *shape) against true fields, averaged over points, by sorting: O(b log b) per point.

    `weights` (b,) are those of the samples, equal ones for None. The interval is over the samples.
    """
    u, y = checked("crps", fields, truth)
    w = normalized(weights, len(u))
    pairs = 0.0
    for part in _points(u, y):
        x, order = u[:, part].T.contiguous().sort(1)
        v = w[order]
        below = v.cumsum(1) - v
        # Σ_{i<j} w_i w_j (x_j − x_i): a value counts for all below it and against all above it.
        pairs += float((v * x * (2.0 * below + v - 1.0)).sum())
    fair = 1.0 - float(w.square().sum())
    own = 2.0 * pairs / u.shape[1] / fair if fair > 0.0 else 0.0
    value = float(w @ _to_truth(u, y)) - 0.5 * own

    some = slice(None, None, -(-u.shape[1] // _RESAMPLED_POINTS))
    u, y = u[:, some].contiguous(), y[:, some].contiguous()
    distances = Distances(_to_truth(u, y), torch.cdist(u, u, p=1.0) / u.shape[1])
    drawn = resampled_weights(w, seed, rounds)
    return interval(value, distances.to_truth(drawn) - 0.5 * distances.to_each_other(drawn))


def _to_truth(u: Tensor, y: Tensor) -> Tensor:
    """Return the mean distance of each sample to all true values, averaged over points: (b,)."""
    total = u.new_zeros(len(u))
    for part in _points(u, y):
        true = y[:, part].T.contiguous().sort(1).values
        ours = u[:, part].T.contiguous()
        sums = torch.nn.functional.pad(true.cumsum(1), (1, 0))
        place = torch.searchsorted(true, ours)  # how many true values are below
        # Σ|x − y| = x(2k − m) − 2·(sum of the k below) + (sum of all)
        below = sums.gather(1, place)
        total += (ours * (2.0 * place - len(y)) - 2.0 * below + sums[:, -1:]).sum(0) / len(y)
    return total / u.shape[1]


def _points(u: Tensor, y: Tensor) -> list[slice]:
    """Cut the points into pieces that bound the memory."""
    step = max(1, _NUMBERS_AT_ONCE // max(len(u), len(y)))
    return [slice(start, start + step) for start in range(0, u.shape[1], step)]
