"""The heat problems: exact solutions, and which laws they obey."""

import math

import torch

import snapfm
from snapfm_bench.problems.heat import exact, heat_grid

ROUNDING = 1e-12


def violation(name, **settings):
    problem = snapfm.problem(name, **settings)
    fields, params = problem.truth(4, torch.Generator().manual_seed(3))
    found = {}
    for law in problem.laws:
        rows = torch.stack(
            [law.residual(fields[i], {key: value[i] for key, value in params.items()}).flatten() for i in range(4)]
        )
        size = rows.clamp(min=0.0) if isinstance(law, snapfm.Inequality) else rows.abs()
        found[law.name] = float(size.max())
    return found


def test_the_exact_solution_solves_the_equation():
    grid = heat_grid(201, 401)
    alpha = torch.tensor([2.0], dtype=torch.float64)
    u = exact(grid, alpha, torch.tensor([0.3], dtype=torch.float64))[0]
    rate = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * grid.spacing("t"))
    bend = (u[2:] - 2 * u[1:-1] + u[:-2])[:, 1:-1] / grid.spacing("x") ** 2
    assert (rate - alpha * bend).abs().max() < 1e-3


def test_true_fields_obey_the_physically_right_sets_to_rounding():
    assert max(violation("heat-ic-mass").values()) < ROUNDING
    assert max(violation("heat-ic-mass-implicit", scheme="kernel", pde_steps=None, phase=None).values()) < ROUNDING


def test_true_fields_obey_crank_nicolson_to_third_order_per_step():
    coarse, fine = (violation("heat-ic-mass-implicit", nx=n + 1, nt=n, pde_steps=None)["pde"] for n in (51, 101))
    assert 2.7 < math.log2(coarse / fine) < 3.3
    assert fine < 1e-3


def test_true_fields_contradict_the_released_pde_rows_and_mass_and_obey_its_energy():
    found = violation("heat-ic-mass-pde-energy")
    assert found["initial"] == 0.0
    assert found["energy"] == 0.0
    assert found["pde"] > 0.5  # κ = 0.01 is not α
    assert found["mass"] > 1e-2  # the repeated point counts twice
