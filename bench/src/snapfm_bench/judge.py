"""The judge of projected fields: float64, from the laws' own residuals and torch's derivatives of them, and nothing else.

It shares no code with the methods it judges and imports nothing of project, structure or kernels; an import contract checks
that. It measures the violation, the stationarity u − û + Jᵀλ by one reverse pass per law, and the signs of inequality
multipliers. Bounds have no multipliers: the rest of u − û + Jᵀλ is measured by how far u would move along it within its bounds,
so the judge does not need to know which bounds are active. A law that computes in float32 is judged in float64, without its own
rounding (snapfm_bench.precision). Where one side's slopes leave a rest, kinks are given weights
(snapfm_bench.judge_kinks).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from snapfm.errors import Status
from snapfm.laws import Bounds, Equality, Inequality, Law, Oracle, Params
from snapfm.metrics.scores import one_of, residuals
from snapfm_bench.judge_kinks import smallest_rest
from snapfm_bench.precision import in_float64
from snapfm_bench.record import finite

# Stationarity asked of a converged sample, absolute: fields are of order one. A larger tolerance replaces it.
NEAREST = 1e-6
ROUNDING = 1.0 + 1e-6  # judge and method add up the same rows in another order


@dataclass(frozen=True)
class UnjudgedLaw:
    """One law: mean over samples of ‖R‖₂ (math.md, eq. ce), and the worst single row of all samples."""

    law: str
    error: float | None
    worst_row: float | None


@dataclass(frozen=True)
class Verdict:
    """The judge's measurements of a method's answers, over all samples, independent of the method's own claims."""

    samples: int
    claimed: int  # samples the method calls converged
    converged: int  # those of them that the judge confirms; `accepted` does not ask the method
    lawful: int  # samples within the tolerance, nearest or not
    violation: float | None  # worst of all samples
    stationarity: float | None  # worst of the samples that have multipliers
    distances: tuple[float | None, ...]  # ‖u − û‖₂ of every sample; None where the answer is not feasible
    iterations_median: float | None
    iterations_worst: int | None
    laws: tuple[UnjudgedLaw, ...] = ()
    # The distances to first order if every answer kept its laws exactly; None where the judge does not accept it.
    exact_distances: tuple[float | None, ...] = ()

    @property
    def accepted(self) -> int:
        """Count the samples that the judge accepts, lawful and nearest, whatever the method says of them.

        Older records have no exact distances: of them only what the method claimed, too, is known.
        """
        return sum(one is not None for one in self.exact_distances) if self.exact_distances else self.converged

    @property
    def false_claims(self) -> int:
        """Count the samples that the method calls converged and the judge does not accept."""
        return self.claimed - self.converged


@dataclass(frozen=True)
class Answers:
    """What a method returns for a batch, float64."""

    u: Tensor  # (b, *shape)
    multipliers: Mapping[str, Tensor]  # law name to λ (b, rows); NaN where a method has none
    claimed: Tensor  # (b,) bool: samples it calls converged
    iterations: Tensor  # (b,), negative where it is not reported


@dataclass(frozen=True)
class Sizes:
    """Per sample (b,): the measures that vanish at the nearest feasible field; infinite where not a number."""

    violation: Tensor
    stationarity: Tensor  # of u − û + Jᵀλ and of wrong-signed λ; NaN without multipliers
    complementarity: Tensor  # largest |λ g| of an inequality; NaN without multipliers
    weighed: Tensor  # λᵀh: the violation weighted by the multipliers; NaN without them

    @property
    def nearness(self) -> Tensor:
        """The larger of stationarity and complementarity; NaN without multipliers."""
        return torch.maximum(self.stationarity, self.complementarity)


def claims(status: Tensor | None, count: int) -> Tensor:
    """Return which samples a method calls converged; a method without a status claims all."""
    return torch.ones(count, dtype=torch.bool) if status is None else status == Status.CONVERGED


def bounds_of(laws: Sequence[Law], like: Tensor) -> tuple[Tensor, Tensor]:
    """Intersect all bounds: the least and the greatest value of every unknown of a field, infinite where free."""
    lower, upper = torch.full_like(like, -math.inf), torch.full_like(like, math.inf)
    for law in laws:
        if isinstance(law, Bounds):
            lower = torch.maximum(lower, _limit(law.lower, -math.inf, like))
            upper = torch.minimum(upper, _limit(law.upper, math.inf, like))
    return lower, upper


def _limit(limit: float | Tensor | None, none: float, like: Tensor) -> Tensor:
    """Convert a limit; a number is not rounded to float32 first."""
    return torch.as_tensor(none if limit is None else limit, dtype=like.dtype, device=like.device)


