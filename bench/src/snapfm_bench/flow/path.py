"""The straight path from noise to data: points on it, its velocity, the flow-matching loss (math.md, eq. path and eq. loss).

Flow time is `tau` in [0, 1]: 0 is noise, 1 is data. A velocity is any callable. Imports errors only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from snapfm.errors import DtypeError, ShapeError

Velocity: TypeAlias = Callable[[Tensor, Tensor], Tensor]

# Near data the target noise has to be read off an almost clean field, and the error of a velocity grows like
# 1 / (1 − τ). A floor under that gap keeps such samples from dominating every gradient. A floor of 0.5 gave them too little
# weight in a trial: smooth errors grew near τ = 1.
LEAST_GAP = 0.2
_LAST_GAP = 1e-3  # smallest 1 − τ that a data-predicting network divides by: exact for up to 1000 flow steps
_FASTEST_WAVE = 200.0  # radians per unit of τ; the phase of a heat field is decided between τ = 0.01 and 0.1


def interpolate(noise: Tensor, data: Tensor, tau: Tensor) -> Tensor:
    """Return the points (1 − τ)·noise + τ·data, with one τ per sample (math.md, eq. path)."""
    tau = _per_sample(tau, data)
    return (1 - tau) * noise + tau * data


def velocity_to(data: Tensor, u: Tensor, tau: Tensor) -> Tensor:
    """Return the velocity that leads from fields u at flow times tau (b,) to `data` by τ = 1."""
    return (data - u) / _per_sample((1 - tau).clamp(min=_LAST_GAP), u)


def loss(
    velocity: Velocity,
    noise: Tensor,
    data: Tensor,
    tau: Tensor,
    shown: Tensor | None = None,
    least_gap: float = LEAST_GAP,
) -> Tensor:
    """Return the mean squared error of the velocity along the path (math.md, eq. loss).

    It is measured as the distance between the data and the point that the velocity reaches at τ = 1, divided by the gap
    1 − τ or by `least_gap`, whichever is larger. `shown` replaces the data on the path, for a network that has to correct
    it.
    """
    u = interpolate(noise, data if shown is None else shown, tau)
    gap = _per_sample(1 - tau, data)
    reached = u + gap * velocity(u, tau)
    return ((reached - data) / gap.clamp(min=least_gap)).square().mean()


def check(u: Tensor, tau: float | Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Refuse fields of another shape or type than a network's; return tau as (b,) in the dtype of the network."""
    if tuple(u.shape[1:]) != shape:
        wanted = ", ".join(["b", *map(str, shape)])
        raise ShapeError(
            f"velocity(u, tau) expects u of shape ({wanted}); got {tuple(u.shape)}. Reshape the fields, or build "
            "the network for their shape."
        )
    if not u.is_floating_point():
        raise DtypeError(f"velocity(u, tau) expects real floating fields; got {u.dtype}. Convert with u.float().")
    times = torch.as_tensor(tau, dtype=dtype, device=u.device)
    if times.ndim > 1 or (times.ndim == 1 and len(times) not in (1, len(u))):
        raise ShapeError(
            f"velocity(u, tau) expects tau as a number or of shape ({len(u)},); got {tuple(times.shape)}. "
            "Give one flow time per sample."
        )
    return times.expand(len(u))


def embed(tau: Tensor, size: int) -> Tensor:
    """Return sines and cosines of τ at frequencies from 1 to 200: (b,) to (b, size)."""
    logarithms = torch.linspace(0.0, math.log(_FASTEST_WAVE), size // 2, dtype=tau.dtype, device=tau.device)
    angle = tau[:, None] * torch.exp(logarithms)
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def _per_sample(tau: Tensor, like: Tensor) -> Tensor:
    return tau.view(-1, *[1] * (like.ndim - 1))
