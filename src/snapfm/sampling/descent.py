"""Descent for objectives of one number per sample: L-BFGS whose samples share a batch and nothing else.

Every sample has its own direction, step length and end, so that its answer does not depend on its batch-mates; one whose
objective is not finite stays where it is. Used by the relaxed correction and by D-Flow. Imports nothing of snapfm.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Objective = Callable[[Tensor], Tensor]  # fields (b, *shape) to one number each (b,), float64
Slope = Callable[[Tensor], tuple[Tensor, Tensor]]  # fields to their numbers (b,) and slopes (b, *shape), float64

_PROMISED = 1e-4  # share of the descent promised by the slope that Armijo's rule asks for
_TRIALS = 12  # lengths tried, before a sample is left where it is
_SHORTEST, _LONGEST = 0.1, 0.5  # of the last length: how far the parabola through a failed trial is believed


def descend(
    objective: Objective, slope: Slope, start: Tensor, iterations: int, *, memory: int = 5,
    longest: float = math.inf, enough: float = 0.0, told: Callable[[float], None] | None = None,
) -> Tensor:  # fmt: skip
    """Give points no worse than `start`, sample by sample; a sample whose steps do not descend stays where it is.

    `memory` past steps are remembered as curvature. The first step is 2f/‖∇f‖² times the slope, which ends at zero were f
    one square, and at most `longest` times it. A sample ends at an objective of `enough`. `told` hears the share done.
    """
    u = start.clone()
    value, steep = slope(u)
    inverse = (2.0 * value / _dot(steep, steep)).clamp(max=longest)  # of the curvature, until steps say better
    live = value > enough  # false where not a number
    pairs: list[tuple[Tensor, Tensor]] = []
    for iteration in range(iterations):
        step = _direction(steep, pairs, inverse)
        promised = _dot(step, steep)
        live &= promised < 0.0
        if not bool(live.any()):
            break
        moved, live = _search(objective, u, value, torch.where(_like(live, step), step, 0.0), promised, live)
        if told is not None:
            told((iteration + 1) / iterations)
        if iteration + 1 == iterations:
            return moved
        new_value, new_steep = slope(moved)
        pair = (moved - u).double(), new_steep - steep
        turned = _dot(*pair)
        inverse = torch.where(turned > 0.0, turned / _dot(pair[1], pair[1]), inverse)
        pairs = [*pairs, pair][-memory:]
        u, value, steep = moved, new_value, new_steep
        live &= value > enough
    return u


def _search(
    objective: Objective, u: Tensor, value: Tensor, step: Tensor, promised: Tensor, live: Tensor
) -> tuple[Tensor, Tensor]:
    """Shorten each live sample's step until it descends enough; say where samples end up and which have moved."""
    moved, left = u.clone(), live.clone()
    length = torch.ones_like(value)
    for _ in range(_TRIALS):
        tried = (u + _like(length, u) * step).to(u.dtype)
        with torch.no_grad():
            reached = objective(tried)
        fits = left & (reached <= value + _PROMISED * length * promised)
        moved[fits] = tried[fits]
        left &= ~fits
        if not bool(left.any()):
            break
        # The minimum of the parabola through value, slope and what was reached; a trial that is no number is far off.
        share = -promised * length / (2.0 * (reached - value - promised * length))
        length = length * torch.nan_to_num(share, nan=_SHORTEST).clamp(_SHORTEST, _LONGEST)
    return moved, live & ~left


def _direction(steep: Tensor, pairs: list[tuple[Tensor, Tensor]], inverse: Tensor) -> Tensor:
    """Multiply the slope with the inverse curvature that past steps suggest (two loops of L-BFGS), downhill."""
    found, weights = steep, []
    for moved, turned in reversed(pairs):
        scale = _safe_inverse(_dot(moved, turned))
        weight = scale * _dot(moved, found)
        found = found - _like(weight, found) * turned
        weights.append((scale, weight))
    found = found * _like(inverse, found)
    for (moved, turned), (scale, weight) in zip(pairs, reversed(weights)):
        found = found + _like(weight - scale * _dot(turned, found), found) * moved
    uphill = ~(_dot(found, steep) > 0.0)  # rounding can do this: fall back on the slope itself
    return -torch.where(_like(uphill, found), steep * _like(inverse, steep), found)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).flatten(1).sum(1)


def _safe_inverse(value: Tensor) -> Tensor:
    """Invert where positive; 0 leaves a step without positive curvature out of the sums."""
    return torch.where(value > 0.0, 1.0 / value, 0.0)


def _like(value: Tensor, field: Tensor) -> Tensor:
    return value.view(-1, *[1] * (field.ndim - 1))
