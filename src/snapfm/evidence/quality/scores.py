"""Scores of a batch of samples: errors of mean and spread, constraint error of each law, texture, in float64, from fields alone.

The scores are those of metrics, as plain values of a record; intervals take as many rounds as the suite asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from snapfm.evidence.quality.record import Interval, LawScore, TextureScore
from snapfm.evidence.record import finite
from snapfm.laws import Law, Params
from snapfm.metrics.bootstrap import Estimate
from snapfm.metrics.constraint import constraint_errors
from snapfm.metrics.moments import Moments, moment_errors, moments
from snapfm.metrics.texture import texture

_EXAMPLES = 64  # true fields kept for their texture, for which a dozen are enough


@dataclass(frozen=True)
class Truth:
    """What samples are compared with: mean and spread of many true fields, and some of them."""

    moments: Moments
    examples: Tensor
    count: int

    @classmethod
    def of(cls, fields: Tensor) -> Truth:
        """Keep what scores need of true fields (b, *shape)."""
        return cls(moments(fields), fields[:_EXAMPLES].clone(), len(fields))


def score(laws: Sequence[Law], u: Tensor, params: Params, truth: Truth, rounds: int, seed: int = 0) -> dict[str, Any]:
    """Score fields (b, *shape) by their laws and against true fields; the keys are those of Cell."""
    whole = torch.isfinite(u.flatten(1)).all(1)
    found: dict[str, Any] = {}
    if bool(whole.all()):
        errors = moment_errors(u, truth.moments, seed, rounds)
        found = {"mmse": _interval(errors.mmse), "smse": _interval(errors.smse)}
    laws_found = tuple(
        LawScore(one.law, one.rows, _interval(one.error), finite(one.largest), finite(one.worst_row))
        for one in constraint_errors(laws, u, params, seed, rounds)
    )
    return {
        **found,
        "laws": laws_found,
        "finite": int(whole.sum()),
        "texture": _texture(u, truth.examples),
        "smallest": finite(u.min()),
        "largest": finite(u.max()),
    }


def _texture(u: Tensor, examples: Tensor) -> TextureScore:
    found = texture(u, examples)
    axes = (found.correlation.median(0).values, found.true_correlation, found.spectrum_distance)
    median, true, distance = (tuple(finite(value) for value in values.tolist()) for values in axes)
    return TextureScore(int(found.noise.sum()), median, true, distance, found.alike)


def _interval(found: Estimate) -> Interval:
    """Write an estimate; one that is not finite has no interval either."""
    return Interval(finite(found.value), finite(found.low), finite(found.high))
