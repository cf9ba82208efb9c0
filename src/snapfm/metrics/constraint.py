"""The constraint error of each law: the mean over samples of the 2-norm of its rows (math.md, Metric)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from snapfm.laws import Law, Params
from snapfm.metrics.bootstrap import ROUNDS, Estimate, interval, resample
from snapfm.metrics.residuals import residuals


@dataclass(frozen=True)
class ConstraintError:
    """How far a batch is from one law, in the law's own units; positive parts for inequalities."""

    law: str
    rows: int
    error: Estimate  # the published metric: mean over samples of ‖R‖₂
    largest: float  # ‖R‖₂ of the worst sample
    worst_row: float  # the largest single row of any sample


def constraint_errors(
    laws: Iterable[Law], u: Tensor, params: Params, seed: int = 0, rounds: int = ROUNDS
) -> tuple[ConstraintError, ...]:
    """Measure fields (b, *shape) in float64 with the drawn params, never with a target read from the fields."""
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
