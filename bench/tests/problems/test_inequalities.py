"""Burgers with Oleinik's entropy condition, and reaction–diffusion within 0 and 1: true fields obey, answers are certified."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import snapfm
from snapfm.errors import DataError, LawError
from snapfm.grid import Axis, Grid
from snapfm.laws import oleinik
from snapfm.metrics.scores import residuals
from snapfm_bench.problems.burgers import burgers_grid, godunov_fields

ROUNDING = 1e-13
SAMPLES = 32
BURGERS, REACTION = "burgers-ic-mass-entropy", "reaction-diffusion-ic-mass-bounds"


def violations(name: str, count: int = 16, **settings: Any) -> dict[str, Tensor]:
    """Give every row of every law on true fields (count, rows)."""
    problem = snapfm.problem(name, **settings)
    fields, params = problem.draw_truth(3, 0, count)
    return {law.name: residuals(law, fields, params) for law in problem.laws}


def test_the_entropy_condition_limits_rises_and_nothing_else():
    grid = Grid((Axis("x", 0.0, 1.0, 3), Axis("t", 0.0, 0.5, 3)))
    u = torch.tensor([[0.0, 0.0, 0.0], [9.0, 2.0, 1.5], [0.0, -9.0, 2.0]], dtype=torch.float64)
    found = oleinik(grid).residual(u, {})
    # No rows at t = 0; rises of at most 0.5/0.25 and 0.5/0.5; falls of any size.
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.5], [-13.0, -0.5]], dtype=torch.float64))
    torch.testing.assert_close(oleinik(grid, 0.5).residual(u, {})[0], torch.tensor([-2.0, -0.5], dtype=torch.float64))
    with pytest.raises(LawError, match=r"oleinik\(convexity\) expects a positive number; got 0"):
        oleinik(grid, 0)


def test_a_grid_that_starts_later_has_a_row_at_every_time():
    grid = Grid((Axis("x", 0.0, 1.0, 3), Axis("t", 0.5, 1.0, 2)))
    assert oleinik(grid).residual(torch.zeros(3, 2), {}).shape == (2, 2)


@pytest.mark.parametrize("points", [(51, 51), (101, 101), (41, 81), (101, 11)])
def test_fields_of_the_scheme_obey_half_the_convexity_without_exception(points: tuple[int, int]):
    """Proven in math.md, eq. oleinik; here with jumps, ramps and noise, and with sub-steps."""
    grid = burgers_grid(*points)
    x = grid.axis("x").points()
    random = torch.rand(20, points[0], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    starts = torch.cat([random, torch.where(x < 0.3, 0.0, 1.0)[None], torch.sigmoid((0.5 - x) / 0.02)[None]]).double()
    for left in (0.0, 0.4, 1.0):
        fields, _ = godunov_fields(grid, starts, torch.full((len(starts),), left, dtype=torch.float64))
        worst = max(float(oleinik(grid, 0.5).residual(one, {}).max()) for one in fields)
        assert worst < ROUNDING


def test_true_fields_obey_the_theorem_to_the_allowance_of_the_scheme():
    found = violations(BURGERS)
    assert float(found["initial"].max()) == 0.0
    assert float(found["mass"].max()) < ROUNDING
    grid = burgers_grid()
    allowance = grid.spacing("x") / grid.axis("t").points()[1:]
    excess = found["entropy"].reshape(-1, 100, 100)
    assert (excess <= allowance + ROUNDING).all()
    assert float(excess.max()) > 0.01  # the scheme's own: E = 1 does not hold to rounding
    assert float(violations(BURGERS, convexity=0.5)["entropy"].max()) < ROUNDING


def test_what_the_scheme_exceeds_the_theorem_by_falls_with_the_spacing():
    coarse, fine = (violations(BURGERS, 8, nx=n, nt=n)["entropy"].reshape(8, n - 1, n - 1) for n in (51, 201))
    late = float(coarse[..., 25:].max()), float(fine[..., 100:].max())
    assert late[1] < 0.35 * late[0]  # a quarter for first order


def test_true_fields_stay_within_their_limits_and_are_those_of_the_equation():
    found = violations(REACTION)
    assert float(found["bounds"].max()) == 0.0
    assert float(found["initial"].max()) == 0.0
    plain = violations("reaction-diffusion-ic-mass", inner=True)
    assert float(found["mass"].max()) <= 1.1 * float(plain["mass"].max())
    # Without the choice among fluxes most fields leave: the limits are no law of the equation with inflow.
    fields, _ = snapfm.problem("reaction-diffusion-ic-mass").draw_truth(3, 0, 16)
    assert int((fields.flatten(1).amax(1) > 1.0).sum()) >= 8


def test_draws_within_limits_depend_on_their_index_alone():
    problem = snapfm.problem(REACTION)
    fields, params = problem.draw_truth(5, 0, 3)
    again, _ = problem.draw_truth(5, 1, 2)
    assert torch.equal(again, fields[1:])
    assert torch.equal(problem.draw_params(5, 0, 3)["u0"], params["u0"])
    own = snapfm.problem(REACTION, initial_seed=None).draw_truth(5, 0, 2)[0]
    assert not torch.equal(own[0, :, 0], own[1, :, 0])
    assert own.max() <= 1.0


def test_a_state_whose_fields_always_leave_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("snapfm_bench.problems.reaction_diffusion._DRAWS", 1)
    monkeypatch.setattr("snapfm_bench.problems.reaction_diffusion.LIMITS", (0.4, 0.5))
    with pytest.raises(
        DataError, match=r"expects a state whose fields can stay within .*; got 0, of which none in 8 does"
    ):
        snapfm.problem(REACTION).params(1)


@pytest.mark.parametrize(("name", "settings"), [(BURGERS, {}), (BURGERS, {"convexity": 0.5}), (REACTION, {})])
def test_projections_of_noisy_fields_are_certified(name: str, settings: dict[str, Any]):
    """32 of 32, near as a model's fields are; every claim is checked with the laws themselves."""
    problem = snapfm.problem(name, **settings)
    fields, params = problem.draw_truth(5, 0, SAMPLES)
    noise = torch.randn(fields.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    u_hat = fields + 0.05 * noise
    project = snapfm.Projector(problem.laws, problem.grid.shape, params, tolerance=1e-8)
    found = project(u_hat, params)
    assert int(found.converged.sum()) == SAMPLES
    for law in problem.laws:
        assert float(residuals(law, found.u, params).max()) <= 1e-8
    # Nearest: not further than the true fields, where those are lawful.
    if name == REACTION or settings:
        assert ((found.u - u_hat).flatten(1).norm(dim=1) <= (fields - u_hat).flatten(1).norm(dim=1) * 1.001).all()


@pytest.mark.parametrize(
    ("name", "size", "samples"), [(BURGERS, {"nx": 26, "nt": 26}, SAMPLES), (BURGERS, {}, 8), (REACTION, {}, SAMPLES)]
)
def test_projections_of_white_noise_are_certified(name: str, size: dict[str, int], samples: int):
    problem = snapfm.problem(name, **size)
    params = problem.draw_params(5, 0, samples)
    noise = torch.randn(samples, *problem.grid.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = snapfm.Projector(problem.laws, problem.grid.shape, params, tolerance=1e-8)(noise, params)
    assert int(found.converged.sum()) == samples
    for law in problem.laws:
        assert float(residuals(law, found.u, params).max()) <= 1e-8
