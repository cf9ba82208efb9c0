"""Scores of samples, from the fields, the laws and true fields alone: violations, constraint errors, moments, texture.

No projector is asked, so no method judges its own results. All values are float64.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.laws import Bounds, Equality, Inequality, Law, Oracle, Params
from snapfm.metrics.bootstrap import ROUNDS, Estimate, interval, resample
from snapfm.metrics.moments import MomentErrors, moment_errors
from snapfm.metrics.texture import Texture, texture


def residuals(law: Law, u: Tensor, params: Params) -> Tensor:
    """Return the violation of each row of a law by fields (b, *shape): (b, rows), float64, never negative.

    Params have a leading axis of b, or of 1 where all samples share them.
    """
    return torch.stack([_one(law, field, one_of(params, i)) for i, field in enumerate(u.double())])


def one_of(params: Params, i: int) -> Params:
    """Return the params of sample i, in float64."""
    return {name: value.double()[i if len(value) > 1 else 0] for name, value in params.items()}


def _one(law: Law, field: Tensor, params: Params) -> Tensor:
    if isinstance(law, Bounds):
        excess = torch.zeros_like(field)
        if law.lower is not None:
            excess = torch.maximum(excess, law.lower - field)
        if law.upper is not None:
            excess = torch.maximum(excess, field - law.upper)
        return excess.flatten()
    assert isinstance(law, (Equality, Inequality, Oracle))  # Bounds alone have no rows
    signed = law.residual(field, params).flatten()
    if isinstance(law, Oracle):
        equality = torch.from_numpy(law.split(law.values(field, params).shape).equality)
        return torch.where(equality, signed.abs(), signed.clamp(min=0.0))
    return signed.clamp(min=0.0) if isinstance(law, Inequality) else signed.abs()


@dataclass(frozen=True)
class ConstraintError:
    """How far a batch is from one law, in the law's own units; positive parts for inequalities (math.md, Metric)."""

    law: str
    rows: int
    error: Estimate  # the published metric: mean over samples of ‖R‖₂
    largest: float  # ‖R‖₂ of the worst sample
    worst_row: float  # the largest single row of any sample


def constraint_errors(
    laws: Iterable[Law], u: Tensor, params: Params, seed: int = 0, rounds: int = ROUNDS
) -> tuple[ConstraintError, ...]:
    """Measure fields (b, *shape) with the drawn params, never with a target read from the fields."""
    weights = resample(len(u), seed, rounds)
    return tuple(_error(law, residuals(law, u, params), weights) for law in laws)


def _error(law: Law, rows: Tensor, weights: Tensor) -> ConstraintError:
    norms = rows.norm(dim=1)
    return ConstraintError(
        law=law.name,
        rows=rows.shape[1],
        error=interval(float(norms.mean()), weights @ norms),
        largest=float(norms.max()),
        worst_row=float(rows.max()) if rows.numel() else 0.0,
    )


@dataclass(frozen=True)
class Scores:
    """All scores of a batch: whether it is feasible, has the right statistics, and is not noise."""

    laws: tuple[ConstraintError, ...]
    moments: MomentErrors
    texture: Texture


def scores(laws: Iterable[Law], u: Tensor, params: Params, truth: Tensor, seed: int = 0) -> Scores:
    """Judge samples (b, *shape) by their laws and by true fields simulated under the same conditions."""
    return Scores(constraint_errors(laws, u, params, seed), moment_errors(u, truth, seed), texture(u, truth))
