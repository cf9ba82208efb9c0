"""Scores of weighted fields against a known distribution: moments, a histogram on a curve, weights of modes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm_bench.suites.exact.case import Scores

RATIO = "ratio"  # of spreads: one, not zero, is right
_LIVE = 1e-3  # points whose true spread is below this share of the largest are fixed by the laws


@dataclass(frozen=True, eq=False)
class ExactMoments:
    """The error of the mean in units of the true spread, the relative error of the spread, and the ratio of spreads.

    Errors are root mean squares over the points that the laws leave free.
    """

    mean: Tensor  # (n,)
    spread: Tensor  # (n,)

    @classmethod
    def of(cls, fields: Tensor, weights: Tensor | None = None) -> ExactMoments:
        """Compute both from fields (b, n)."""
        share = torch.ones(len(fields), dtype=torch.float64) if weights is None else weights
        share = share / share.sum()
        mean = share @ fields
        # Unbiased for equal weights.
        variance = share @ (fields - mean).square() / (1.0 - share.square().sum())
        return cls(mean, variance.sqrt())

    def __call__(self, u: Tensor, weights: Tensor) -> Scores:
        """Score fields (b, *shape)."""
        found, live = ExactMoments.of(u.double().flatten(1), weights), self.spread > _LIVE * self.spread.max()
        off = ((found.mean - self.mean) / self.spread)[live]
        ratio = (found.spread / self.spread)[live]
        return {
            "mean": float(off.square().mean().sqrt()),
            "spread": float((ratio - 1.0).square().mean().sqrt()),
            RATIO: float(ratio.mean()),
        }


@dataclass(frozen=True, eq=False)
class Shares:
    """Total variation between the shares of classes, such as bins of a histogram or modes, and the true shares (k,)."""

    name: str
    true: Tensor
    label: Callable[[Tensor], Tensor]  # fields (b, n) → classes (b,)

    def __call__(self, u: Tensor, weights: Tensor) -> Scores:
        """Score fields (b, *shape)."""
        found = torch.zeros_like(self.true).index_add(0, self.label(u.double().flatten(1)), weights.double())
        return {self.name: float(0.5 * (found / found.sum() - self.true).abs().sum())}
