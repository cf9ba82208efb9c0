"""Mean distances between samples and true fields: what CRPS and energy distance are made of (math.md, eq. pairs).

A score of both is linear in the weights of the samples but for their own pairs, which are a quadratic form. Its matrix is
computed once, and a bootstrap resampling then costs one product. Imports errors and the bootstrap only.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import ShapeError
from snapfm.metrics.bootstrap import effective_count

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
