"""Laws for the emulated device: the benchmark problems on small grids, laws of many fields of physics, and random ones."""

from __future__ import annotations

import torch
from benchmarks.any_law.case import CASES, SMALL
from benchmarks.random_problems import random_problem
from tests.device.compared import Given

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


def random_law(number: int) -> Given | None:
    """Take a random problem of benchmarks.random_problems."""
    made = random_problem(number)
    return Given.of(made.laws, made.u_hat, made.params)
