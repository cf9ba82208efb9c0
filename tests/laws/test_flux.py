"""The numerical fluxes against their definition, and the local flux law against a loop over cells."""

import pytest
import torch

from snapfm.errors import LawError
from snapfm.grid import Axis, Grid
from snapfm.laws import local_flux
from snapfm.laws.pde import SMOOTHING, engquist_osher, godunov, numerical_flux, split

GRID = Grid((Axis("x", 0.0, 1.0, 6), Axis("t", 0.0, 1.0, 5)))
STATES = torch.arange(-10, 11, dtype=torch.float64) / 10
LEFT, RIGHT = (side.flatten() for side in torch.meshgrid(STATES, STATES, indexing="ij"))


def by_definition(left: float, right: float) -> float:
    """The smallest u²/2 between the states where the wave opens, the largest where it breaks."""
    between = torch.linspace(min(left, right), max(left, right), 2001, dtype=torch.float64) ** 2 / 2
    return float(between.min() if left <= right else between.max())


def test_godunov_is_the_extreme_flux_between_the_states():
    expected = torch.tensor([by_definition(a, b) for a, b in zip(LEFT.tolist(), RIGHT.tolist())], dtype=torch.float64)
    # The definition is sampled, so its extreme inside the interval is missed by at most one sample squared.
    torch.testing.assert_close(godunov(LEFT, RIGHT), expected, rtol=0, atol=1e-6)


def test_both_fluxes_are_consistent_and_rise_with_left_and_fall_with_right():
    for flux in (godunov, engquist_osher):
        torch.testing.assert_close(flux(STATES, STATES), STATES**2 / 2, rtol=0, atol=SMOOTHING)
        table = flux(LEFT, RIGHT).reshape(21, 21)
        assert (table.diff(dim=0) >= -SMOOTHING).all()
        assert (table.diff(dim=1) <= SMOOTHING).all()


def test_the_smoothed_flux_leaves_godunovs_only_at_transonic_shocks():
    transonic = (LEFT > 0) & (RIGHT < 0)
    gap = (engquist_osher(LEFT, RIGHT) - godunov(LEFT, RIGHT)).abs()
    assert gap[~transonic].max() < SMOOTHING
    assert gap[transonic].min() > 1e-3


def test_the_split_flux_equals_godunovs_for_states_of_one_sign_and_has_no_jumps_in_its_slopes():
    left, right = LEFT.abs(), RIGHT.abs()
    torch.testing.assert_close(split(left, right), godunov(left, right), rtol=0, atol=0)
    torch.testing.assert_close(split(-left, -right), godunov(-left, -right), rtol=0, atol=0)
    near = torch.linspace(-1e-6, 1e-6, 21, dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(split(near, -near.detach()).sum() + split(-near.detach(), near).sum(), near)
    assert float(slope.abs().max()) <= 1e-6  # a jump would leave a slope of order one on one side of zero


@pytest.mark.parametrize("name", ["smoothed", "split", "godunov"])
@pytest.mark.parametrize("steps", [1, 3, None])
def test_local_flux_is_the_explicit_update_of_every_inner_cell(name, steps):
    u = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = local_flux(GRID, steps, name).residual(u, {})
    ratio, face = GRID.spacing("t") / GRID.spacing("x"), numerical_flux(name)
    assert found.shape == (4, steps or 4)
    for i in range(1, 5):
        for k in range(steps or 4):
            through = face(u[i, k], u[i + 1, k]) - face(u[i - 1, k], u[i, k])
            torch.testing.assert_close(found[i - 1, k], u[i, k + 1] - u[i, k] + ratio * through)


def test_a_law_beyond_the_grid_and_an_unknown_flux_are_refused_in_three_parts():
    with pytest.raises(
        LawError, match=r"local_flux\(steps\) expects a whole number from 1 to 4.*; got 5\. Leave the law"
    ):
        local_flux(GRID, 5)
    with pytest.raises(
        LawError, match=r"flux expects one of \['godunov', 'smoothed', 'split'\]; got 'roe'\. Use 'godunov'"
    ):
        local_flux(GRID, 1, "roe")
