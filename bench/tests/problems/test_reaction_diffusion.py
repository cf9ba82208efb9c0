"""Strang splitting: both halves exact, mass to rounding, second order in dt and dx; and the laws on its fields."""

import math
from itertools import pairwise

import torch

import snapfm
from snapfm.seeds import stream
from snapfm_bench.problems.reaction_diffusion import (
    DIFFUSIVITY,
    RATE,
    profile,
    react,
    reaction_diffusion_grid,
    strang_fields,
)

ROUNDING = 1e-13
FLUX = torch.tensor([[0.03, -0.02]], dtype=torch.float64)


def orders(errors):
    return [math.log2(a / b) for a, b in pairwise(errors)]


def evolve(points: int, substeps: int, rate: float, slices: int = 6):
    """Evolve a smooth state whose slopes at the ends the fluxes contradict, as those of the benchmark do."""
    grid = reaction_diffusion_grid(points, slices)
    start = 0.5 + 0.4 * torch.cos(3 * math.pi * grid.axis("x").points()[None])
    return strang_fields(grid, start, FLUX, rate, DIFFUSIVITY, substeps)[0]


def test_the_reaction_is_the_logistic_curve():
    u = torch.linspace(0.0, 1.5, 7, dtype=torch.float64).numpy()
    once = react(u, 3.0, 0.5)
    twice = react(react(u, 3.0, 0.2), 3.0, 0.3)
    assert abs(once - twice).max() < ROUNDING  # a flow
    slope = (react(u, 3.0, 1e-6) - react(u, 3.0, -1e-6)) / 2e-6
    assert abs(slope - 3.0 * u * (1 - u)).max() < 1e-8


def test_diffusion_decays_each_cosine_at_the_rate_of_finite_volumes():
    grid = reaction_diffusion_grid(17, 4)
    x, t = grid.axis("x").points(), grid.axis("t").points()
    rate = DIFFUSIVITY * (2 - 2 * math.cos(3 * math.pi * grid.spacing("x"))) / grid.spacing("x") ** 2
    found = strang_fields(grid, torch.cos(3 * math.pi * x)[None], torch.zeros(1, 2).double(), 0.0, DIFFUSIVITY)[0]
    exact = torch.cos(3 * math.pi * x)[:, None] * torch.exp(-rate * t)
    assert (found - exact).abs().max() < ROUNDING


def test_a_slope_that_carries_the_flux_stays():
    grid = reaction_diffusion_grid(17, 4)
    flux = torch.full((1, 2), 0.03, dtype=torch.float64)
    start = 1.0 - 0.03 / DIFFUSIVITY * grid.axis("x").points()[None]
    found = strang_fields(grid, start, flux, 0.0, DIFFUSIVITY)[0]
    assert (found - start[0][:, None]).abs().max() < 1e-12


def test_without_reaction_the_mass_grows_by_the_boundary_flux_to_rounding():
    grid = reaction_diffusion_grid(30, 9)
    start = profile(grid, stream(4, 0))[None]
    fields = strang_fields(grid, start, FLUX, 0.0, DIFFUSIVITY, substeps=3)[0]
    mass = grid.axis("x").weights("trapezoid") @ fields
    grown = (FLUX[0, 0] - FLUX[0, 1]) * grid.axis("t").points()
    assert (mass - mass[0] - grown).abs().max() < ROUNDING


def test_second_order_in_time():
    # A hundred times the benchmark's rate, so that the splitting shows.
    fine = evolve(65, 512, 100 * RATE)
    errors = [float((evolve(65, count, 100 * RATE) - fine).abs().max()) for count in (16, 32, 64)]
    assert all(1.9 < order < 2.1 for order in orders(errors)), errors


def test_second_order_in_space():
    fine = evolve(1025, 8, 100 * RATE)
    errors = []
    for points in (33, 65, 129):
        every = 1024 // (points - 1)
        errors.append(float((evolve(points, 8, 100 * RATE) - fine[::every])[:, 1:].abs().max()))
    assert all(1.8 < order < 2.2 for order in orders(errors)), errors


def test_one_step_per_slice_splits_the_benchmark_to_1e_6():
    grid = reaction_diffusion_grid()
    start = torch.stack([profile(grid, stream(0, index)) for index in range(8)])
    flux = FLUX.expand(8, 2)
    once, often = (strang_fields(grid, start, flux, RATE, DIFFUSIVITY, count) for count in (1, 32))
    assert (once - often).abs().max() < 1e-6


def test_initial_states_fill_zero_to_one():
    grid = reaction_diffusion_grid(128)
    states = torch.stack([profile(grid, stream(1, index)) for index in range(64)])
    assert torch.equal(states.amin(1), torch.zeros(64).double())
    assert torch.equal(states.amax(1), torch.ones(64).double())


def violation(problem, rows=slice(None)):
    fields, params = problem.truth(6, torch.Generator().manual_seed(2))
    law = problem.laws[1]
    found = [law.residual(fields[i], {"u0": params["u0"][i]})[rows].abs().max() for i in range(len(fields))]
    return float(max(found))


def test_inner_mass_evolution_holds_to_third_order_per_step():
    # In the second half, where the jump between initial slope and boundary flux has been smoothed.
    sizes = [
        violation(snapfm.problem("reaction-diffusion-ic-mass", nt=nt, inner=True), slice(nt // 2, None))
        for nt in (26, 51, 101)
    ]
    assert all(2.7 < order < 3.3 for order in orders(sizes)), sizes


def test_mass_evolution_over_all_points_holds_to_first_order_in_space():
    coarse, fine = (violation(snapfm.problem("reaction-diffusion-ic-mass", nx=n), slice(50, None)) for n in (64, 253))
    assert coarse < 1e-3
    assert fine < 0.4 * coarse
