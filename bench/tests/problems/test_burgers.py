"""Godunov's scheme: conservation, entropy, shock speed, order; and what simulated fields say to the laws."""

import math
from itertools import pairwise

import pytest
import torch

import snapfm
from snapfm.grid import Axis, Grid
from snapfm_bench.problems.burgers import burgers_grid, godunov_fields

ROUNDING = 1e-13


def one(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


def riemann(grid: Grid, left: float, right: float, place: float = 0.5) -> torch.Tensor:
    """Evolve a jump at `place`; give the last slice."""
    start = torch.where(grid.axis("x").points() < place, left, right).double()[None]
    return godunov_fields(grid, start, one(left))[0][0, :, -1]


def test_inner_mass_falls_by_the_outflow_to_rounding():
    # Speeds from 0.1 to 1 on a coarse clock: samples take from one to five sub-steps.
    grid = burgers_grid(41, 9)
    speed = torch.tensor([0.1, 0.45, 1.0, -0.8], dtype=torch.float64)
    start = speed[:, None] * torch.cos(7 * grid.axis("x").points())
    fields, outflow = godunov_fields(grid, start, 0.5 * speed)
    change = grid.spacing("x") * fields[:, 1:-1].sum(1).diff(dim=1)
    assert (change + outflow).abs().max() < ROUNDING
    assert outflow.abs().max() > 1e-3


def test_sub_steps_belong_to_the_sample():
    grid = burgers_grid(41, 9)
    start = torch.tensor([0.1, 1.0], dtype=torch.float64)[:, None] * torch.cos(7 * grid.axis("x").points())
    both = godunov_fields(grid, start, start[:, 0])[0]
    alone = torch.cat([godunov_fields(grid, start[i : i + 1], start[i : i + 1, 0])[0] for i in range(2)])
    assert torch.equal(both, alone)


def test_no_new_extremes_and_no_new_variation():
    fields = snapfm.problem("burgers-bc-mass").draw_fields(1, 0, 8)
    assert fields.min() >= 0.0
    assert fields.max() <= 1.0
    # After the first step the only variation that enters is the left value's, which then stays.
    variation = fields.diff(dim=1).abs().sum(1)[:, 1:]
    assert variation.diff(dim=1).max() < ROUNDING


@pytest.mark.parametrize(("left", "right"), [(1.0, 0.0), (0.8, 0.2), (0.4, -0.9)])
def test_shocks_move_at_the_mean_of_their_states(left, right):
    grid = Grid((Axis("x", 0.0, 1.0, 201), Axis("t", 0.0, 0.4, 41)))
    last = riemann(grid, left, right)
    x = grid.axis("x").points()
    place = float(x[int((last - 0.5 * (left + right)).abs().argmin())])
    assert abs(place - (0.5 + 0.4 * 0.5 * (left + right))) <= 1.5 * grid.spacing("x")
    # Away from the few cells that smear it, both states are untouched.
    far = (x - place).abs() > 8 * grid.spacing("x")
    assert (last - torch.where(x < place, left, right))[far].abs().max() < 1e-6


def test_a_rarefaction_through_the_sonic_point_opens():
    errors = []
    for points in (51, 101, 201):
        grid = Grid((Axis("x", 0.0, 1.0, points), Axis("t", 0.0, 0.3, (points + 1) // 2)))
        x = grid.axis("x").points()
        # The jump stands between two points, where an expansion shock would be steady if it were let.
        place = 0.5 - 0.5 * grid.spacing("x")
        exact = ((x - place) / 0.3).clamp(-1.0, 1.0)
        errors.append(float((riemann(grid, -1.0, 1.0, place) - exact).abs().mean()))
    assert errors[-1] < 0.02  # a frozen jump is off by 0.3
    # First order with a logarithm: the corners of the fan are smeared.
    assert all(math.log2(a / b) > 0.6 for a, b in pairwise(errors)), errors


def test_first_order_on_a_smooth_wave_before_it_breaks():
    errors = []
    for points in (101, 201, 401):
        grid = Grid((Axis("x", 0.0, 1.0, points), Axis("t", 0.0, 0.2, (points - 1) // 10 + 1)))
        x = grid.axis("x").points()

        def bump(y):
            return 0.3 + 0.3 * torch.exp(-(((y - 0.35) / 0.1) ** 2))

        exact = bump(x)
        for _ in range(200):  # u = bump(x − ut): a contraction before the wave breaks at t = 0.39
            exact = bump(x - 0.2 * exact)
        last = godunov_fields(grid, bump(x)[None], bump(x)[:1])[0][0, :, -1]
        errors.append(float((last - exact).abs().mean()))
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert all(0.85 < order < 1.15 for order in orders), orders


def violation(name, **settings):
    problem = snapfm.problem(name, **settings)
    fields, params = problem.truth(4, torch.Generator().manual_seed(3))
    found = {}
    for law in problem.laws:
        rows = [
            law.residual(fields[i], {key: value[i] for key, value in params.items()}).abs().max()
            for i in range(len(fields))
        ]
        found[law.name] = max(map(float, rows))
    return found


def test_simulated_fields_obey_the_flux_laws_to_rounding():
    assert max(violation("burgers-bc-mass", mass="flux").values()) < ROUNDING
    assert max(violation("burgers-ic-mass", mass="flux").values()) < ROUNDING
    settings = {"flux": "godunov", "flux_steps": None, "mass": "balance", "position": None}
    found = violation("burgers-ic-mass-flux", **settings)
    assert found["initial"] == 0.0
    assert found["flux"] < ROUNDING
    assert violation("burgers-ic-mass-flux")["flux"] < 1e-12  # smoothed by ε = 1e-6: ε² remains


def test_the_trapezoidal_balance_holds_to_first_order_and_constant_mass_does_not_hold():
    coarse, fine = (violation("burgers-ic-mass", mass="balance", nx=n, nt=n)["mass"] for n in (101, 401))
    assert coarse < 1e-2
    assert fine < 0.5 * coarse
    assert violation("burgers-ic-mass")["mass"] > 0.1
    assert violation("burgers-bc-mass", mass="constant")["mass"] > 0.1
