"""Task: one sampling run as a sampler sees it. Velocity and projector are counted and timed here, once for all samplers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from snapfm.errors import ParamsError, ShapeError
from snapfm.laws import Params
from snapfm.project import Projection, Projector
from snapfm.sampling.path import Path

Velocity = Callable[[Tensor, Any], Tensor]
Progress = Callable[[int, int], None]


@dataclass
class Task:
    """The noise to start from, the times to visit, and the only ways to the network and the laws.

    `times` rise from 0 to 1; a sampler visits them in order and calls `tick` after each step.
    """

    model: Velocity
    projector: Projector | None
    params: Params | None
    noise: Tensor  # (b, *shape), in the dtype of the run
    times: tuple[float, ...]
    path: Path
    streams: tuple[torch.Generator, ...]  # one per sample, for samplers that draw again
    progress: Progress | None = None
    seconds: dict[str, float] = field(default_factory=lambda: {"velocity": 0.0, "projection": 0.0})
    calls: int = 0  # of the network, for the whole batch
    done: int = 0

    def velocity(self, u: Tensor, tau: float) -> Tensor:
        """Evaluate the network, in its own dtype; differentiable where gradients are enabled."""
        began = time.perf_counter()
        speed = _checked(self.model(u.to(self.network_dtype), tau), u).to(u.dtype)
        self.seconds["velocity"] += time.perf_counter() - began
        self.calls += 1
        return speed

    def shoot(self, u: Tensor, tau: float) -> Tensor:
        """Say where the network leads from (u, τ) by τ = 1."""
        return self.path.shoot(u, self.velocity(u, tau), tau)

    def project(self, u: Tensor, warm: Projection | None = None, tolerance: float | None = None) -> Projection:
        """Give the nearest lawful fields."""
        began = time.perf_counter()
        found = self.laws()(u, self.params, warm=warm, tolerance=tolerance)
        self.seconds["projection"] += time.perf_counter() - began
        return found

    def excess(self, u: Tensor) -> Tensor:
        """Give what is broken at u, (b, rows), in float64 and differentiable: h, max(g, 0), bound excess."""
        return self.laws().excess(u, self.params)

    def renew(self) -> Tensor:
        """Draw fresh noise; each sample from its own stream, whatever batch it rides in."""
        shape = self.noise.shape[1:]
        fresh = [torch.randn(shape, generator=stream, dtype=torch.float64) for stream in self.streams]
        return torch.stack(fresh).to(self.noise)

    def laws(self) -> Projector:
        """Give the projector, or say that this sampler needs one."""
        if self.projector is None:
            raise ParamsError(
                "this sampler expects a projector, whose laws it works with; got None. Pass snapfm.Projector(laws, shape, "
                "params), or use the plain flow: sampler=snapfm.sampling.Flow()."
            )
        return self.projector

    def tick(self) -> None:
        """Tell the progress bar that one more step is done."""
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, len(self.times) - 1)

    @property
    def network_dtype(self) -> torch.dtype:
        """Dtype the network computes in: that of its first floating-point weight, else that of the run."""
        return home(self.model, self.noise.dtype)[1]


def home(velocity: Velocity, dtype: torch.dtype) -> tuple[torch.device, torch.dtype]:
    """Say where a velocity lives and in which dtype it computes: those of its first floating-point weight."""
    if isinstance(velocity, nn.Module):
        for weight in velocity.parameters():
            if weight.is_floating_point():
                return weight.device, weight.dtype
    return torch.device("cpu"), dtype


def _checked(speed: Tensor, u: Tensor) -> Tensor:
    """Refuse a velocity that would broadcast against the fields, or is no tensor."""
    if not isinstance(speed, Tensor) or speed.shape != u.shape:
        came = tuple(speed.shape) if isinstance(speed, Tensor) else type(speed).__name__
        raise ShapeError(
            f"velocity(u, tau) expects fields {tuple(u.shape)} back; got {came}. Return one tensor of the shape of its input."
        )
    return speed
