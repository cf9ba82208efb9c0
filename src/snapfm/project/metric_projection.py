"""Projection in a metric: min ½(u − û)ᵀΣ⁻¹(u − û) subject to the laws, with Σ = δD + VVᵀ (math.md, eq. metric-projection).

Move û by Vc, then project in units of √D: the answer is the one whose c minimizes F(c) = ½δ|c|² + ½dist²(û + Vc, laws),
with slope Φ(c) = δc − Vᵀ(u − û − Vc). Every evaluation is a certified projection, so inequalities, bounds, kinks and statuses are
those of the plain one. F has one unknown per direction and is minimized by BFGS from the Hessian of the linearized laws, which
is exact for affine ones: they take one step. Fields here are x = u/√D.

Must not import project.projector: it is handed one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from snapfm.arrays import Index, Mask, Values
from snapfm.errors import ShapeError, Status
from snapfm.laws import Params
from snapfm.project.judge import is_stationary
from snapfm.project.linearized import LinearizedProjection, products
from snapfm.project.metric import Metric
from snapfm.solve.budget import Budget
from snapfm.solve.projection import Projection

if TYPE_CHECKING:
    from snapfm.project.projector import Projector

_LIMIT = 40  # steps of BFGS; a few suffice where laws bend little
_ENOUGH = 1e-10  # remaining step relative to the size of the field
_DECREASE = 1e-4  # share of the predicted decrease that a step has to reach
_HALVINGS = 12
_MOMENT = 0.01  # seconds: a plain projection always gets some time


def check_metric(metric: Any, shape: tuple[int, ...]) -> None:
    """Accept a Metric for fields of this shape, or None."""
    if metric is None:
        return
    if not isinstance(metric, Metric):
        raise ShapeError(
            f"project(metric) expects a snapfm.Metric; got {type(metric).__name__}. Write Metric(diagonal), or with "
            "directions and variances."
        )
    if metric.shape not in (None, shape):
        raise ShapeError(
            f"project(metric) expects a metric of fields {shape}; got one of {metric.shape}. Build it from fields of this shape."
        )


@dataclass(frozen=True)
class MetricProblem:
    """What one call projects: û (b, n) in units of `scale`, the metric in these, the plain projection of samples by number, and
    their linearized laws."""

    start: Values
    scale: Values
    metric: Metric
    plain: Callable[[Values, Mask], Projection]
    linearized: LinearizedProjection
    params: dict[str, Tensor]
    late: Callable[[], bool]  # whether the time is over


def solve(problem: MetricProblem) -> tuple[Projection, Values, Index]:
    """Return the plain projection of û + Vc at the best c, the length (b,) of the step that remains, and the steps taken (b,)."""
    metric, start = problem.metric, problem.start
    directions = metric.scaled(metric.rows)  # Vᵀ (r, n)
    count, rank = len(start), len(directions)
    c, every = np.zeros((count, rank)), np.ones(count, bool)
    found = problem.plain(start, every)
    steps = np.ones(count, np.int64)
    if not rank:
        return found, np.zeros(count), steps
    inverse = _inverse_hessians(problem, found)
    value, slope = _value(problem, directions, c, found)
    size = np.maximum(np.abs(start).max(axis=1, initial=0.0), np.finfo(float).tiny)
    step = _times(inverse, slope)
    left = _length(step, directions)
    for _ in range(_LIMIT):
        live = (left > _ENOUGH * size) & np.isfinite(left)
        if problem.late() or not live.any():
            break
        moved, landed, taken = _search(problem, directions, c, step, value, slope, live)
        live &= taken
        if not live.any():
            break
        new_value, new_slope = _value(problem, directions, moved, landed)
        for i in np.flatnonzero(live).tolist():
            inverse[i] = _updated(inverse[i], moved[i] - c[i], new_slope[i] - slope[i])
        c[live], value[live], slope[live] = moved[live], new_value[live], new_slope[live]
        found = landed.where(torch.from_numpy(live), found)
        steps += live
        step = _times(inverse, slope)
        left = np.where(live, _length(step, directions), left)
    return found, left, steps


def _inverse_hessians(problem: MetricProblem, found: Projection) -> Values:
    """Return M⁻¹ (b, r, r) at the plain projection, over its active rows."""
    rows = problem.linearized.system
    flat = found.u.double().flatten(1).numpy()
    active = None
    if not rows.equality.all():
        whole = torch.cat(list(found.multipliers.values()), dim=1).numpy()
        active = rows.equality | (whole[:, rows.rows] > 0.0)
    frames = problem.linearized.frames(flat * problem.scale.ravel(), problem.params, active)
    return np.stack([np.linalg.inv(frame.middle(problem.metric)) for frame in frames])


def _value(problem: MetricProblem, directions: Values, c: Values, found: Projection) -> tuple[Values, Values]:
    """Evaluate F (b,) and its slope Φ (b, r) from the plain projection of û + Vc."""
    away = found.u.double().flatten(1).numpy() - problem.start - products(c, directions)
    level = problem.metric.level
    value = 0.5 * level * (c * c).sum(axis=1) + 0.5 * (away * away).sum(axis=1)
    return value, level * c - products(away, directions.T)


def _search(
    problem: MetricProblem, directions: Values, c: Values, step: Values, value: Values, slope: Values, live: Mask
) -> tuple[Values, Projection, Mask]:
    """Halve steps until F decreases enough; return the new c, its projections, and which samples found one."""
    share, waiting, taken = np.ones(len(c)), live.copy(), np.zeros(len(c), bool)
    predicted = (step * slope).sum(axis=1)
    moved = c.copy()
    landed: Projection | None = None
    for _ in range(_HALVINGS):
        trial = c + share[:, None] * step
        here = problem.plain(problem.start + products(trial, directions), waiting)
        landed = here if landed is None else here.where(torch.from_numpy(waiting), landed)
        new, _ = _value(problem, directions, trial, here)
        slack = 1e-14 * np.abs(value)  # F is known to rounding only
        good = waiting & here.converged.numpy() & (new <= value + _DECREASE * share * predicted + slack)
        moved[good], taken = trial[good], taken | good
        waiting &= ~good
        if problem.late() or not waiting.any():
            break
        share[waiting] *= 0.5
    assert landed is not None
    return moved, landed, taken


def _updated(inverse: Values, moved: Values, change: Values) -> Values:
    """Update an inverse Hessian by BFGS; leave it where the change has no positive curvature."""
    curvature = float(moved @ change)
    if not curvature > 1e-12 * float(np.linalg.norm(moved) * np.linalg.norm(change)):
        return inverse
    left = np.eye(len(moved)) - np.outer(moved, change) / curvature
    found: Values = left @ inverse @ left.T + np.outer(moved, moved) / curvature
    return found


def _times(inverse: Values, slope: Values) -> Values:
    """Return the steps (b, r) of Newton's method."""
    return -np.stack([matrix @ one for matrix, one in zip(inverse, slope)])


