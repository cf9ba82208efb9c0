"""One float64 judge for all methods: how far each law is broken, and what status that deserves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from snapfm.errors import Status
from snapfm.laws import Params
from snapfm.project.base import Solution
from snapfm.project.limits import Limits
from snapfm.structure import Structure

# Nearness asked of a converged sample whose field is of order one: white noise that happens to obey its laws misses this by
# orders of magnitude. Of a smaller field it is asked relative to its size, of one beyond a thousand a billionth of its size.
STATIONARITY = 1e-6
_LARGE = 1e-9
_STEEP = 1e6  # multipliers below this cannot spoil a stationarity by rounding


@dataclass(frozen=True)
class Judgement:
    """Violation per sample, in total and by law, in the laws' own units."""

    violation: Tensor  # (b,)
    by_law: dict[str, Tensor]  # (b,) each


def judge(structure: Structure, residual: Tensor, limits: Limits, u: Tensor) -> Judgement:
    """Measure the residual (b, m) of all rows and the excess of u (b, n) over its limits; NaN stays NaN."""
    by_law = _by_law(structure, residual)
    if limits.names:
        lower, upper = torch.from_numpy(limits.lower), torch.from_numpy(limits.upper)
        excess = torch.maximum(u - upper, lower - u).clamp(min=0.0)
        largest = excess.amax(dim=1) if excess.shape[1] else residual.new_zeros(len(residual))
        by_law |= dict.fromkeys(limits.names, largest)
    return Judgement(_largest(by_law, residual), by_law)


def nearness(u_hat: Tensor) -> Tensor:
    """Say which stationarity is small enough, given û (b, *shape): (b,)."""
    flat = u_hat.reshape(len(u_hat), u_hat.shape[1:].numel())
    size = flat.abs().amax(dim=1) if flat.shape[1] else flat.new_ones(len(flat))
    return torch.maximum(STATIONARITY * torch.where(size > 0.0, size, 1.0).clamp(max=1.0), _LARGE * size)


def verdict(structure: Structure, solved: Solution, judged: Judgement, tolerance: float, u_hat: Tensor) -> Tensor:
    """Give each sample its status (b,) int8; only dropped rows being broken, by more than rounding, means a contradiction.

    What is known to be a saddle has not arrived, however well it obeys.
    """
    residual, stationarity = solved.residual, solved.stationarity
    arrived = (judged.violation <= tolerance) & (stationarity <= nearness(u_hat))
    if solved.second_order is not None:
        arrived &= solved.second_order != 0
    if bool(arrived.all()):
        return torch.full((len(residual),), int(Status.CONVERGED), dtype=torch.int8)
    status = torch.full((len(residual),), int(Status.STALLED), dtype=torch.int8)
    if solved.status is not None:  # the method knows why it stopped; whether it arrived is decided here
        failed = solved.status != Status.CONVERGED
        status[failed] = solved.status[failed]
    dropped = torch.from_numpy(structure.presolve.dropped)
    if len(dropped) and bool((judged.violation > tolerance).any()):
        others = residual.clone()
        others[:, dropped] = 0.0
        consistent = _largest(_by_law(structure, others), others) <= tolerance
        beyond = (residual[:, dropped].abs() > _rounding(structure, solved.u)).any(dim=1)
        status[consistent & beyond & (judged.violation > tolerance)] = int(Status.INFEASIBLE)
    status[arrived] = int(Status.CONVERGED)
    finite = torch.isfinite(judged.violation) & torch.isfinite(stationarity)
    status[~finite] = int(Status.NONFINITE)
    return status


def unresolved(structure: Structure, solved: Solution, params: Params, u_hat: Tensor) -> Tensor:
    """Say which samples have multipliers so large that rounding of Jᵀλ hides whether they are nearest: (b,) bool."""
    out = torch.zeros(len(u_hat), dtype=torch.bool)
    if solved.multipliers.shape[1] == 0:
        return out
    large = torch.nonzero(solved.multipliers.abs().amax(dim=1) > _STEEP).flatten()
    if len(large):
        some = {name: value[large] for name, value in params.items()}
        field = solved.u[large].reshape(len(large), *structure.shape)
        slopes = structure.jacobian(field, some).abs().numpy()
        for i, values, weight in zip(large.tolist(), slopes, solved.multipliers[large].abs().numpy()):
            pulls = structure.pattern.csr(values).T @ weight
            out[i] = float(np.finfo(float).eps * pulls.max(initial=0.0)) > float(nearness(u_hat[i : i + 1]))
    return out


def _by_law(structure: Structure, residual: Tensor) -> dict[str, Tensor]:
    """|h| for equalities, max(g, 0) for inequalities, the largest of each law."""
    by_law: dict[str, Tensor] = {}
    for plan, rows in zip(structure.plans, structure.slices().values()):
        part = residual[:, rows]
        size = part.abs() if plan.kind == "equality" else part.clamp(min=0.0)
        by_law[plan.name] = size.amax(dim=1) if part.shape[1] else residual.new_zeros(len(residual))
    return by_law


def _rounding(structure: Structure, u: Tensor) -> Tensor:
    """Bound what rounding leaves of dropped rows that are consistent (b, dropped): terms × eps × Σ|a||u|."""
    matrix = abs(structure.pattern.csr(structure.constants)[structure.presolve.dropped])
    size = torch.from_numpy((matrix @ u.abs().numpy().T).T)
    return structure.unknowns * torch.finfo(u.dtype).eps * size


def _largest(by_law: dict[str, Tensor], residual: Tensor) -> Tensor:
    return torch.stack([residual.new_zeros(len(residual)), *by_law.values()]).amax(dim=0)
