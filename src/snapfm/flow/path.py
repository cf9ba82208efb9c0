"""The straight path from noise to data, its velocity, and the flow-matching loss (math.md, eq. path and eq. loss).

Flow time is `tau` in [0, 1]: 0 is noise, 1 is data. Imports nothing of snapfm; a velocity is any callable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

Velocity: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# Near data the target noise has to be read off an almost clean field, and the error of a velocity grows like
# 1 / (1 − τ). A floor under that gap keeps such samples from owning every gradient; with 0.5 it counted them too little
# in a trial, and smooth errors grew near τ = 1.
LEAST_GAP = 0.2


def interpolate(noise: Tensor, data: Tensor, tau: Tensor) -> Tensor:
    """Walk the straight path: (1 − τ)·noise + τ·data, with one τ per sample (math.md, eq. path)."""
    tau = _per_sample(tau, data)
    return (1 - tau) * noise + tau * data


def target(noise: Tensor, data: Tensor) -> Tensor:
    """Give the velocity of the straight path, the same at every τ: data − noise."""
    return data - noise


def loss(
    velocity: Velocity,
    noise: Tensor,
    data: Tensor,
    tau: Tensor,
    shown: Tensor | None = None,
    least_gap: float = LEAST_GAP,
) -> Tensor:
    """Measure the mean squared error of the velocity along the path (math.md, eq. loss).

    As the distance between data and where the velocity leads by τ = 1, over the gap 1 − τ, which counts as `least_gap`
    where it is smaller. `shown` takes the place of data on the path, for a network that shall correct it.
    """
    u = interpolate(noise, data if shown is None else shown, tau)
    gap = _per_sample(1 - tau, data)
    landed = u + gap * velocity(u, tau)
    return ((landed - data) / gap.clamp(min=least_gap)).square().mean()


def _per_sample(tau: Tensor, like: Tensor) -> Tensor:
    return tau.view(-1, *[1] * (like.ndim - 1))
