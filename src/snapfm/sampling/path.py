"""Affine paths from noise to data: u = α(τ)·data + σ(τ)·noise, and the two moves every sampler makes along one.

Flow time runs from 0 (noise) to 1 (data). Imports errors only (math.md, eq. affine-path).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from snapfm.errors import SettingError

Schedule = Callable[[float], float]
_HALVINGS = 60  # of the interval in which a noise level is sought: to rounding


@dataclass(frozen=True)
class Path:
    """How noise and data are mixed at flow time τ: u = α(τ)·data + σ(τ)·noise, with both slopes; α(1) = 1 and σ(1) = 0."""

    data: Schedule  # α
    noise: Schedule  # σ
    data_slope: Schedule  # dα/dτ
    noise_slope: Schedule  # dσ/dτ

    def __post_init__(self) -> None:
        for name, schedule in vars(self).items():
            if isinstance(schedule, type) or not callable(schedule):
                raise SettingError(
                    f"Path({name}) expects a function of flow time; got {schedule!r}. Write {name}=lambda tau: ...; STRAIGHT and "
                    "COSINE are ready-made."
                )

    def shoot(self, u: Tensor, speed: Tensor, tau: float) -> Tensor:
        """Return the data at τ = 1 that the state u and its velocity at τ imply.

        Solves u = α·data + σ·noise, v = α'·data + σ'·noise; on the straight path this is u + (1 − τ)·v.
        """
        determinant = self.determinant(tau)
        return (self.noise(tau) / determinant) * speed - (self.noise_slope(tau) / determinant) * u

    def pull_back(self, noise: Tensor, data: Tensor, tau: float) -> Tensor:
        """Return the state at τ on the path that joins noise and data."""
        return self.data(tau) * data + self.noise(tau) * noise

    def velocity(self, noise: Tensor, data: Tensor, tau: float) -> Tensor:
        """Return the velocity at τ of the path that joins noise and data."""
        return self.data_slope(tau) * data + self.noise_slope(tau) * noise

    def time_of(self, level: float) -> float:
        """Return the τ at which the noise level σ/α is this one; levels fall from τ = 0 to 1."""
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.noise(middle) > level * self.data(middle) else (low, middle)
        return 0.5 * (low + high)

    def determinant(self, tau: float) -> float:
        """Return α'σ − ασ', which is zero where state and velocity do not determine data and noise."""
        return self.data_slope(tau) * self.noise(tau) - self.data(tau) * self.noise_slope(tau)


STRAIGHT = Path(lambda tau: tau, lambda tau: 1.0 - tau, lambda tau: 1.0, lambda tau: -1.0)
"""The straight path of flow matching: α = τ, σ = 1 − τ."""

COSINE = Path(
    lambda tau: math.sin(0.5 * math.pi * tau),
    lambda tau: math.cos(0.5 * math.pi * tau) if tau < 1.0 else 0.0,
    lambda tau: 0.5 * math.pi * math.cos(0.5 * math.pi * tau),
    lambda tau: -0.5 * math.pi * math.sin(0.5 * math.pi * tau),
)
"""The path of variance-preserving models with a cosine schedule: α = sin(πτ/2), σ = cos(πτ/2)."""


def along(values: Tensor, like: Tensor) -> Tensor:
    """Reshape one value per sample, or one for all, so that it broadcasts with fields."""
    return values if values.ndim == 0 else values.view(-1, *[1] * (like.ndim - 1))
