"""L-BFGS for a batch of independent problems: an objective of one number per sample.

Every sample has its own direction, step length and end, so its answer does not depend on the rest of its batch. A sample
whose objective is not finite stays where it is. Used by the relaxed correction and by D-Flow.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from snapfm.sampling.path import along

Objective = Callable[[Tensor], Tensor]  # from fields (b, *shape) to one number each (b,), float64
Slope = Callable[[Tensor], tuple[Tensor, Tensor]]  # the numbers (b,) and their gradients (b, *shape), float64

_ARMIJO = 1e-4  # share of the descent predicted by the gradient that Armijo's rule requires
_TRIALS = 12  # step lengths tried before a sample is left where it is
_SHORTEST, _LONGEST = 0.1, 0.5  # limits on the next length after a failed trial, relative to the last


def descend(
    objective: Objective, slope: Slope, start: Tensor, iterations: int, *, memory: int = 5,
    longest: float = math.inf, enough: float = 0.0, progress: Callable[[float], None] | None = None,
) -> Tensor:  # fmt: skip
    """Return points no worse than `start`, per sample; a sample whose steps do not descend stays where it is.

    `memory` past steps estimate the curvature. The first step is 2f/‖∇f‖² times the gradient, which reaches zero if f is one
    square, and at most `longest` times it. A sample ends at an objective of `enough`. `progress` is called with the share done.
    """
    u = start.clone()
    value, gradient = slope(u)
    inverse = (2.0 * value / _dot(gradient, gradient)).clamp(max=longest)  # curvature, until steps improve the estimate
    live = value > enough  # False for NaN
    pairs: list[tuple[Tensor, Tensor]] = []
    for iteration in range(iterations):
        step = _direction(gradient, pairs, inverse)
        predicted = _dot(step, gradient)
        live &= predicted < 0.0
        if not bool(live.any()):
            break
        moved, live = _search(objective, u, value, torch.where(along(live, step), step, 0.0), predicted, live)
        if progress is not None:
            progress((iteration + 1) / iterations)
        if iteration + 1 == iterations:
            return moved
        new_value, new_gradient = slope(moved)
        pair = (moved - u).double(), new_gradient - gradient
        curvature = _dot(*pair)
        inverse = torch.where(curvature > 0.0, curvature / _dot(pair[1], pair[1]), inverse)
        pairs = [*pairs, pair][-memory:]
        u, value, gradient = moved, new_value, new_gradient
        live &= value > enough
    return u


def _search(
    objective: Objective, u: Tensor, value: Tensor, step: Tensor, predicted: Tensor, live: Tensor
) -> tuple[Tensor, Tensor]:
    """Shorten the step of each live sample until it descends enough; return where samples end and which have moved."""
    moved, left = u.clone(), live.clone()
    length = torch.ones_like(value)
    for _ in range(_TRIALS):
        tried = (u + along(length, u) * step).to(u.dtype)
        with torch.no_grad():
            reached = objective(tried)
        accepted = left & (reached <= value + _ARMIJO * length * predicted)
        moved[accepted] = tried[accepted]
        left &= ~accepted
        if not bool(left.any()):
            break
        # The minimum of the parabola through value, slope and trial; after NaN the shortest length.
        share = -predicted * length / (2.0 * (reached - value - predicted * length))
        length = length * torch.nan_to_num(share, nan=_SHORTEST).clamp(_SHORTEST, _LONGEST)
    return moved, live & ~left


def _direction(gradient: Tensor, pairs: list[tuple[Tensor, Tensor]], inverse: Tensor) -> Tensor:
    """Multiply the negative gradient by the inverse Hessian estimated from past steps (two-loop recursion of L-BFGS)."""
    found, weights = gradient, []
    for moved, change in reversed(pairs):
        scale = _safe_inverse(_dot(moved, change))
        weight = scale * _dot(moved, found)
        found = found - along(weight, found) * change
        weights.append((scale, weight))
    found = found * along(inverse, found)
    for (moved, change), (scale, weight) in zip(pairs, reversed(weights)):
        found = found + along(weight - scale * _dot(change, found), found) * moved
    uphill = ~(_dot(found, gradient) > 0.0)  # possible by rounding: fall back on the gradient itself
    return -torch.where(along(uphill, found), gradient * along(inverse, gradient), found)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).flatten(1).sum(1)


def _safe_inverse(value: Tensor) -> Tensor:
    """Invert where positive; 0 drops a step without positive curvature from the sums."""
    return torch.where(value > 0.0, 1.0 / value, 0.0)
