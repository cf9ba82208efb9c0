"""Small projections that reach all parts of Newton's kernel: Schur and augmented systems, inequalities, bounds, functions."""

from __future__ import annotations

import torch
from torch import Tensor

import snapfm

Case = tuple[snapfm.Projector, Tensor, dict[str, Tensor]]


def _noise(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def bounded() -> Case:
    """Energies with bounds, and inequalities on some columns: two systems."""
    laws = [
        snapfm.Equality("energy", lambda u, p: (u**2).sum(0) - p["e"]),
        snapfm.Inequality("cubes", lambda u, p: (u[:, 1:] ** 3).sum(0) - 2.0),
        snapfm.Bounds(lower=-1.2, upper=1.5),
    ]
    energy = 3.0 + _noise(3, 5, seed=4).abs().clamp(max=1.0)
    return snapfm.Projector(laws, (6, 5), {"e": energy[:1]}), _noise(3, 6, 5), {"e": energy}


def augmented() -> Case:
    """Products that couple unknowns, with functions that have no instruction, and inequalities."""
    laws = [
        snapfm.Equality("steps", lambda u, p: torch.exp(0.3 * u[1:]) * u[:-1] - 1.0 + torch.sin(u[1:])),
        snapfm.Inequality("product", lambda u, p: u[0] * u[1] - 0.4),
    ]
    return snapfm.Projector(laws, (4, 5)), _noise(2, 4, 5), {}


def augmented_and_bounded() -> Case:
    """The same with bounds that hold."""
    laws = [
        snapfm.Equality("product", lambda u, p: u[:-1] * u[1:] - 0.3),
        snapfm.Bounds(lower=-0.7, upper=0.8),
    ]
    return snapfm.Projector(laws, (5, 3)), _noise(2, 5, 3, seed=8), {}


def eliminated() -> Case:
    """A nonlinear flux beside totals: rows with a share of eliminated unknowns."""
    laws = [
        snapfm.Equality("mass", lambda u, p: u.sum(0) - p["m"]),
        snapfm.Equality("flux", lambda u, p: u[0, 1:] - u[0, :-1] + 0.1 * (u[-1, :-1] ** 2 - u[1, :-1] ** 2)),
    ]
    mass = _noise(2, 6, seed=5)
    return snapfm.Projector(laws, (7, 6), {"m": mass[:1]}), _noise(2, 7, 6, seed=6), {"m": mass}


CASES = {case.__name__: case for case in (bounded, augmented, augmented_and_bounded, eliminated)}
