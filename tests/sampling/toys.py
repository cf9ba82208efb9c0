"""Flows that can be followed by hand, and laws whose effect on them can be derived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_type_hints

import torch
from torch import Tensor

import snapfm
from snapfm import Equality, Projector
from snapfm.project import Moved, Projection
from snapfm.sampling import (
    ECI,
    PCFM,
    STRAIGHT,
    Conditional,
    DFlow,
    EndProjection,
    Flow,
    Guidance,
    Path,
    Relaxation,
    Samples,
    Spread,
    sample,
)
from snapfm.sampling.task import Task
from snapfm.seeds import base_seed, stream

EPS = torch.finfo(torch.float64).eps
SHAPE = (3, 5)  # no axis as long as the other, and none as long as the batches used


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@dataclass
class Gaussian:
    """The exact velocity of data N(mean, spread²) with noise N(0, 1), point by point; spread 0 is a point mass.

    States at τ are N(α·mean, ρ²) with ρ² = α²·spread² + σ², so v = α'·mean + (ρ'/ρ)(u − α·mean), and the flow maps noise z
    to α·mean + ρ·z: to mean + spread·z at the end.
    """

    mean: Tensor  # (*shape) or (b, *shape)
    spread: float
    cosine: bool = False

    def __call__(self, u: Tensor, tau: Any) -> Tensor:
        alpha, sigma, rise, fall = self._path(torch.as_tensor(tau, dtype=torch.float64).reshape(-1, 1, 1))
        mean = self.mean[: len(u)] if self.mean.ndim == u.ndim else self.mean
        square = alpha**2 * self.spread**2 + sigma**2
        growth = (alpha * rise * self.spread**2 + sigma * fall) / square
        return (rise * mean + growth * (u.double() - alpha * mean)).to(u.dtype)

    def end(self, noise: Tensor) -> Tensor:
        return self.mean + self.spread * noise

    def _path(self, tau: Tensor) -> tuple[Tensor, ...]:
        if self.cosine:
            angle, rate = 0.5 * torch.pi * tau, 0.5 * torch.pi
            return angle.sin(), angle.cos(), rate * angle.cos(), -rate * angle.sin()
        return tau, 1 - tau, torch.ones_like(tau), -torch.ones_like(tau)


MEAN = torch.linspace(-1.0, 2.0, 15, dtype=torch.float64).reshape(SHAPE)


def pinned() -> Projector:
    """u[0, 0] = c, one value per sample."""
    return Projector(
        [Equality("value", lambda u, p: u[0, 0] - p["c"])], SHAPE, {"c": torch.ones(1, dtype=torch.float64)}
    )


def summed() -> Projector:
    """Σu = c, one value per sample."""
    return Projector([Equality("sum", lambda u, p: u.sum() - p["c"])], SHAPE, {"c": torch.ones(1, dtype=torch.float64)})


def mixed() -> Projector:
    """A given first column and later columns of its sum: values and a balance together."""
    laws = [
        Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
        Equality("mass", lambda u, p: u[:, 1:].sum(0) - p["u0"].sum()),
    ]
    return Projector(laws, SHAPE, {"u0": torch.zeros(1, SHAPE[0], dtype=torch.float64)})


def curved() -> Projector:
    """Σu² = c: a sphere."""
    laws = [Equality("energy", lambda u, p: (u**2).sum() - p["c"])]
    return Projector(laws, SHAPE, {"c": torch.ones(1, dtype=torch.float64)})


def noise(count: int, seed: int, first: int = 0) -> Tensor:
    """Give the noise a run starts from: a velocity of zero hands it back."""
    out = sample(
        lambda u, tau: 0 * u, None, None, count, 1, seeded(seed), shape=SHAPE, dtype=torch.float64, first=first
    )
    return out.u


def run(sampler: Any, velocity: Any, project: Any, params: Any, count: int = 3, steps: int = 4, **more: Any) -> Samples:
    """Sample in float64 unless asked otherwise, from seed 0."""
    settings = {"generator": seeded(), "dtype": torch.float64, "shape": SHAPE} | more
    return sample(velocity, project, params, count, steps, sampler=sampler, **settings)


def task(velocity: Any, project: Projector | None, params: Any, start: Tensor, path: Path = STRAIGHT) -> Task:
    """Make a task by hand, to call parts of samplers."""
    seed = base_seed(seeded())
    streams = tuple(stream(seed, index) for index in range(len(start)))
    return Task(velocity, project, params, start, (0.0, 0.5, 1.0), path, streams)


class Watched:
    """A projector that keeps what it was asked and what it gave."""

    def __init__(self, project: Projector) -> None:
        self.project, self.shape = project, project.shape
        self.given: list[Tensor] = []
        self.tolerances: list[float | None] = []
        self.results: list[Projection | Moved] = []

    def __call__(self, u_hat: Tensor, params: Any, **settings: Any) -> Projection | Moved:
        return self._watch(self.project, u_hat, params, settings)

    def move(self, u_hat: Tensor, params: Any, **settings: Any) -> Projection | Moved:
        return self._watch(self.project.move, u_hat, params, settings)

    def _watch(self, call: Any, u_hat: Tensor, params: Any, settings: dict[str, Any]) -> Projection | Moved:
        self.given.append(u_hat.clone())
        self.tolerances.append(settings["tolerance"])
        self.results.append(call(u_hat, params, **settings))
        return self.results[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.project, name)


SPREAD = Spread.of_fields(torch.randn(40, *SHAPE, generator=seeded(3), dtype=torch.float64), rank=6)

# Every sampler of the library, with settings that are quick or that it needs, and others under names of their own.
_SETTINGS: dict[str, Any] = {
    "ECI": ECI(mixing=2, renew=3),
    "DFlow": DFlow(iterations=3),
    "Conditional": Conditional(SPREAD),
}
SAMPLERS: dict[str, Any] = {
    **{name.lower(): _SETTINGS.get(name) or kind() for name, kind in snapfm.sampling.SAMPLERS.items()},
    "adaptive": Flow(solver="adaptive"),
    "end-adaptive": EndProjection(Flow(solver="adaptive")),
    "guidance-through-network": Guidance(through_network=True),
    "pcfm-relaxed": PCFM(relaxation=Relaxation(iterations=2)),
    "conditional-kept": Conditional(SPREAD, renewal=0.5),
    "conditional-corrected": Conditional(SPREAD, corrections=2, measure="residual"),
}
LAWLESS = {name for name, sampler in SAMPLERS.items() if isinstance(sampler, Flow)}  # work without a projector
DIFFERENTIATES = {"guidance", "guidance-through-network", "dflow", "pcfm-relaxed"}  # the network or the laws
CERTIFIED = {  # end with a projection, as the type of what `run` returns says
    name for name, sampler in SAMPLERS.items() if get_type_hints(type(sampler).run)["return"] == tuple[Tensor, Projection]
}  # fmt: skip


def bent(u: Tensor, tau: Any) -> Tensor:
    """A velocity that bends in u and in τ, made of operations that round alike in every batch."""
    times = torch.as_tensor(tau, dtype=u.dtype).reshape(-1, 1, 1)
    return 0.3 + u / (1 + u * u) - times * u
