"""Adaptive steps through the flow: the pair of Dormand and Prince, of order 5 with an error estimate of order 4.

J. R. Dormand, P. J. Prince, "A family of embedded Runge-Kutta formulae", J. Comp. Appl. Math. 6 (1980). Every sample has
its own flow time and step length, so that its answer does not depend on its batch-mates (math.md, eq. adaptive).
"""

from __future__ import annotations

import torch
from torch import Tensor

from snapfm.errors import ShapeError
from snapfm.sampling.task import Task

# When a stage looks at the velocity, as a share of the step, and how far earlier stages carry the state there. The last
# stage is where the step ends: its velocity opens the next one.
_STAGES: tuple[tuple[float, tuple[float, ...]], ...] = (
    (1 / 5, (1 / 5,)),
    (3 / 10, (3 / 40, 9 / 40)),
    (4 / 5, (44 / 45, -56 / 15, 32 / 9)),
    (8 / 9, (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729)),
    (1.0, (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656)),
    (1.0, (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)),
)
# Order 5 less order 4: what the error estimate weighs the seven velocities with.
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

_CAUTION = 0.9  # of the length that would just do
_SHRINK, _GROW = 0.2, 10.0  # limits to how a step changes from one trial to the next, as in Hairer and Wanner's DOPRI5
_TRIALS = 1000  # of steps; smooth flows take a few dozen
_LEAST_STEP = 1e-10  # a velocity that is not finite gets here in a dozen trials; times rise by rounding alone
_PROBED = 1e-3  # relative: far above rounding, far below what a misplaced time does


def integrate(task: Task, relative: float, absolute: float) -> Tensor:
    """Walk every sample from τ = 0 to 1 with errors per step of `absolute` + `relative`·|u|, root mean square.

    A sample whose velocity is not finite, or which needs too many or too short steps, ends as NaN: it has no answer.
    """
    u, speed = task.noise, task.velocity(task.noise, 0.0)
    _probe(task, speed)
    tau = torch.zeros(len(u), dtype=torch.float64, device=u.device)
    step = torch.full_like(tau, task.times[1])
    live = torch.ones_like(tau, dtype=torch.bool)
    for _ in range(_TRIALS):
        step = torch.where(live, torch.minimum(step, 1.0 - tau), 0.0)
        # The whole batch every time: a velocity may hold conditions of its own, one per sample in this order.
        moved, last, error = _try(task, u, speed, tau, step)
        size = _size(error, u, moved, relative, absolute)
        fits = live & (size <= 1.0)
        u, speed = torch.where(_like(fits, u), moved, u), torch.where(_like(fits, u), last, speed)
        tau = torch.where(fits, torch.where(step < 1.0 - tau, tau + step, 1.0), tau)
        change = (_CAUTION * size ** (-1 / 5)).clamp(_SHRINK, _GROW)
        step = step * torch.nan_to_num(change, nan=_SHRINK)
        live &= (tau < 1.0) & (fits | (step > _LEAST_STEP))
        if not bool(live.any()):
            break
        task.reach(float(tau[live].min()))
    task.reach(1.0)
    return torch.where(_like(tau < 1.0, u), torch.nan, u)


def _try(task: Task, u: Tensor, speed: Tensor, tau: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Take one step of each sample: where it ends, the velocity there, and how far order 4 would end from it."""
    speeds, moved, length = [speed], u, _like(step, u).to(u.dtype)
    for share, weights in _STAGES:
        moved = u + length * _mix(weights, speeds)
        speeds.append(task.velocity(moved, (tau + share * step).clamp(max=1.0)))
    return moved, speeds[-1], length * _mix(_ERROR, speeds)


def _mix(weights: tuple[float, ...], speeds: list[Tensor]) -> Tensor:
    total = weights[0] * speeds[0]
    for weight, speed in zip(weights[1:], speeds[1:]):
        if weight != 0.0:
            total = total + weight * speed
    return total


def _size(error: Tensor, u: Tensor, moved: Tensor, relative: float, absolute: float) -> Tensor:
    """Measure the error of each sample against what is allowed: at most 1 where a step may stand."""
    allowed = absolute + relative * torch.maximum(u.abs(), moved.abs()).double()
    return (error.double() / allowed).square().flatten(1).mean(1).sqrt()


def _probe(task: Task, speed: Tensor) -> None:
    """Refuse a velocity that spreads one flow time per sample over another axis than that of the samples.

    Looked at once, with the first sample at τ = 0, where its velocity is known, and the others elsewhere: a field axis as
    long as the batch would take the times in silence.
    """
    if len(speed) == 1:
        return
    times = torch.full((len(speed),), 0.5, dtype=torch.float64, device=speed.device)
    times[0] = 0.0
    complaint = (
        f"Flow(solver='adaptive') expects velocity(u, tau) to take one flow time per sample, tau of shape ({len(speed)},); "
        f"got a velocity that does not. Give it the axes of a field: tau.view(-1, {', '.join('1' * (speed.ndim - 1))})."
    )
    try:
        first = task.velocity(task.noise, times)[0]
    except RuntimeError as cause:
        raise ShapeError(complaint) from cause
    room = _PROBED * float(speed[0].abs().max())
    if bool(torch.isfinite(speed[0]).all()) and not torch.allclose(first, speed[0], rtol=0.0, atol=room):
        raise ShapeError(complaint)


def _like(value: Tensor, field: Tensor) -> Tensor:
    return value.view(-1, *[1] * (field.ndim - 1))
