"""Physics-constrained flow matching: shoot, project, pull back (math.md, eq. pcfm).

Joins a velocity and a projector and knows the inside of neither. May import flow, project and problems; nothing below
imports it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from snapfm.errors import DtypeError, ParamsError, ShapeError
from snapfm.laws import Params
from snapfm.project import Projection, Projector
from snapfm.project.base import OnFailure
from snapfm.seeds import base_seed, draw

Velocity = Callable[[Tensor, Any], Tensor]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Samples:
    """What a sampling run gives: the fields, the last projection with its certificates, and where the time went."""

    u: Tensor  # (count, *shape)
    projection: Projection | None  # None when there was no projector
    seconds: dict[str, float]  # "velocity", "projection"


def sample(
    velocity: Velocity,
    project: Projector | None,
    params: Params | None = None,
    count: int = 32,
    steps: int = 100,
    generator: torch.Generator | None = None,
    *,
    shape: tuple[int, ...] | None = None,
    dtype: torch.dtype = torch.float32,
    on_failure: OnFailure = "raise",
    warm: bool = True,
    early_tolerance: float | None = None,
    progress: Progress | None = None,
) -> Samples:
    """Draw `count` fields that obey the projector's laws, over `steps` uniform flow steps.

    Without a projector (None) this is the plain flow, from the same noise for the same generator; give `shape` unless the
    velocity has one. Unconverged samples raise ProjectionFailed unless on_failure="keep", which returns them marked.
    Noise of sample i depends on the generator's seed and i alone, not on `count`. `warm` starts every projection from the
    one before; `early_tolerance` asks less of all but the last. `progress(done, total)` is called after every step.
    """
    field_shape = _field_shape(velocity, project, shape)
    _check(count, steps, dtype, on_failure)
    device, network_dtype = _home(velocity, dtype)
    seed = base_seed(generator)
    noise = draw(seed, 0, count, lambda stream: torch.randn(field_shape, generator=stream, dtype=torch.float64))
    noise = noise.to(device=device, dtype=dtype)
    seconds = {"velocity": 0.0, "projection": 0.0}
    u, last = noise, None
    with torch.no_grad():  # not inference_mode: its tensors could not be used in a loss afterwards
        for step in range(steps):
            tau, later = step / steps, (step + 1) / steps
            began = time.perf_counter()
            speed = _checked(velocity(u.to(network_dtype), tau), u).to(dtype)
            seconds["velocity"] += time.perf_counter() - began
            if project is None:
                u = u + (later - tau) * speed
            else:
                began = time.perf_counter()
                last = project(u + (1.0 - tau) * speed, params, warm=last if warm else None, tolerance=early_tolerance)
                u = noise + later * (last.u - noise)
                seconds["projection"] += time.perf_counter() - began
            if progress is not None:
                progress(step + 1, steps)
        if project is not None:
            began = time.perf_counter()
            last = project(u, params, warm=last if warm else None)
            seconds["projection"] += time.perf_counter() - began
            u = last.u
    if last is not None and on_failure == "raise":
        last.raise_for_status()
    return Samples(u, last, seconds)


def _field_shape(velocity: Velocity, project: Projector | None, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    if project is not None:
        if shape is not None and tuple(shape) != project.shape:
            raise ShapeError(
                f"sample(shape=…) expects the projector's shape {project.shape}; got {tuple(shape)}. Leave shape out: the "
                "projector knows it."
            )
        return project.shape
    found = shape if shape is not None else getattr(velocity, "shape", None)
    if found is None:
        raise ShapeError(
            "sample(velocity, None) expects the shape of one field; neither a projector nor velocity.shape gives it. Pass "
            "shape=(100, 100)."
        )
    return tuple(found)


def _check(count: int, steps: int, dtype: torch.dtype, on_failure: str) -> None:
    if not (isinstance(count, int) and isinstance(steps, int)) or count < 1 or steps < 1:
        raise ShapeError(
            f"sample(count, steps) expects whole numbers >= 1; got count={count}, steps={steps}. Ask for at least one of each."
        )
    if dtype not in (torch.float32, torch.float64):
        raise DtypeError(f"sample(dtype) expects torch.float32 or torch.float64; got {dtype}. The default is float32.")
    if on_failure not in ("raise", "keep"):
        raise ParamsError(
            f"on_failure expects 'raise' or 'keep'; got {on_failure!r}. 'keep' returns unconverged samples, marked."
        )


def _checked(speed: Tensor, u: Tensor) -> Tensor:
    """Refuse a velocity that would broadcast against the fields, or is no tensor."""
    if not isinstance(speed, Tensor) or speed.shape != u.shape:
        came = tuple(speed.shape) if isinstance(speed, Tensor) else type(speed).__name__
        raise ShapeError(
            f"velocity(u, tau) expects fields {tuple(u.shape)} back; got {came}. Return one tensor of the shape of its input."
        )
    return speed


def _home(velocity: Velocity, dtype: torch.dtype) -> tuple[torch.device, torch.dtype]:
    """Say where the velocity lives and in which dtype it computes: those of its first floating-point weight."""
    if isinstance(velocity, nn.Module):
        for weight in velocity.parameters():
            if weight.is_floating_point():
                return weight.device, weight.dtype
    return torch.device("cpu"), dtype
