"""Task: one sampling run as a sampler sees it, and what a sampler returns. Counts and times network and projector calls."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from snapfm.display import Sheet
from snapfm.errors import ParamsError
from snapfm.laws import Params
from snapfm.project import Moved, Projection, Projector
from snapfm.sampling.checks import call_mismatch, check_velocity_output
from snapfm.sampling.path import Path
from snapfm.solve.projection import fields_text
from snapfm.text import plural
from snapfm.text import seconds as seconds_text

Velocity = Callable[[Tensor, Any], Tensor]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Samples:
    """The result of a sampling run: the fields, the last projection with its certificates, and where the time went."""

    u: Tensor
    """The fields: (count, *shape)."""
    projection: Projection | None
    """The last projection with its certificates; None if the sampler does not end with one: it certifies nothing."""
    seconds: dict[str, float]
    """Time spent, in seconds: "velocity" in the network, "projection" in the laws, and "other"; they add up to the run's."""
    calls: int = 0
    """Calls of the network, each for the whole batch."""
    weights: Tensor | None = None
    """How much each sample counts, (count,) with mean one; None if all count the same."""

    @property
    def effective(self) -> float:
        """The number of equally weighted samples that these are worth: (Σw)² / Σw²."""
        if self.weights is None:
            return float(len(self.u))
        return float(self.weights.sum().square() / self.weights.square().sum())

    def __repr__(self) -> str:
        certified = "no certificate" if self.projection is None else f"{int(self.projection.converged.sum())} converged"
        return f"Samples({fields_text(self.u)}: {certified}; {self._spent()})"

    def __str__(self) -> str:
        return self._sheet().text()

    def _repr_html_(self) -> str:
        return self._sheet().html()

    def _spent(self) -> str:
        total = sum(self.seconds.values())
        parts = ", ".join(f"{name} {share / total:.0%}" for name, share in self.seconds.items() if total)
        return f"{seconds_text(total)}{f': {parts}' * bool(parts)}"

    def _sheet(self) -> Sheet:
        """Show the last projection, if there is one, and where the time went."""
        lines = [f"{plural(self.calls, 'call')} of the network; {self._spent()}"]
        if self.weights is not None:
            lines.append(f"weighted: worth {self.effective:.1f} samples of equal weight")
        if self.projection is None:
            return Sheet(f"Samples: {fields_text(self.u)}, not certified: no law was asked for", lines=lines)
        last = self.projection.sheet()
        return replace(last, title=last.title.replace("Projection of", "Samples:", 1), lines=[*last.lines, *lines])


@dataclass
class Task:
    """The noise to start from, the times to visit, and the only access to the network and the laws.

    `times` rise from 0 to 1. A sampler visits them in order, by `steps`, or calls `tick` or `reach` as it gets to them.
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
    log_weights: Tensor | None = None  # (b,), set by a sampler whose samples do not count alike

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time of a block to a phase."""
        began = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - began

    def steps(self) -> Iterator[tuple[float, float]]:
        """Visit the times: yield each with the next one, and tick once the sampler has worked on it."""
        for tau, later in pairwise(self.times):
            yield tau, later
            self.tick()

    def velocity(self, u: Tensor, tau: float | Tensor) -> Tensor:
        """Evaluate the network, in its own dtype; differentiable where gradients are enabled.

        `tau` is one number, or one per sample (b,) for samplers with a flow time per sample.
        """
        with self.timed("velocity"):
            dtype = device_and_dtype(self.model, self.noise.dtype)[1]
            try:
                speed = self.model(u.to(dtype), tau.to(dtype) if isinstance(tau, Tensor) else tau)
            except (TypeError, AttributeError, IndexError, RuntimeError) as cause:
                if not self.calls and (trouble := call_mismatch(cause, u.to(dtype), tau)):
                    raise trouble from cause
                raise
            check_velocity_output(speed, u)
        self.calls += 1
        return speed.to(u.dtype)

    def step(self, u: Tensor, tau: float, later: float) -> Tensor:
        """Take one Euler step of the plain flow."""
        return u + (later - tau) * self.velocity(u, tau)

    def shoot(self, u: Tensor, tau: float) -> Tensor:
        """Predict the data at τ = 1 from the state at τ."""
        return self.path.shoot(u, self.velocity(u, tau), tau)

    def gradient(self, value: Tensor, at: Tensor, along: Tensor | None = None) -> Tensor:
        """Differentiate the sum of `value`, weighted by `along`, in `at`.

        Counted as network time, which it nearly all is.
        """
        if torch.is_inference_mode_enabled():
            raise ParamsError(
                "this sampler expects to differentiate; got torch.inference_mode(), which forbids it for good. Call sample "
                "outside of it, or under torch.no_grad()."
            )
        with self.timed("velocity"):
            (found,) = torch.autograd.grad(value, at, torch.ones_like(value) if along is None else along)
        return found

    def project(
        self, u_hat: Tensor, warm: Projection | Moved | None = None, tolerance: float | None = None
    ) -> Projection:
        """Return feasible fields near the input, local optima, with their certificates."""
        with self.timed("projection"):
            return self.laws()(u_hat, self.params, warm=warm, tolerance=tolerance)

    def move(
        self, u_hat: Tensor, warm: Moved | Projection | None = None, tolerance: float | None = None
    ) -> Moved | Projection:
        """Return fields projected without certificates, for a step whose answer is not returned to the user."""
        with self.timed("projection"):
            laws = self.laws()
            call = getattr(laws, "move", laws)  # a user's own projector may only be callable
            found: Moved | Projection = call(u_hat, self.params, warm=warm, tolerance=tolerance)
        return found

    def excess(self, u: Tensor) -> Tensor:
        """Return the violations at u, (b, rows), in float64 and differentiable: h, max(g, 0), bound excess."""
        found = self.laws().excess(u, self.params)
        return found if found.shape[1] else u.flatten(1)[:, :0].double()  # no laws: no rows, but differentiable

    def renew(self) -> Tensor:
        """Draw fresh noise, each sample from its own stream."""
        return noise_of(self.model, white_noise(self.streams, self.noise.shape[1:])).to(self.noise)

    def laws(self) -> Projector:
        """Return the projector, or raise if there is none."""
        if self.projector is None:
            raise ParamsError(
                "this sampler expects a projector, whose laws it works with; got None. Pass snapfm.Projector(laws, shape, "
                "params), or use the plain flow: sampler=snapfm.sampling.Flow()."
            )
        return self.projector

    def tick(self) -> None:
        """Report one more finished step to the progress bar."""
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, len(self.times) - 1)

    def reach(self, tau: float) -> None:
        """Tick for every time up to `tau` that was not ticked yet, for samplers that do not stop at each."""
        while self.done + 1 < len(self.times) and self.times[self.done + 1] <= tau:
            self.tick()


