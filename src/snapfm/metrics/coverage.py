"""Coverage: how often a true value lies between two ranks of the samples at its point (math.md, eq. coverage).

Between the j-th smallest and the j-th largest of b samples a value of the same distribution lies with probability
(b + 1 − 2j)/(b + 1), exactly. That is what coverage is compared with, not the nominal level.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.metrics.bootstrap import ROUNDS, Estimate, checked, effective_count, interval, normalized, resampled_weights

LEVELS = (0.5, 0.9)  # central intervals
FIXED = 1e-6  # points whose true spread is below this share of the largest are given by a law: nothing to cover
_POINTS_AT_ONCE = 256
_RESAMPLED_POINTS = 256  # the interval is that of so many points, evenly spread: each resampling ranks them all again
_NUMBERS_AT_ONCE = 2**22  # sums of weights in memory at once: 32 MB


@dataclass(frozen=True)
class Coverage:
    """The share of true values inside a central interval, and the share expected of the right distribution."""

    level: float
    expected: float
    found: Estimate


def coverage(
    fields: Tensor,
    truth: Tensor,
    weights: Tensor | None = None,
    seed: int = 0,
    rounds: int = ROUNDS,
    levels: tuple[float, ...] = LEVELS,
) -> tuple[Coverage, ...]:
    """Measure central intervals of samples (b, *shape) on true fields, averaged over the points that vary.

    With weights (b,) ranks are sums of weights, and `expected` is that of as many samples as the weights are worth.
    """
    u, y = checked("coverage", fields, truth)
    spread = y.std(0)
    varies = (spread > FIXED * spread.max()).nonzero()[:, 0]
    if not len(varies):
        return ()
    w = normalized(weights, len(u))
    tails, expected = zip(*(_tail(level, float(effective_count(w))) for level in levels))
    value = torch.zeros(len(levels), dtype=torch.float64)
    for part in torch.split(varies, _POINTS_AT_ONCE):
        ranked = _Ranked.of(u[:, part], y[:, part])
        value += torch.stack([ranked.covered(w[None], tail).sum() for tail in tails])
    value /= len(varies)
    some = varies[:: -(-len(varies) // _RESAMPLED_POINTS)]
    ranked = _Ranked.of(u[:, some], y[:, some])
    at_once = max(1, _NUMBERS_AT_ONCE // ranked.order.numel())
    drawn = torch.split(resampled_weights(w, seed, rounds), at_once)
    again = [torch.cat([ranked.covered(part, tail).mean(0) for part in drawn]) for tail in tails]
    return tuple(
        Coverage(level, exact, interval(float(found), scores))
        for level, exact, found, scores in zip(levels, expected, value, again)
    )


def _tail(level: float, count: float) -> tuple[float, float]:
    """Return the weight below the lower end of an interval, and the interval's exact probability.

    The rank j is the nearest to the nominal tail, and at least the outermost sample.
    """
    rank = max(1.0, round((count + 1.0) * 0.5 * (1.0 - level)))
    return rank / count, max(0.0, 1.0 - 2.0 * rank / (count + 1.0))


@dataclass(frozen=True)
class _Ranked:
    """Samples in order at every point (points, b), with the share of true values below and up to each."""

    order: Tensor
    below: Tensor
    upto: Tensor

    @classmethod
    def of(cls, u: Tensor, y: Tensor) -> _Ranked:
        x, order = u.T.contiguous().sort(1)
        true = y.T.contiguous().sort(1).values
        count = true.shape[1]
        return cls(
            order,
            torch.searchsorted(true, x).double() / count,
            torch.searchsorted(true, x, right=True).double() / count,
        )

    def covered(self, weights: Tensor, tail: float) -> Tensor:
        """Return the share of true values between the samples at both tails, for weights (rounds, b): (points, rounds).

        The lower end is the first sample up to which the weights sum to the tail, the upper end its mirror image.
        """
        sums = weights[:, self.order].cumsum(2).movedim(1, 0).contiguous()  # (points, rounds, b)
        # Rounding of the sums must not move an end by one sample.
        slack = 1e-9 / weights.shape[1]
        wanted = sums.new_full((*sums.shape[:2], 1), tail - slack)
        first = torch.searchsorted(sums, wanted)[..., 0].clamp(max=weights.shape[1] - 1)
        # The last sample from which on the weights sum to the tail: the sums before it are at most 1 − tail.
        last = torch.searchsorted(sums, 1.0 - wanted, right=True)[..., 0].clamp(max=weights.shape[1] - 1)
        return (self.upto.gather(1, last) - self.below.gather(1, first)).clamp(min=0.0)
