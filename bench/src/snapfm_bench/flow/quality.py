"""How good a velocity's samples are: their statistics against those of true fields (math.md, eq. mmse and eq. smse)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from snapfm.errors import ShapeError
from snapfm.metrics.moments import mmse, moments, roughness, smse
from snapfm.seeds import draw
from snapfm_bench.flow.frame import FrameVelocity, Latent

_CHUNK = 16  # fields per network call: more would not fit the cache
# Flow time at which a network is asked for a field: its noise is a quarter of it, near the least that Conditional visits.
_NEARLY = 0.8

QUALITY_SEED = 2**32  # keeps the noise of quality samples apart from that of training with small seeds


def integrate(velocity: Callable[[Tensor, float], Tensor], noise: Tensor, steps: int) -> Tensor:
    """Integrate noise (b, *shape) along the velocity to τ = 1 with uniform Euler steps, without laws.

    A network that reads coefficients alone is integrated in them, which gives the same fields sooner: outside its frame every
    path ends at the mean.
    """
    if isinstance(velocity, FrameVelocity) and not velocity.settings.anchors:
        latent = Latent(velocity)
        with torch.inference_mode():
            return velocity.fields(integrate(latent, latent.noise(noise), steps)).to(noise.dtype)
    fields = []
    with torch.inference_mode():
        for start in range(0, len(noise), _CHUNK):
            u = noise[start : start + _CHUNK]
            for step in range(steps):
                u = u + velocity(u, step / steps) / steps
            fields.append(u)
    return torch.cat(fields)


def answer_error(velocity: Callable[[Tensor, float], Tensor], fields: Tensor) -> float:
    """Return the mean square per point of the velocity's answer minus the field, from states with little noise.

    It counts what noise leaves open as error too. As the rest of a spread, more than the error costs little; less than the
    error makes samplers correct the network's mistakes by moving what laws leave open.
    """
    noise = draw(QUALITY_SEED, 0, len(fields), lambda random: torch.randn(fields.shape[1:], generator=random))
    total = 0.0
    with torch.inference_mode():
        for some, white in zip(torch.split(fields, _CHUNK), torch.split(noise.to(fields.dtype), _CHUNK)):
            u = _NEARLY * some + (1.0 - _NEARLY) * white
            answer = u + (1.0 - _NEARLY) * velocity(u, _NEARLY)
            total += float((answer - some).double().square().sum())
    return total / fields.numel()


def quality(
    velocity: Callable[[Tensor, float], Tensor], truth: Tensor, training_mean: Tensor, count: int, steps: int = 100
) -> dict[str, Any]:
    """Compare `count` samples with true fields (not those of training): mmse and smse of the per-point mean and spread.

    The result also has the scores of two answers that need no model: `constant`, the training mean for every sample, and
    `true`, `count` true fields. A perfect model scores like the latter, since a few true fields miss the mean too.
    """
    if count < 2 or len(truth) < 2:
        raise ShapeError(
            f"quality(truth, count) expects at least 2 of each, to have a spread; got {len(truth)} true fields and "
            f"count={count}. Ask for more samples."
        )
    true = moments(truth)

    def score(fields: Tensor) -> dict[str, float]:
        found = moments(fields)
        rough = roughness(fields) / roughness(truth)
        return {"mmse": mmse(found, true), "smse": smse(found, true), "roughness": rough}

    noise = draw(QUALITY_SEED, 0, count, lambda random: torch.randn(truth.shape[1:], generator=random))
    return {
        "samples": score(integrate(velocity, noise.to(truth.dtype), steps)),
        "constant": score(training_mean.expand(count, *training_mean.shape)),
        "true": score(truth[:count]),
        "count": count,
        "steps": steps,
        "truth_count": len(truth),
    }
