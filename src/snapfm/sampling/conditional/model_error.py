"""The error of a model's predictions, as the least variance that a spread gives to any direction (math.md, eq. error).

All true fields may obey a law that the model's fields break by a little. A spread of true fields has almost no variance there, so
a sampler would repair that little by moving whatever the laws leave open, as far as it takes. What the model cannot know has to
be part of its spread.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from snapfm.sampling import checks
from snapfm.sampling.task import device_and_dtype, network_of, noise_units

_LEVEL = 0.25  # noise level σ/α of the states that the model is asked about: near the least that decide about a field
_FIELDS = 64  # asked about


def known_error(velocity: Any) -> float | None:
    """Return the error that a network says it has, or the variance that its own spread leaves to all directions; else None."""
    network = network_of(velocity)
    for said in ("error", "spread"):
        value: Any = getattr(network, said, None)
        value = getattr(value, "rest", None) if said == "spread" else value
        if checks.is_positive(value):
            return float(value)
    return None


def predicted_error(velocity: Any, fields: Tensor) -> tuple[float, float]:
    """Return the mean square per unknown of the model's prediction minus the field, in units of its noise, and the τ it is of.

    From states with a little noise, at most 64 fields (count, *shape), evenly chosen.
    """
    some = fields[:: max(1, len(fields) // _FIELDS)][:_FIELDS]
    path = checks.path_of(None, velocity)
    mean, scale = noise_units(velocity, tuple(some.shape[1:]))
    tau = path.time_of(_LEVEL)
    device, dtype = device_and_dtype(velocity, torch.float32)
    model = velocity.of_samples(0, len(some)) if hasattr(velocity, "of_samples") else velocity
    data = some.detach().to("cpu", torch.float64)
    white = torch.randn(data.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u = path.pull_back(mean + scale * white, data, tau).to(device=device, dtype=dtype)
    with torch.no_grad():
        answer = path.shoot(u, model(u, tau), tau).to("cpu", torch.float64)
    return float(((answer - data) / scale).square().mean()), tau
