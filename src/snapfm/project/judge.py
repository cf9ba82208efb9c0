"""One float64 judge for all methods: how far each law is broken, and what status that deserves."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import Status
from snapfm.structure import Structure

# Nearness asked of a converged sample, absolute: fields are of order one, and white noise that happens to obey its laws
# misses this by orders of magnitude.
STATIONARITY = 1e-6


@dataclass(frozen=True)
class Judgement:
    """Violation per sample, in total and by law, in the laws' own units."""

    violation: Tensor  # (b,)
    by_law: dict[str, Tensor]  # (b,) each


def judge(structure: Structure, residual: Tensor) -> Judgement:
    """Measure the residual (b, m) of all rows: |h| for equalities, max(g, 0) for inequalities; NaN stays NaN."""
    by_law: dict[str, Tensor] = {}
    for plan, rows in zip(structure.plans, structure.slices().values()):
        part = residual[:, rows]
        size = part.abs() if plan.kind == "equality" else part.clamp(min=0.0)
        by_law[plan.name] = size.amax(dim=1) if part.shape[1] else residual.new_zeros(len(residual))
    sizes = [residual.new_zeros(len(residual)), *by_law.values()]
    violation = torch.stack(sizes).amax(dim=0)
    return Judgement(violation, by_law)


def verdict(
    structure: Structure, residual: Tensor, judged: Judgement, stationarity: Tensor, tolerance: float
) -> Tensor:
    """Give each sample its status (b,) int8; only dropped rows being broken means the laws contradict each other."""
    status = torch.full((len(residual),), int(Status.STALLED), dtype=torch.int8)
    dropped = torch.from_numpy(structure.presolve.dropped)
    if len(dropped):
        others = residual.clone()
        others[:, dropped] = 0.0
        consistent = judge(structure, others).violation <= tolerance
        status[consistent & (judged.violation > tolerance)] = int(Status.INFEASIBLE)
    status[(judged.violation <= tolerance) & (stationarity <= STATIONARITY)] = int(Status.CONVERGED)
    finite = torch.isfinite(judged.violation) & torch.isfinite(stationarity)
    status[~finite] = int(Status.NONFINITE)
    return status
