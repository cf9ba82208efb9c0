"""A judge from outside for float64 answers: the laws' own residuals and torch's own gradients, nothing of snapfm.structure.

It shares no code with the projector it judges: violation, u − û + Jᵀλ by one reverse pass per law, the signs of inequality
multipliers, and whether a row that is not active carries one. Bounds have no multipliers: what u − û + Jᵀλ leaves is measured
by how far u would move along it within its bounds, which is the whole of it where there are none, and asks no method how
near to a bound is at it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.laws import Bounds, Equality, Law, Params


@dataclass(frozen=True)
class Certificate:
    """Per sample (b,): everything a nearest lawful field has to have small."""

    violation: Tensor
    stationarity: Tensor  # ‖u − clip(u − (u − û + Jᵀλ), lower, upper)‖∞, and the size of wrong-signed λ
    complementarity: Tensor  # largest |λ g| of an inequality


def certificate(
    laws: Sequence[Law], u_hat: Tensor, u: Tensor, multipliers: dict[str, Tensor], params: Params
) -> Certificate:
    """Judge fields (b, *shape) with multipliers (b, rows) by law."""
    found = [
        _sample(
            laws, u_hat[i], u[i], {name: value[i] for name, value in multipliers.items()},
            {name: value[i if len(value) > 1 else 0] for name, value in params.items()},
        )
        for i in range(len(u))
    ]  # fmt: skip
    violation, stationarity, complementarity = torch.tensor(found, dtype=torch.float64).reshape(-1, 3).unbind(1)
    return Certificate(violation, stationarity, complementarity)


def _sample(
    laws: Sequence[Law], u_hat: Tensor, u: Tensor, multipliers: dict[str, Tensor], params: Params
) -> tuple[float, float, float]:
    violation, wrong, complementarity, rest = 0.0, 0.0, 0.0, u - u_hat
    lower, upper = torch.full_like(u, -math.inf), torch.full_like(u, math.inf)
    for law in laws:
        if isinstance(law, Bounds):
            lower = torch.maximum(lower, torch.as_tensor(-math.inf if law.lower is None else law.lower))
            upper = torch.minimum(upper, torch.as_tensor(math.inf if law.upper is None else law.upper))
            continue
        weight = multipliers[law.name]
        field = u.clone().requires_grad_()
        value = law.residual(field, params).reshape(-1)
        if value.requires_grad:
            rest = rest + torch.autograd.grad(value, field, weight)[0]
        value = value.detach()
        if isinstance(law, Equality):
            violation = max(violation, _largest(value.abs()))
        else:
            violation = max(violation, _largest(value.clamp(min=0.0)))
            wrong = max(wrong, _largest((-weight).clamp(min=0.0)))
            complementarity = max(complementarity, _largest((weight * value).abs()))
    violation = max(violation, _largest((u - upper).clamp(min=0.0)), _largest((lower - u).clamp(min=0.0)))
    rest = torch.minimum(torch.maximum(rest, u - upper), u - lower)  # u − clip(u − rest), without its cancellation
    return violation, max(_largest(rest.abs()), wrong), complementarity


def _largest(value: Tensor) -> float:
    """The largest element; NaN counts as infinite, so that it cannot hide behind a maximum."""
    return float(value.nan_to_num(nan=math.inf).max()) if value.numel() else 0.0