class Sampler(Protocol):
    """What every sampler is: settings, and `run`, which turns noise into fields. All state of a run is in the task."""

    def run(self, task: Task) -> tuple[Tensor, Projection | None]:
        """Step through the task's times; return the fields and their projection, None if the run does not end with one."""
        ...


def fast(velocity: Velocity) -> Velocity:
    """Return the faster form that a network may offer by a method `evaluator()`; any other velocity as it is."""
    offered = getattr(velocity, "evaluator", None)
    found: Velocity = velocity if offered is None else offered()
    return found


def network_of(velocity: Velocity) -> Any:
    """Return the network behind such a faster form, its attribute `network`; any other velocity as it is."""
    return velocity if isinstance(velocity, nn.Module) else getattr(velocity, "network", velocity)


def device_and_dtype(velocity: Velocity, dtype: torch.dtype) -> tuple[torch.device, torch.dtype]:
    """Return the device and dtype of a velocity's first floating-point weight, else the CPU and `dtype`."""
    network = network_of(velocity)
    if isinstance(network, nn.Module):
        for weight in network.parameters():
            if weight.is_floating_point():
                return weight.device, weight.dtype
    return torch.device("cpu"), dtype


def white_noise(streams: tuple[torch.Generator, ...], shape: tuple[int, ...]) -> Tensor:
    """Draw white noise (b, *shape) in float64, each sample from its own stream."""
    return torch.stack([torch.randn(shape, generator=stream, dtype=torch.float64) for stream in streams])


def noise_of(velocity: Velocity, white: Tensor) -> Tensor:
    """Return the noise a flow starts from: white, unless the velocity transforms it."""
    own = getattr(velocity, "noise_from", None)
    return white if own is None else own(white)


def noise_units(velocity: Velocity, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return mean and size of the noise a flow starts from, each of a field's shape or a single number (), in float64."""
    white = torch.linspace(-1.0, 1.0, math.prod(shape), dtype=torch.float64).view(1, *shape)
    mean, unit = (noise_of(velocity, at).double().cpu() for at in (torch.zeros_like(white), torch.ones_like(white)))
    size = unit - mean
    if not torch.allclose(noise_of(velocity, white).double().cpu(), mean + size * white, rtol=1e-5) or bool(
        (size <= 0).any()
    ):
        raise ParamsError(
            "a sampler that draws around predictions expects noise that is independent at every point, mean + std·white; got a "
            "velocity with other noise. Sample in the coordinates in which its noise is white, or take PCFM()."
        )
    return _one_if_alike(mean[0]), _one_if_alike(size[0])


def _one_if_alike(values: Tensor) -> Tensor:
    return values.flatten()[0] if bool((values == values.flatten()[0]).all()) else values
