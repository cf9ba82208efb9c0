"""Task: one sampling run as a sampler sees it. Velocity and projector are counted and timed here, once for all samplers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from snapfm.errors import ParamsError, ShapeError
from snapfm.flow import Evaluator
from snapfm.laws import Params
from snapfm.project import Moved, Projection, Projector
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

    def velocity(self, u: Tensor, tau: float | Tensor) -> Tensor:
        """Evaluate the network, in its own dtype; differentiable where gradients are enabled.

        `tau` is one number, or one per sample (b,) for samplers whose samples walk at their own pace.
        """
        began = time.perf_counter()
        at = tau.to(self.network_dtype) if isinstance(tau, Tensor) else tau
        speed = _checked(self.model(u.to(self.network_dtype), at), u).to(u.dtype)
        self.seconds["velocity"] += time.perf_counter() - began
        self.calls += 1
        return speed

    def shoot(self, u: Tensor, tau: float) -> Tensor:
        """Say where the network leads from (u, τ) by τ = 1."""
        return self.path.shoot(u, self.velocity(u, tau), tau)

    def gradient(self, value: Tensor, at: Tensor, along: Tensor | None = None) -> Tensor:
        """Differentiate the sum of `value`, weighted by `along`, in `at`.

        Counted as network time, which nearly all of it is.
        """
        if torch.is_inference_mode_enabled():
            raise ParamsError(
                "this sampler expects to differentiate; got torch.inference_mode(), which forbids it for good. Call sample "
                "outside of it, or under torch.no_grad()."
            )
        began = time.perf_counter()
        weights = torch.ones_like(value) if along is None else along
        (found,) = torch.autograd.grad(value, at, weights)
        self.seconds["velocity"] += time.perf_counter() - began
        return found

    def project(self, u: Tensor, warm: Projection | Moved | None = None, tolerance: float | None = None) -> Projection:
        """Give the nearest lawful fields with their certificates."""
        began = time.perf_counter()
        found = self.laws()(u, self.params, warm=warm, tolerance=tolerance)
        self.seconds["projection"] += time.perf_counter() - began
        return found

    def move(
        self, u: Tensor, warm: Moved | Projection | None = None, tolerance: float | None = None
    ) -> Moved | Projection:
        """Give the nearest lawful fields alone, for a step whose answer is not handed out."""
        began = time.perf_counter()
        laws = self.laws()
        call = getattr(laws, "move", laws)  # a stand-in of the caller's own may know how to project and nothing else
        found: Moved | Projection = call(u, self.params, warm=warm, tolerance=tolerance)
        self.seconds["projection"] += time.perf_counter() - began
        return found

    def excess(self, u: Tensor) -> Tensor:
        """Give what is broken at u, (b, rows), in float64 and differentiable: h, max(g, 0), bound excess."""
        found = self.laws().excess(u, self.params)
        return found if found.shape[1] else u.flatten(1)[:, :0].double()  # no laws: no rows, but differentiable

    def renew(self) -> Tensor:
        """Draw fresh noise; each sample from its own stream, whatever batch it rides in."""
        shape = self.noise.shape[1:]
        fresh = [torch.randn(shape, generator=stream, dtype=torch.float64) for stream in self.streams]
        return noise_of(self.model, torch.stack(fresh)).to(self.noise)

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

    def reach(self, tau: float) -> None:
        """Tick for every time up to `tau` that has not been ticked, for samplers that do not stop at each."""
        while self.done + 1 < len(self.times) and self.times[self.done + 1] <= tau:
            self.tick()

    @property
    def network_dtype(self) -> torch.dtype:
        """Dtype the network computes in: that of its first floating-point weight, else that of the run."""
        return home(self.model, self.noise.dtype)[1]


def home(velocity: Velocity, dtype: torch.dtype) -> tuple[torch.device, torch.dtype]:
    """Say where a velocity lives and in which dtype it computes: those of its first floating-point weight."""
    network = velocity.network if isinstance(velocity, Evaluator) else velocity
    if isinstance(network, nn.Module):
        for weight in network.parameters():
            if weight.is_floating_point():
                return weight.device, weight.dtype
    return torch.device("cpu"), dtype


def noise_of(velocity: Velocity, white: Tensor) -> Tensor:
    """Give the noise a flow starts from: white, unless the velocity makes its own of it."""
    own = getattr(velocity, "noise_from", None)
    return white if own is None else own(white)


def _checked(speed: Tensor, u: Tensor) -> Tensor:
    """Refuse a velocity that would broadcast against the fields, or is no tensor."""
    if not isinstance(speed, Tensor) or speed.shape != u.shape:
        came = tuple(speed.shape) if isinstance(speed, Tensor) else type(speed).__name__
        raise ShapeError(
            f"velocity(u, tau) expects fields {tuple(u.shape)} back; got {came}. Return one tensor of the shape of its input."
        )
    return speed
