"""Scores of a batch: errors of mean and spread, constraint error of each law, texture, all from the fields alone, in float64.

Intervals are bootstrapped over samples with as many rounds as the suite asks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from snapfm.laws import Law, Params
from snapfm.metrics.bootstrap import Estimate, interval, resample
from snapfm.metrics.moments import Moments, mmse, moments, smse
from snapfm.metrics.residuals import residuals
from snapfm.metrics.texture import texture
from snapfm.quality.record import Interval, LawScore, TextureScore, finite

_ROUNDS_AT_ONCE = 50  # fields in memory beside the samples
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


def judge(laws: Iterable[Law], u: Tensor, params: Params, truth: Truth, rounds: int, seed: int = 0) -> dict[str, Any]:
    """Score fields (b, *shape) by their laws and against true fields; the keys are those of Cell."""
    weights = resample(len(u), seed, rounds)
    whole = torch.isfinite(u.flatten(1)).all(1)
    found = _moment_scores(u.double(), truth.moments, weights) if bool(whole.all()) else {}
    return {
        **found,
        "laws": tuple(_law_score(law, residuals(law, u, params), weights) for law in laws),
        "finite": int(whole.sum()),
        "texture": _texture_score(u, truth.examples),
        "smallest": finite(float(u.min())),
        "largest": finite(float(u.max())),
    }


def _moment_scores(u: Tensor, true: Moments, weights: Tensor) -> dict[str, Interval]:
    found = moments(u)
    centered = (u - found.mean).flatten(1)  # so that the difference of squares below loses no digits
    scores = []
    for some in torch.split(weights, _ROUNDS_AT_ONCE):
        shift = some @ centered
        variance = (some @ centered.square() - shift.square()).clamp(min=0.0) * (len(u) / (len(u) - 1))
        for move, square in zip(shift, variance):
            drawn = Moments(found.mean + move.view_as(found.mean), square.sqrt().view_as(found.mean))
            scores.append((mmse(drawn, true), smse(drawn, true)))
    means, spreads = torch.tensor(scores, dtype=torch.float64).T
    return {
        "mmse": _interval(interval(mmse(found, true), means)),
        "smse": _interval(interval(smse(found, true), spreads)),
    }


def _law_score(law: Law, rows: Tensor, weights: Tensor) -> LawScore:
    norms = rows.norm(dim=1)
    mean = float(norms.mean())
    error = Interval(None, None, None) if finite(mean) is None else _interval(interval(mean, weights @ norms))
    worst = float(rows.max()) if rows.numel() else 0.0
    return LawScore(law.name, rows.shape[1], error, finite(float(norms.max())), finite(worst))


def _texture_score(u: Tensor, examples: Tensor) -> TextureScore:
    found = texture(u, examples)

    def numbers(values: Tensor) -> tuple[float | None, ...]:
        return tuple(finite(value) for value in values.tolist())

    return TextureScore(
        noise=int(found.noise.sum()),
        correlation=numbers(found.correlation.median(0).values),
        true_correlation=numbers(found.true_correlation),
        spectrum_distance=numbers(found.spectrum_distance),
        alike=found.alike,
    )


def _interval(found: Estimate) -> Interval:
    return Interval(finite(found.value), finite(found.low), finite(found.high))
