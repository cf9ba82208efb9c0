"""The judge of answers, from outside: the laws' own residuals and torch's own gradients, nothing of snapfm.structure.

It shares no code with the methods it judges: violation, u − û + Jᵀλ by one reverse pass per law, and the signs of inequality
multipliers. Bounds have no multipliers: what u − û + Jᵀλ leaves is measured by how far u would move along it within its
bounds, which is the whole of it where there are none, and asks no method how near to a bound is at it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.bench.record import LawError, Verdict
from snapfm.errors import Status
from snapfm.laws import Bounds, Equality, Law, Params
from snapfm.metrics.residuals import one_of, residuals

# Nearness asked of a converged sample, absolute: fields are of order one. A tolerance above it is what methods were asked
# for, and stands for both.
NEAREST = 1e-6
_ROUNDING = 1.0 + 1e-6  # judge and method add up the same rows in another order


@dataclass(frozen=True)
class Answers:
    """What a method gives back for a batch, float64."""

    u: Tensor  # (b, *shape)
    multipliers: Mapping[str, Tensor]  # law name to λ (b, rows); NaN where a method has none
    claimed: Tensor  # (b,) bool: samples it calls converged
    iterations: Tensor  # (b,), negative where it does not say


@dataclass(frozen=True)
class Sizes:
    """Per sample (b,): everything a nearest lawful field has to have small; infinite where it is not a number."""

    violation: Tensor
    stationarity: Tensor  # of u − û + Jᵀλ and of wrong-signed λ; NaN without multipliers
    complementarity: Tensor  # largest |λ g| of an inequality; NaN likewise
    weighed: Tensor  # λᵀh, what the laws are broken by at their prices; NaN likewise

    @property
    def nearness(self) -> Tensor:
        """Give the larger of the two, which a nearest field has small; NaN without multipliers."""
        return torch.maximum(self.stationarity, self.complementarity)


def claims(status: Tensor | None, count: int) -> Tensor:
    """Say which samples a method calls converged; one that says nothing claims all."""
    return torch.ones(count, dtype=torch.bool) if status is None else status == Status.CONVERGED


def measure(laws: Sequence[Law], u_hat: Tensor, u: Tensor, multipliers: Mapping[str, Tensor], params: Params) -> Sizes:
    """Measure answers u to û (b, *shape) with multipliers (b, rows) by law."""
    found = [
        _sample(laws, u_hat[i], u[i], {name: value[i] for name, value in multipliers.items()}, one_of(params, i))
        for i in range(len(u_hat))
    ]
    return Sizes(*torch.tensor(found, dtype=torch.float64).reshape(-1, 4).unbind(1))


def verdict(laws: Sequence[Law], u_hat: Tensor, answers: Answers, params: Params, tolerance: float) -> Verdict:
    """Say what answers are worth, whatever the method says of them."""
    sizes = measure(laws, u_hat, answers.u, answers.multipliers, params)
    lawful, holds = lawful_and_nearest(sizes, tolerance)
    distance = (answers.u - u_hat).flatten(1).norm(dim=1)
    having = sizes.nearness[~sizes.nearness.isnan()]
    told = answers.iterations.double()
    known = bool((told >= 0).all())
    return Verdict(
        samples=len(u_hat),
        claimed=int(answers.claimed.sum()),
        converged=int((answers.claimed & holds).sum()),
        lawful=int(lawful.sum()),
        violation=_finite(sizes.violation.max()),
        stationarity=_finite(having.max()) if len(having) else None,
        distances=tuple(_finite(one) if good else None for one, good in zip(distance, lawful)),
        exact_distances=tuple(
            _finite(one) if good else None for one, good in zip(_exact_distance(distance, sizes.weighed), holds)
        ),
        iterations_median=float(told.median()) if known else None,
        iterations_worst=int(told.max()) if known else None,
        laws=tuple(_law_error(law, residuals(law, answers.u, params)) for law in laws),
    )


def lawful_and_nearest(sizes: Sizes, tolerance: float) -> tuple[Tensor, Tensor]:
    """Say which samples obey their laws, and which of them are nearest as well: (b,) bool each."""
    lawful = sizes.violation <= tolerance * _ROUNDING
    return lawful, lawful & (sizes.nearness <= max(NEAREST, tolerance) * _ROUNDING)


def _exact_distance(distance: Tensor, weighed: Tensor) -> Tensor:
    """Say how far answers would be if they kept their laws exactly (math.md, eq. kept)."""
    return (distance.square() + 2 * weighed).clamp(min=0.0).sqrt()


def _law_error(law: Law, rows: Tensor) -> LawError:
    return LawError(law.name, _finite(rows.norm(dim=1).mean()), _finite(rows.max()) if rows.numel() else 0.0)


def _sample(
    laws: Sequence[Law], u_hat: Tensor, u: Tensor, multipliers: Mapping[str, Tensor], params: Params
) -> tuple[float, float, float, float]:
    violation, wrong, complementarity, weighed, rest = 0.0, 0.0, 0.0, 0.0, u - u_hat
    lower, upper = torch.full_like(u, -math.inf), torch.full_like(u, math.inf)
    for law in laws:
        if isinstance(law, Bounds):
            lower = torch.maximum(lower, torch.as_tensor(-math.inf if law.lower is None else law.lower))
            upper = torch.minimum(upper, torch.as_tensor(math.inf if law.upper is None else law.upper))
            continue
        weight = multipliers[law.name]
        field = u.clone().requires_grad_()
        with torch.enable_grad():
            value = law.residual(field, params).reshape(-1)
        if value.requires_grad:
            rest = rest + torch.autograd.grad(value, field, weight)[0]
        value = value.detach()
        weighed += float(weight @ value)
        if isinstance(law, Equality):
            violation = max(violation, _largest(value.abs()))
        else:
            violation = max(violation, _largest(value.clamp(min=0.0)))
            wrong = max(wrong, _largest((-weight).clamp(min=0.0)))
            complementarity = max(complementarity, _largest((weight * value).abs()))
    violation = max(violation, _largest((u - upper).clamp(min=0.0)), _largest((lower - u).clamp(min=0.0)))
    if any(not bool(torch.isfinite(one).all()) for one in multipliers.values()):
        return violation, math.nan, math.nan, math.nan
    rest = torch.minimum(torch.maximum(rest, u - upper), u - lower)  # u − clip(u − rest), without its cancellation
    return violation, max(_largest(rest.abs()), wrong), complementarity, weighed


def _largest(value: Tensor) -> float:
    """Give the largest element; NaN counts as infinite, so that it cannot hide behind a maximum."""
    return float(value.nan_to_num(nan=math.inf).max()) if value.numel() else 0.0


def _finite(value: Tensor) -> float | None:
    found = float(value)
    return found if math.isfinite(found) else None
