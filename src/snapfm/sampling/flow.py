"""The plain flow, du/dτ = v(u, τ) from noise to data: Euler or adaptive steps, and a projection at the end if wanted.

Adaptive steps use the pair of order 5(4) of J. R. Dormand, P. J. Prince, "A family of embedded Runge-Kutta formulae",
J. Comp. Appl. Math. 6 (1980). Every sample has its own flow time and step length, so its answer does not depend on the
rest of its batch (math.md, eq. adaptive).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from snapfm.errors import ParamsError, ShapeError
from snapfm.laws.checks import Check, check_settings, is_positive
from snapfm.project import Projection
from snapfm.sampling.path import along
from snapfm.sampling.task import Task

# Each stage evaluates the velocity at this fraction of the step, at a state reached with these weights of the velocities so
# far. The last stage is the end of the step; its velocity is the first of the next step.
_STAGES: tuple[tuple[float, tuple[float, ...]], ...] = (
    (1 / 5, (1 / 5,)),
    (3 / 10, (3 / 40, 9 / 40)),
    (4 / 5, (44 / 45, -56 / 15, 32 / 9)),
    (8 / 9, (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729)),
    (1.0, (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656)),
    (1.0, (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)),
)
# Order 5 minus order 4: weights of the seven velocities in the error estimate.
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)

_SAFETY = 0.9  # factor on the step length that would just meet the tolerance
_SHRINK, _GROW = 0.2, 10.0  # limits on the change of a step between trials, as in Hairer and Wanner's DOPRI5
_TRIALS = 1000  # of steps; smooth flows take a few dozen
_LEAST_STEP = 1e-10  # a velocity that is not finite gets here in a dozen trials; below it only rounding advances τ
_PROBED = 1e-3  # relative: far above rounding, far below the effect of a misplaced time


@dataclass(frozen=True)
class Flow:
    """Integrate the velocity and ignore the laws.

    "euler" steps through the task's times. "adaptive" chooses the steps of each sample to meet the tolerances per step. It
    calls the velocity with one τ per sample, (b,), and the velocity must be finite at τ = 1. The default tolerance, 1e-5, is
    the one that released samplers of functional flow matching use with dopri5 (Kerrigan, Migliorini, Smyth, "Functional Flow
    Matching", AISTATS 2024; code of Cheng et al., ICLR 2025, and of PCFM). A sample that cannot be integrated ends as NaN.
    """

    solver: Literal["euler", "adaptive"] = "euler"
    relative_tolerance: float = 1e-5
    absolute_tolerance: float = 1e-5

    def __post_init__(self) -> None:
        known = Check(
            lambda name: name in ("euler", "adaptive"), "'euler' or 'adaptive'", "'euler' visits the times you ask for."
        )
        check_settings(self, solver=known)
        if not (is_positive(self.relative_tolerance) and is_positive(self.absolute_tolerance)):
            raise ParamsError(
                "Flow(relative_tolerance, absolute_tolerance) expects positive numbers; got "
                f"{self.relative_tolerance!r} and {self.absolute_tolerance!r}. The default is 1e-5 for both."
            )

    def run(self, task: Task) -> tuple[Tensor, None]:
        """Integrate from τ = 0 to 1."""
        with torch.no_grad():
            if self.solver == "adaptive":
                return _integrate(task, self.relative_tolerance, self.absolute_tolerance), None
            u = task.noise
            for tau, later in task.steps():
                u = task.step(u, tau, later)
        return u, None


@dataclass(frozen=True)
class EndProjection:
    """Integrate the velocity as `flow` does, then project once (math.md, eq. end).

    This is what post-processing can do. Every method that projects on the way is compared with it.
    """

    flow: Flow = Flow()  # frozen, so all may share one instance

    def __post_init__(self) -> None:
        flow = Check(
            lambda value: isinstance(value, Flow),
            "how to integrate, a Flow",
            "Write EndProjection(Flow(solver='adaptive')).",
        )
        check_settings(self, flow=flow)

    def run(self, task: Task) -> tuple[Tensor, Projection]:
        """Integrate from τ = 0 to 1 and project."""
        task.laws()  # refuse a missing projector before the flow, not after it
        u, _ = self.flow.run(task)
        with torch.no_grad():
            last = task.project(u)
        return last.u, last


def _integrate(task: Task, relative: float, absolute: float) -> Tensor:
    """Integrate every sample from τ = 0 to 1 with root-mean-square errors per step of `absolute` + `relative`·|u|.

    A sample whose velocity is not finite, or that needs too many or too short steps, ends as NaN.
    """
    u, speed = task.noise, task.velocity(task.noise, 0.0)
    _probe(task, speed)
    tau = torch.zeros(len(u), dtype=torch.float64, device=u.device)
    step = torch.full_like(tau, task.times[1])
    live = torch.ones_like(tau, dtype=torch.bool)
    for _ in range(_TRIALS):
        step = torch.where(live, torch.minimum(step, 1.0 - tau), 0.0)
        # Always the whole batch: a velocity may hold one condition per sample, in this order.
        moved, last, error = _try(task, u, speed, tau, step)
        size = _size(error, u, moved, relative, absolute)
        accepted = live & (size <= 1.0)
        u, speed = torch.where(along(accepted, u), moved, u), torch.where(along(accepted, u), last, speed)
        tau = torch.where(accepted, torch.where(step < 1.0 - tau, tau + step, 1.0), tau)
        change = (_SAFETY * size ** (-1 / 5)).clamp(_SHRINK, _GROW)
        step = step * torch.nan_to_num(change, nan=_SHRINK)
        live &= (tau < 1.0) & (accepted | (step > _LEAST_STEP))
        if not bool(live.any()):
            break
        task.reach(float(tau[live].min()))
    task.reach(1.0)
    return torch.where(along(tau < 1.0, u), torch.nan, u)


def _try(task: Task, u: Tensor, speed: Tensor, tau: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Take one step of each sample; return its end, the velocity there, and the difference to order 4."""
    speeds, moved, length = [speed], u, along(step, u).to(u.dtype)
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
    """Measure the error of each sample relative to the allowed one: a step is accepted at 1 or below."""
    allowed = absolute + relative * torch.maximum(u.abs(), moved.abs()).double()
    return (error.double() / allowed).square().flatten(1).mean(1).sqrt()


def _probe(task: Task, speed: Tensor) -> None:
    """Refuse a velocity that broadcasts one flow time per sample along another axis than that of the samples.

    A field axis as long as the batch would accept the times silently. So evaluate once with the first sample at τ = 0, where
    its velocity is known, and the others elsewhere.
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