def _length(step: Values, directions: Values) -> Values:
    """Return the largest change (b,) of a field that a step in c makes."""
    found: Values = np.abs(products(step, directions)).max(axis=1, initial=0.0)
    return found


def project_in_metric(
    laws: Projector, inner: Callable[[Tensor, Params, float], Projection], u_hat: Tensor, given: dict[str, Tensor],
    metric: Metric, scale: Tensor, budget: Budget,
) -> Projection:  # fmt: skip
    """Project û (b, *shape) on the CPU in a metric; `inner(fields, params, seconds)` does so in units of `scale`, √D."""
    count = len(u_hat)
    start = (u_hat.detach().double() / scale).flatten(1).contiguous().numpy()

    def project(fields: Values, which: Mask) -> Projection:
        mask = torch.from_numpy(which)
        params = {name: value if len(value) == 1 else value[mask] for name, value in given.items()}
        some = torch.from_numpy(fields[which]).reshape(-1, *laws.shape) * scale
        found = inner(some, params, max(budget.clock.left, _MOMENT))
        found = replace(found, u=found.u / scale, stationarity=found.stationarity / float(scale.max()))
        return found if which.all() else found.scatter(mask, count)

    with torch.no_grad():
        nearest = LinearizedProjection(laws.linearized, metric)
        problem = MetricProblem(
            start, scale.numpy(), metric.in_units(scale), project, nearest, laws.params_float64(given, count),
            lambda: budget.over,
        )  # fmt: skip
        found, left, steps = solve(problem)
        found = certified(found, left, steps, problem, laws.linearized.constant)
        answer = (found.u * scale).to(u_hat.dtype)
        judged = laws.check(answer, given)
        rounding = laws.row_differences((found.u * scale).double(), answer, given)
    return replace(
        found, u=answer, violation=judged.violation, rounding=rounding, by_law=judged.by_law,
        stationarity=found.stationarity * float(scale.max()),
    )  # fmt: skip


def certified(found: Projection, left: Values, steps: Index, problem: MetricProblem, affine: bool) -> Projection:
    """Turn the plain projection of û + Vc into that of û in the metric: its own stationarity, distance and multipliers.

    `stationarity` is the plain one plus the length of the step that remains along the directions. The curvature along the laws
    in the metric is known for affine laws only.
    """
    metric, away = problem.metric, found.u.double().flatten(1).numpy() - problem.start
    stationarity = found.stationarity.numpy() + left
    status = found.status.clone()
    unsettled = torch.from_numpy(~is_stationary(stationarity, torch.from_numpy(problem.start)))
    status[unsettled & found.converged] = int(Status.ITERATION_LIMIT if problem.late() else Status.STALLED)
    scaled = metric.scaled(metric.rows)
    middle = metric.level * np.eye(len(scaled)) + scaled @ scaled.T
    amounts = products(products(away, scaled.T), np.asarray(np.linalg.inv(middle), np.float64))
    rest = away - products(amounts, scaled)
    squared = (rest * rest).sum(axis=1) / metric.level + (amounts * amounts).sum(axis=1)
    unknown = found.second_order.new_full((), -1)
    second = found.second_order if affine else torch.where(found.second_order == 1, unknown, found.second_order)
    return replace(
        found, status=status, stationarity=torch.from_numpy(stationarity), distance=torch.from_numpy(np.sqrt(squared)),
        multipliers={name: value / metric.level for name, value in found.multipliers.items()},
        iterations=found.iterations + torch.from_numpy(steps) - 1, second_order=second, warm=None,
    )  # fmt: skip
