"""Laws for the emulated device: problems on small grids, laws of many fields of physics, laws made for it, random ones."""

from __future__ import annotations

import torch
from benchmarks.any_law.case import CASES, SMALL
from benchmarks.random_problems import random_problem
from tests.device.compared import Given
from torch import Tensor

import snapfm

SAMPLES = 2
NOISE = 0.05  # of fields near truth
# Settings of the twelve problems: a few points along each axis.
PROBLEMS: dict[str, dict[str, int]] = {
    "heat-ic-mass": {"nx": 9, "nt": 8},
    "heat-ic-mass-pde-energy": {"nx": 9, "nt": 8},
    "heat-ic-mass-implicit": {"nx": 32, "nt": 10},
    "burgers-bc-mass": {"nx": 9, "nt": 8},
    "burgers-ic": {"nx": 9, "nt": 8},
    "burgers-ic-mass": {"nx": 9, "nt": 8},
    "burgers-ic-mass-flux": {"nx": 11, "nt": 9},
    "burgers-ic-mass-entropy": {"nx": 9, "nt": 6},
    "reaction-diffusion-ic-mass": {"nx": 8, "nt": 7},
    "reaction-diffusion-ic-mass-bounds": {"nx": 8, "nt": 6},
    "navier-stokes-ic-mass": {"size": 4, "nt": 5},
    "navier-stokes-ic-mass-enstrophy": {"size": 4, "nt": 5},
}
# Incompressible flow, Darcy's law, shallow water, a gas, rotations, bonds of particles, monotone profiles, densities and more.
GALLERY = (
    "divergence_free", "steady_navier_stokes", "darcy", "shallow_water", "euler", "rotations", "particles", "monotone",
    "transport", "entropy", "reaction_diffusion", "obstacle",
)  # fmt: skip
# Sizes at which stages have so many rows that they are solved one after the other.
MARCHED = {"reaction_diffusion": 7}


def problem(name: str, **settings: int) -> Given | None:
    """Take samples of a benchmark problem, near its true fields."""
    made, generator = snapfm.problem(name, **(settings or PROBLEMS[name])), torch.Generator().manual_seed(0)
    fields, params = made.truth(SAMPLES, generator)
    u_hat = fields + NOISE * torch.randn(fields.shape, generator=generator, dtype=fields.dtype)
    return Given.of(made.laws, u_hat, params, 1e-6)


def gallery(stem: str) -> Given | None:
    """Take samples of a case of benchmarks.any_law, at the size for tests or at that of MARCHED."""
    case = next(one for one in CASES.values() if one.stem == stem)
    setting = case.setting(MARCHED.get(stem, case.tiny), SAMPLES)
    return Given.of(setting.laws, case.input(setting, SMALL), setting.params, case.tolerance)


def _noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sums() -> Given | None:
    """Sums and energies along the first axis, and along the last: groups of unknowns apart, and groups of neighbors.

    One group of a sample is constant: it has no direction of its own to be stretched along.
    """
    laws = [
        snapfm.Equality("columns", lambda u, p: u[0].sum(0) - p["m"]),
        snapfm.Equality("their energy", lambda u, p: (u[0] ** 2).sum(0) - p["m"] ** 2 - 2.0),
        snapfm.Equality("rows", lambda u, p: u[1].sum(1) - p["m"]),
        snapfm.Equality("energy of those", lambda u, p: (u[1] ** 2).sum(1) - p["m"] ** 2 - 2.0),
    ]
    u_hat = _noise(SAMPLES, 2, 5, 5, seed=3)
    u_hat[0, 1, 1] = 0.3
    return Given.of(laws, u_hat, {"m": 0.5 + 0.1 * _noise(SAMPLES, 5, seed=4)})


def totals() -> Given | None:
    """Affine sums along both axes, which share unknowns. Two sums of a column are rows that follow each other."""
    laws = [
        snapfm.Equality("columns", lambda u, p: torch.stack([u[:3].sum(0), u[2:].sum(0)], 1) - p["m"][:, None]),
        snapfm.Equality("rows", lambda u, p: u[:, 1:4].sum(1) - 1.0),
    ]
    return Given.of(laws, _noise(SAMPLES, 5, 5, seed=3), {"m": 0.5 + 0.1 * _noise(SAMPLES, 5, seed=4)})


def substituted() -> Given | None:
    """Affine sums beside functions of what a nonlinear step has determined."""

    def step(u, p):
        flux = torch.sin(u[:, 0]) * u[:, 0].roll(1)
        return u[:, 1] - u[:, 0] - 0.1 * (flux - flux.roll(1))

    laws = [
        snapfm.Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
        snapfm.Equality("step", step),
        snapfm.Equality("sums", lambda u, p: u[:-1].sum(1) + torch.diff(u[:, 0] * torch.sin(u[:, 1])) - 1.0),
    ]
    return Given.of(laws, _noise(SAMPLES, 5, 6, seed=3), {"u0": _noise(SAMPLES, 5, seed=4)})


def implicit(dt: float = 0.03) -> Given | None:
    """Implicit steps that multiply neighbors of the new state: a march, whose factors do not serve all of its stages."""

    def step(u, p):
        new, old = u[:, 1:], u[:, :-1]
        flux = torch.sin(new * new.roll(2, 0))
        return new - old + dt * (new * new.roll(-1, 0) - 0.7 * new.roll(1, 0) ** 2 + flux - flux.roll(1, 0))

    laws = [snapfm.Equality("initial", lambda u, p: u[:, 0] - p["u0"]), snapfm.Equality("step", step)]
    return Given.of(laws, _noise(SAMPLES, 18, 16, seed=3), {"u0": 0.7 * _noise(SAMPLES, 18, seed=4)})


MADE = {one.__name__: one for one in (sums, totals, substituted, implicit)}


def random_law(number: int) -> Given | None:
    """Take a random problem of benchmarks.random_problems."""
    made = random_problem(number)
    return Given.of(made.laws, made.u_hat, made.params)
