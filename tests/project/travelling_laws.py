"""Projectors of every kind on laws of a module, and a Dataset that holds them: what the processes of test_pickling.py import."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tests.solve.hidden import hidden
from torch import Tensor
from torch.utils.data import Dataset

from snapfm import Bounds, Equality, Inequality, Metric, Projector
from snapfm.laws import Params
from snapfm.linear import Fronts

SHAPE = (3, 5)
PARAMS = {"m": torch.full((1, 5), 2.0)}


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def total(u: Tensor, p: Params) -> Tensor:
    return u.sum(0) - p["m"]


def energy(u: Tensor, p: Params) -> Tensor:
    return (u**2).sum(0) - p["m"]


def sizes(u: Tensor, p: Params) -> Tensor:
    return u.abs().sum(0) - p["m"]


def implicit(u: Tensor, p: Params) -> Tensor:
    """A step in time that couples all points, after an initial state: solved stage by stage."""
    old, new = u[:, :-1], u[:, 1:]
    around = torch.roll(new, 1, 0) + torch.roll(new, -1, 0) - 2.0 * new
    return torch.cat([(u[:, 0] - p["m"].mean()).flatten(), (new - old - 0.1 * (around - new**3)).flatten()])


def products(u: Tensor, p: Params) -> Tensor:
    return torch.cumprod(1.0 + 0.3 * hidden(u), 0)[-1] - p["m"]


def spectrum(u: Tensor, p: Params) -> Tensor:
    return torch.fft.ifft2(torch.fft.fft2(u**2)).real.sum(0) - 1.0


METRIC = Metric(1.0 + randn(*SHAPE).abs(), randn(2, *SHAPE, seed=1), torch.ones(2))
KINDS: dict[str, Callable[[], Projector]] = {
    "affine": lambda: Projector([Equality("total", total)], SHAPE, PARAMS),
    "nonlinear": lambda: Projector([Equality("energy", energy), Bounds(lower=torch.zeros(SHAPE))], SHAPE, PARAMS),
    "inequality": lambda: Projector([Inequality("energy", energy)], SHAPE, PARAMS, 1e-6, linear=Fronts(), limit=90),
    "kinks": lambda: Projector([Equality("sizes", sizes)], SHAPE, PARAMS),
    "march": lambda: Projector([Equality("implicit", implicit)], SHAPE, PARAMS),
    "opaque": lambda: Projector([Equality("products", products)], SHAPE, PARAMS),
    "metric": lambda: Projector([Equality("energy", energy)], SHAPE, PARAMS, metric=METRIC),
    "units": lambda: Projector(
        [Equality("energy", energy), Equality("total", total)], SHAPE, PARAMS, {"total": 1e-5}, metric=Metric(METRIC.diagonal)
    ),
}  # fmt: skip


def bits(project: Projector) -> list[Tensor]:
    found = project(randn(4, *SHAPE, seed=7), PARAMS)
    return [found.u, found.violation, found.stationarity, found.iterations]


class Projected(Dataset):
    """Fields of every projector, projected where the worker is."""

    def __init__(self, projectors: dict[str, Projector]) -> None:
        self.projectors = projectors

    def __len__(self) -> int:
        return len(self.projectors)

    def __getitem__(self, index: int) -> list[Tensor]:
        return bits(list(self.projectors.values())[index])
