"""The heat equation's rows: exact on the modes of their scheme, and right to its order on true solutions."""

import math
from itertools import pairwise

import pytest
import torch

from snapfm.errors import LawError
from snapfm.laws import crank_nicolson, energy_balance, forward_euler, heat_kernel, mass
from snapfm_bench.problems.heat import exact, heat_grid

ALPHA = torch.tensor(1.7, dtype=torch.float64)
ROUNDING = 1e-12


def discrete(grid, factor):
    """A sine that shrinks by `factor` per step: the mode of a scheme, not of the equation."""
    x = grid.axis("x").points()
    return torch.sin(x)[:, None] * factor ** torch.arange(grid.axis("t").size, dtype=torch.float64)


def test_each_scheme_is_exact_on_its_own_mode():
    grid = heat_grid(20, 6)
    dx, dt = grid.spacing("x"), grid.spacing("t")
    bend = (2 * math.cos(dx) - 2) / dx**2  # what the second difference makes of sin(x)
    kappa, alpha = 0.01, float(ALPHA)
    euler = discrete(grid, 1 + kappa * dt * bend)
    implicit = discrete(grid, (1 + 0.5 * alpha * dt * bend) / (1 - 0.5 * alpha * dt * bend))
    kernel = discrete(grid, math.exp(-alpha * dt))
    assert forward_euler(grid, kappa, None).residual(euler, {}).abs().max() < ROUNDING
    assert crank_nicolson(grid, None).residual(implicit, {"alpha": ALPHA}).abs().max() < ROUNDING
    assert heat_kernel(grid, None).residual(kernel, {"alpha": ALPHA}).abs().max() < ROUNDING


@pytest.mark.parametrize("points", [20, 21])
def test_the_heat_kernel_is_exact_on_every_resolved_wave(points):
    grid = heat_grid(points, 4)
    x, t = grid.axis("x").points(), grid.axis("t").points()
    u = sum(torch.exp(-ALPHA * k**2 * t) * torch.cos(k * x + 0.3 * k)[:, None] for k in range((points - 1) // 2 + 1))
    assert heat_kernel(grid, None).residual(u, {"alpha": ALPHA}).abs().max() < ROUNDING


def test_crank_nicolson_is_right_to_second_order_in_space_and_time():
    sizes = []
    for points in (25, 49, 97):
        grid = heat_grid(points + 1, points)
        u = exact(grid, ALPHA[None], torch.tensor([0.4], dtype=torch.float64))[0]
        sizes.append(float(crank_nicolson(grid, None).residual(u, {"alpha": ALPHA}).abs().max()) / grid.spacing("t"))
    orders = [math.log2(a / b) for a, b in pairwise(sizes)]
    assert all(1.9 < order < 2.1 for order in orders), orders


def test_the_left_out_row_follows_from_mass_and_closure():
    grid = heat_grid(12, 3)
    # Random inner slices, closed, with the mass of the first: the missing Crank–Nicolson row is minus the others' sum.
    u = torch.randn(12, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    u[:-1, 1:] += (u[:-1, 0].mean() - u[:-1, 1:].mean(0))[None]
    u[-1] = u[0]
    assert mass(grid, None).residual(u, {}).abs().max() < ROUNDING
    ring = u[:-1]
    bend = ring.roll(1, 0) - 2 * ring + ring.roll(-1, 0)
    ratio = ALPHA * grid.spacing("t") / (2 * grid.spacing("x") ** 2)
    whole = ring.diff(dim=1) - ratio * (bend[:, 1:] + bend[:, :-1])
    stated = crank_nicolson(grid, None).residual(u, {"alpha": ALPHA})
    torch.testing.assert_close(stated, whole[1:])
    torch.testing.assert_close(whole[0], -stated.sum(0), rtol=0, atol=1e-11)


def test_the_energy_equality_is_infeasible_by_3e_8_beside_the_other_first_rows():
    # Initial condition and Euler rows leave the two ends of the second slice, mass their sum: equal ends have the least
    # energy there is, and the equality asks for less.
    grid = heat_grid()
    x, kappa, dt = grid.axis("x").points(), 0.01, grid.spacing("t")
    start = torch.sin(x + math.pi / 4)
    u = torch.zeros(100, 100, dtype=torch.float64)
    u[:, 0] = start
    u[1:-1, 1] = start[1:-1] + kappa * dt / grid.spacing("x") ** 2 * (start[2:] - 2 * start[1:-1] + start[:-2])
    u[0, 1] = u[-1, 1] = 0.5 * (start.sum() - u[1:-1, 1].sum())
    assert mass(grid, repeated=True).residual(u, {"u0": start})[0].abs() < ROUNDING
    assert forward_euler(grid, kappa, 1).residual(u, {}).abs().max() < ROUNDING
    assert 3.0e-8 < float(energy_balance(grid, kappa).residual(u, {})[0]) < 3.3e-8


@pytest.mark.parametrize("build", [lambda grid: forward_euler(grid, 0.01, 0), lambda grid: crank_nicolson(grid, 9)])
def test_steps_beyond_the_grid_are_refused(build):
    with pytest.raises(LawError, match=r"\(steps\) expects a whole number from 1 to 5, .*; got [09]\. Leave"):
        build(heat_grid(10, 6))