def clipped(u: Tensor, rest: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Compute u − clip(u − rest, bounds) without its cancellation: how far u would move along −rest within its bounds."""
    return torch.minimum(torch.maximum(rest, u - upper), u - lower)


def measure(laws: Sequence[Law], u_hat: Tensor, u: Tensor, multipliers: Mapping[str, Tensor], params: Params) -> Sizes:
    """Measure answers u to û (b, *shape) with multipliers (b, rows) by law."""
    found = [
        _sample(laws, u_hat[i], u[i], {name: value[i] for name, value in multipliers.items()}, one_of(params, i))
        for i in range(len(u_hat))
    ]
    return Sizes(*torch.tensor(found, dtype=torch.float64).reshape(-1, 4).unbind(1))


def nearest(tolerance: float) -> float:
    """Return the largest stationarity and complementarity that the judge accepts; violation is accepted up to `tolerance`."""
    return max(NEAREST, tolerance)


def lawful_and_nearest(sizes: Sizes, tolerance: float) -> tuple[Tensor, Tensor]:
    """Return which samples obey their laws, and which of them are also nearest: (b,) bool each."""
    lawful = sizes.violation <= tolerance * ROUNDING
    return lawful, lawful & (sizes.nearness <= nearest(tolerance) * ROUNDING)


def verdict(laws: Sequence[Law], u_hat: Tensor, answers: Answers, params: Params, tolerance: float) -> Verdict:
    """Judge answers, independent of the method's own claims."""
    sizes = measure(laws, u_hat, answers.u, answers.multipliers, params)
    lawful, holds = lawful_and_nearest(sizes, tolerance)
    distance = (answers.u - u_hat).flatten(1).norm(dim=1)
    exact = (distance.square() + 2 * sizes.weighed).clamp(min=0.0).sqrt()  # math.md, eq. kept
    having = sizes.nearness[~sizes.nearness.isnan()]
    iterations = answers.iterations.double()
    known = bool((iterations >= 0).all())
    return Verdict(
        samples=len(u_hat),
        claimed=int(answers.claimed.sum()),
        converged=int((answers.claimed & holds).sum()),
        lawful=int(lawful.sum()),
        violation=finite(sizes.violation.max()),
        stationarity=finite(having.max()) if len(having) else None,
        distances=tuple(finite(one) if good else None for one, good in zip(distance, lawful)),
        exact_distances=tuple(finite(one) if good else None for one, good in zip(exact, holds)),
        iterations_median=float(iterations.median()) if known else None,
        iterations_worst=int(iterations.max()) if known else None,
        laws=tuple(_law_error(law, residuals(law, answers.u, params)) for law in laws),
    )


def _law_error(law: Law, rows: Tensor) -> UnjudgedLaw:
    return UnjudgedLaw(law.name, finite(rows.norm(dim=1).mean()), finite(rows.max()) if rows.numel() else 0.0)


def _sample(
    laws: Sequence[Law], u_hat: Tensor, u: Tensor, multipliers: Mapping[str, Tensor], params: Params
) -> tuple[float, float, float, float]:
    violation, wrong, complementarity, weighed, rest = 0.0, 0.0, 0.0, 0.0, u - u_hat
    lower, upper = bounds_of(laws, u)
    for law in laws:
        if not isinstance(law, (Equality, Inequality, Oracle)):
            continue
        weight = multipliers[law.name]
        field = u.clone().requires_grad_()
        with torch.enable_grad(), in_float64():
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
    rest = clipped(u, rest, lower, upper)
    rows = [law for law in laws if isinstance(law, (Equality, Inequality))]
    torch_alone = len(rows) == sum(not isinstance(law, Bounds) for law in laws)  # no Oracle, whose kinks nobody knows
    # at a kink one side's slopes are not all
    if torch_alone and _largest(rest.abs()) > NEAREST and bool(torch.isfinite(u).all()):
        weighted = smallest_rest(
            [partial(_rows, law, params) for law in rows], [multipliers[law.name] for law in rows], u - u_hat, u,
            partial(_walls, u, lower, upper),
            partial(_clipped_at, u, lower, upper),
        )  # fmt: skip
        rest = rest if weighted is None else weighted
    return violation, max(_largest(rest.abs()), wrong), complementarity, weighed


def _rows(law: Equality | Inequality, params: Params, u: Tensor) -> Tensor:
    return law.residual(u, params).reshape(-1)


def _walls(u: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Return unit vectors (n, k) away from the bounds that u is at."""
    unit, flat = torch.eye(u.numel(), dtype=torch.float64), u.flatten()
    return torch.cat([unit[:, flat <= lower.flatten()], -unit[:, flat >= upper.flatten()]], dim=1)


def _clipped_at(u: Tensor, lower: Tensor, upper: Tensor, rest: Tensor) -> Tensor:
    return clipped(u, rest, lower, upper)


def _largest(value: Tensor) -> float:
    """Find the largest element; NaN counts as infinite, so that it cannot hide behind a maximum."""
    return float(value.nan_to_num(nan=math.inf).max()) if value.numel() else 0.0
