"""The straight path from noise to data, its velocity, and the flow-matching loss (math.md, eq. path and eq. loss).

Flow time is `tau` in [0, 1]: 0 is noise, 1 is data. Imports nothing of snapfm; a velocity is any callable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

Velocity: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# Near data the target noise has to be read off an almost clean field, and its error grows like 1 / (1 − τ). Fading
# the last fifth of flow time keeps such samples from owning every gradient; with 0.05 gradients were ten to thirty
# times larger over the first 500 steps and the samples no better.
FADE = 0.2


def interpolate(noise: Tensor, data: Tensor, tau: Tensor) -> Tensor:
    """Walk the straight path: (1 − τ)·noise + τ·data, with one τ per sample (math.md, eq. path)."""
    tau = _per_sample(tau, data)
    return (1 - tau) * noise + tau * data


def target(noise: Tensor, data: Tensor) -> Tensor:
    """Give the velocity of the straight path, the same at every τ: data − noise."""
    return data - noise


def fade(tau: Tensor) -> Tensor:
    """Weigh flow times alike up to 1 − FADE, then down to nothing at τ = 1."""
    return ((1 - tau) / FADE).clamp(max=1.0).square()


def loss(
    velocity: Velocity, noise: Tensor, data: Tensor, tau: Tensor, weight: Callable[[Tensor], Tensor] = torch.ones_like
) -> Tensor:
    """Measure the mean squared error of the velocity along the path (math.md, eq. loss).

    `weight` maps τ (b,) to a weight per sample; the default counts every flow time alike, `fade` tames the end.
    """
    error = velocity(interpolate(noise, data, tau), tau) - target(noise, data)
    return (weight(tau) * error.square().flatten(1).mean(1)).mean()


def _per_sample(tau: Tensor, like: Tensor) -> Tensor:
    return tau.view(-1, *[1] * (like.ndim - 1))
