"""A small world for adapters: decaying waves whose energy per slice is known, a network for them, and exact Gaussians."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from snapfm import Equality, Projector
from snapfm.sampling import Path

SHAPE = (8, 6)  # space, time
EPS = torch.finfo(torch.float64).eps


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def waves(count: int, generator: torch.Generator) -> Tensor:
    """Draw fields exp(−k/5) sin(x + φ), φ ~ U(0, π/2): on eight points of a period every phase has the same energy."""
    x = 2 * torch.pi * torch.arange(SHAPE[0], dtype=torch.float64) / SHAPE[0]
    phase = 0.5 * torch.pi * torch.rand(count, 1, generator=generator, dtype=torch.float64)
    decay = torch.exp(-torch.arange(SHAPE[1], dtype=torch.float64) / 5)
    return torch.sin(x + phase)[:, :, None] * decay


def energies() -> Tensor:
    """The energy of every slice of a wave, (1, nt)."""
    return 4 * torch.exp(-2 * torch.arange(SHAPE[1], dtype=torch.float64) / 5)[None]


def is_in_three_parts(message: str, expected: str, came: str, cure: str) -> bool:
    places = [message.find(words) for words in (expected, came, cure)]
    return -1 not in places and places == sorted(places)


def energy_projector() -> Projector:
    law = Equality("energy", lambda u, p: u.square().sum(0) - p["energy"])
    return Projector([law], SHAPE, {"energy": energies()})


def unlike_waves(u: Tensor) -> float:
    """Give the share of energy that is no wave of one period in space: 0 for data, 6/8 for noise."""
    spectrum = torch.fft.rfft(u.double(), dim=1).abs().square()
    power = spectrum[:, 0] + 2 * spectrum[:, 1:-1].sum(1) + spectrum[:, -1]
    return float(1 - (2 * spectrum[:, 1]).sum() / power.sum())


class Net(nn.Module):
    """A plain network of flat fields and time, (b, 48) and (b,), with one seed for its weights."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        size = SHAPE[0] * SHAPE[1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layers = nn.Sequential(
                nn.Linear(size + 1, width), nn.SELU(),
                nn.Linear(width, width), nn.SELU(),
                nn.Linear(width, width), nn.SELU(),
                nn.Linear(width, size),
            )  # fmt: skip

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.layers(torch.cat([x, t[:, None]], dim=1))


def fit(network: nn.Module, loss: Callable[[], Tensor], steps: int = 600) -> None:
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        schedule.step()


@dataclass(frozen=True)
class Gaussian:
    """Data N(mean, std²) at every point, for which everything a model could predict is known."""

    path: Path
    mean: float = 0.7
    std: float = 0.4

    def data(self, u: Tensor, tau: float) -> Tensor:
        alpha, sigma = self.path.data(tau), self.path.noise(tau)
        gain = alpha * self.std**2 / (alpha**2 * self.std**2 + sigma**2)
        return self.mean + gain * (u - alpha * self.mean)

    def noise(self, u: Tensor, tau: float) -> Tensor:
        alpha, sigma = self.path.data(tau), self.path.noise(tau)
        return sigma / (alpha**2 * self.std**2 + sigma**2) * (u - alpha * self.mean)

    def v(self, u: Tensor, tau: float) -> Tensor:
        return self.path.data(tau) * self.noise(u, tau) - self.path.noise(tau) * self.data(u, tau)

    def velocity(self, u: Tensor, tau: float) -> Tensor:
        return self.path.data_slope(tau) * self.data(u, tau) + self.path.noise_slope(tau) * self.noise(u, tau)
