"""What a model's own predictions say of its fields: their error, and from their slopes the fields' covariance.

All true fields may obey a law that the model's fields break by a little. A spread of true fields has almost no variance there, so
a sampler would repair that little by moving whatever the laws leave open, as far as it takes. What the model cannot know has to
be part of its spread, as the least variance of any direction (math.md, eq. error).

The covariance of the data given a state u = αx + σ·noise is σ²/α times the slope of the prediction in u (Tweedie's formula). For
Gaussian fields it is the same at all states and determines the covariance Σ of the fields: with S = α·∂d/∂u it is
Σ = (σ/α)²·S(1 − S)⁻¹ (math.md, eq. slopes). An estimate from fields has the error of a finite sample; slopes have none. Knows
velocities and paths, no laws and no Spread.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from snapfm.laws.checks import is_positive
from snapfm.sampling.checks import path_of
from snapfm.sampling.path import Path
from snapfm.sampling.task import device_and_dtype, network_of, noise_units

_LEVEL = 0.25  # noise level σ/α of the states that the model is asked about: near the least that decide about a field
_FIELDS = 64  # asked about
_ROUNDS = 3  # of subspace iteration: a sample's principal directions are already near the model's
_PROBES = 32  # random directions in which the variance of all others is measured
_STATES = 4  # for Gaussian fields one would do; the slopes of a network are averaged
_LARGEST = 1.0 - 1e-6  # of S: a larger one is rounding, as one means that noise says nothing about a field
_LEAST = 1e-12

Slopes = Callable[[Tensor], Tensor]  # directions (k, n) → S times each of them (k, n)


def known_error(velocity: Any) -> float | None:
    """Return the error that a network says it has, or the variance that its own spread leaves to all directions; else None."""
    network = network_of(velocity)
    for said in ("error", "spread"):
        value: Any = getattr(network, said, None)
        value = getattr(value, "rest", None) if said == "spread" else value
        if is_positive(value):
            return float(value)
    return None


def predicted_error(velocity: Any, fields: Tensor) -> tuple[float, float]:
    """Return the mean square per unknown of the model's prediction minus the field, in units of its noise, and the τ it is of.

    From states with a little noise, at most 64 fields (count, *shape), evenly chosen.
    """
    some = fields[:: max(1, len(fields) // _FIELDS)][:_FIELDS]
    path = path_of(None, velocity)
    mean, scale = noise_units(velocity, tuple(some.shape[1:]))
    tau = path.time_of(_LEVEL)
    model = velocity.of_samples(0, len(some)) if hasattr(velocity, "of_samples") else velocity
    data = some.detach().to("cpu", torch.float64)
    white = torch.randn(data.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    answer = _predictions(model, path, tau, torch.float32)(path.pull_back(mean + scale * white, data, tau))
    return float(((answer - data) / scale).square().mean()), tau


def _predictions(velocity: Any, path: Path, tau: float, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Return the map from states at τ to the data that the model predicts, in float64 on the CPU."""
    device, dtype = device_and_dtype(velocity, dtype)

    def predicted(u: Tensor) -> Tensor:
        there = u.to(device=device, dtype=dtype)
        with torch.no_grad():
            return path.shoot(there, velocity(there, tau), tau).to("cpu", torch.float64)

    return predicted


def principal(
    velocity: Callable[[Tensor, Any], Tensor], directions: Tensor, variances: Tensor, rest: float, center: Tensor
) -> tuple[Tensor, Tensor, float]:
    """Return better directions (r, *shape), variances (r,) and rest than those given, all in units of the model's noise."""
    shape = directions.shape[1:]
    # Between the largest and the least variance, so that S distinguishes all of them: it is near one far above, zero far below.
    least = max(rest, float(variances.min()) if len(directions) == math.prod(shape) else rest, _LEAST)
    level = math.sqrt(float(variances.max()) * least)
    slopes = _slopes(velocity, directions, variances, center, math.sqrt(level))
    basis = directions.flatten(1).double()
    for _ in range(_ROUNDS):
        basis = torch.linalg.qr(slopes(basis).T)[0].T
    applied = slopes(basis)
    inside = basis @ applied.T
    shares, turned = torch.linalg.eigh(0.5 * (inside + inside.T))
    found = (turned.T @ basis).flip(0).reshape(-1, *shape).contiguous()
    return found, _variance(shares.flip(0), level), _others(slopes, basis, level)


def _slopes(
    velocity: Callable[[Tensor, Any], Tensor], directions: Tensor, variances: Tensor, center: Tensor, level: float
) -> Slopes:
    """Return S by central differences of one standard deviation of the noise, averaged over a few likely states."""
    shape, path = directions.shape[1:], path_of(None, velocity)
    tau = path.time_of(level)
    data, noise = path.data(tau), path.noise(tau)
    mean, scale = noise_units(velocity, tuple(shape))
    random = torch.Generator().manual_seed(0)
    states = []
    for _ in range(_STATES):
        amounts = torch.randn(len(variances), generator=random, dtype=torch.float64) * variances.sqrt()
        field = center + scale * torch.tensordot(amounts, directions.double(), dims=1)
        states.append(data * field + noise * (mean + scale * torch.randn(shape, generator=random, dtype=torch.float64)))

    predicted = _predictions(velocity, path, tau, torch.float64)

    def slopes(rows: Tensor) -> Tensor:
        found = torch.zeros_like(rows)
        step = noise * scale * rows.view(-1, *shape)
        for state in states:
            change = (predicted(state + step) - predicted(state - step)) / scale
            found += (data / (2.0 * noise * len(states))) * change.flatten(1)
        return found

    return slopes


def _variance(shares: Tensor, level: float) -> Tensor:
    kept = shares.clamp(_LEAST, _LARGEST)
    return level * kept / (1.0 - kept)


def _others(slopes: Slopes, basis: Tensor, level: float) -> float:
    """Return the mean variance of the directions that `basis` (r, n) leaves; zero if it leaves none."""
    if len(basis) == basis.shape[1]:
        return 0.0
    white = torch.randn(_PROBES, basis.shape[1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    white -= (white @ basis.T) @ basis
    share = (white * slopes(white)).sum() / white.square().sum()
    return float(_variance(share, level))
