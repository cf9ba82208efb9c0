"""The relaxed correction of PCFM: trade nearness to the state against laws at the end of its flow (math.md, eq. relaxed).

Minimises ‖u − ũ‖² + λ‖h(u + (1 − τ)·v(u, τ))‖² per sample by L-BFGS steps that are only taken when they descend.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from snapfm.errors import ParamsError
from snapfm.sampling.task import Task

Objective = Callable[[Tensor], Tensor]  # fields (b, *shape) to one number each (b,), float64

# Armijo's rule asks for this share of the descent that the slope promises.
_PROMISED = 1e-4
_HALVINGS = 12  # of a step, before a sample is left where it is
_PAIRS = 5  # past steps remembered as curvature


@dataclass(frozen=True)
class Relaxation:
    """Weight λ of the laws against nearness, and how many descending steps each correction takes."""

    weight: float = 1.0
    iterations: int = 5

    def __post_init__(self) -> None:
        if not (self.weight > 0.0 and self.iterations >= 1):
            raise ParamsError(
                f"Relaxation expects weight > 0 and iterations >= 1; got {self.weight} and {self.iterations}. Leave "
                "relaxation=None to go without."
            )

    def correct(self, task: Task, near: Tensor, tau: float) -> Tensor:
        """Give states no worse than `near` in the relaxed objective; a sample whose steps do not descend stays put."""

        def objective(u: Tensor) -> Tensor:
            broken = task.excess(task.shoot(u, tau))
            return (u - near).double().square().flatten(1).sum(1) + self.weight * broken.square().sum(1)

        u = near.clone()
        value, slope = _value_and_slope(objective, u)
        pairs: list[tuple[Tensor, Tensor]] = []
        for _ in range(self.iterations):
            step = -_times_inverse(slope, pairs)
            promised = _dot(step, slope)
            uphill = ~(promised < 0.0)  # also where curvature pairs have gone bad: fall back on the slope itself
            step[uphill] = -slope[uphill]
            promised = _dot(step, slope)
            moved, done = _descend(objective, u, value, step, promised)
            if not bool(done.any()):
                break
            new_value, new_slope = _value_and_slope(objective, moved)
            pairs = [*pairs, ((moved - u).double(), new_slope - slope)][-_PAIRS:]
            u, value, slope = moved, new_value, new_slope
        return u


def _descend(objective: Objective, u: Tensor, value: Tensor, step: Tensor, promised: Tensor) -> tuple[Tensor, Tensor]:
    """Shorten each sample's step until it descends enough; samples that never do stay where they are."""
    moved, done = u.clone(), torch.zeros(len(u), dtype=torch.bool, device=u.device)
    length = torch.ones(len(u), dtype=torch.float64, device=u.device)
    for _ in range(_HALVINGS):
        tried = (u + _per_sample(length, u) * step).to(u.dtype)
        fits = ~done & (objective(tried) <= value + _PROMISED * length * promised)
        moved[fits] = tried[fits]
        done |= fits
        if bool(done.all()):
            break
        length = torch.where(done, length, 0.5 * length)
    return moved, done


def _value_and_slope(objective: Objective, u: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        at = u.detach().requires_grad_()
        value = objective(at)
        (slope,) = torch.autograd.grad(value.sum(), at)
    return value.detach(), slope.double()


def _times_inverse(slope: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Multiply with the inverse curvature that past steps suggest, sample by sample (two loops of L-BFGS)."""
    found, weights = slope.clone(), []
    for moved, turned in reversed(pairs):
        scale = _safe_inverse(_dot(moved, turned))
        weight = scale * _dot(moved, found)
        found = found - _per_sample(weight, found) * turned
        weights.append((scale, weight))
    if pairs:
        moved, turned = pairs[-1]
        size = _dot(moved, turned) * _safe_inverse(_dot(turned, turned))
        found = found * _per_sample(torch.where(size > 0.0, size, 1.0), found)
    else:
        found = 0.5 * found  # the curvature of ‖u − ũ‖² alone
    for (moved, turned), (scale, weight) in zip(pairs, reversed(weights)):
        found = found + _per_sample(weight - scale * _dot(turned, found), found) * moved
    return found


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).flatten(1).sum(1)


def _safe_inverse(value: Tensor) -> Tensor:
    """Invert where positive; 0 leaves a pair without curvature (a sample that stayed put) out of the sums."""
    return torch.where(value > 0.0, 1.0 / value, 0.0)


def _per_sample(value: Tensor, like: Tensor) -> Tensor:
    return value.view(-1, *[1] * (like.ndim - 1))
