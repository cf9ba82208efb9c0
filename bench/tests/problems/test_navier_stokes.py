"""The vorticity solver: exact solutions, order, conservation; random states; restriction; the laws on its fields."""

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.fft
import torch

import snapfm
from snapfm.errors import UnknownName
from snapfm.grid import Axis, Grid
from snapfm.seeds import draw
from snapfm_bench.problems.navier_stokes import (
    FORCE,
    VISCOSITY,
    navier_stokes_fields,
    navier_stokes_grid,
    random_state,
    regrid,
    sine_state,
    vorticity_waves,
    wide_state,
)

ROUNDING = 1e-12


def states(points: int, count: int = 2) -> np.ndarray:
    """Random states, three times as strong as the benchmark's so that advection matters at once."""
    return 3.0 * draw(5, 0, count, lambda random: random_state(random, points)).numpy()


def last(start, forcing, duration, viscosity, step):
    for spectrum in vorticity_waves(start, forcing, 2, duration, viscosity, step):
        final = spectrum
    return scipy.fft.irfft2(final, s=start.shape[-2:])


def square(points):
    x = np.arange(points) / points
    return 2 * np.pi * x[:, None], 2 * np.pi * x[None, :]


def test_waves_of_one_length_only_decay():
    x, y = square(16)
    start = (np.cos(3 * x) + 0.5 * np.sin(3 * y + 1.0) + 0.0 * x)[None]
    found = last(start, np.zeros_like(start), 2.0, 0.01, 0.1)
    assert abs(found - start * math.exp(-0.01 * (6 * math.pi) ** 2 * 2.0)).max() < ROUNDING


def test_forced_from_rest_the_forced_wave_grows_to_its_balance():
    grid = Grid((*navier_stokes_grid(8).axes[:2], Axis("t", 0.0, 10.0, 3)))
    phase = torch.tensor([0.4], dtype=torch.float64)
    found = navier_stokes_fields(torch.zeros(1, 16, 16, dtype=torch.float64), phase, grid, step=0.05)[0]
    x, t = grid.axis("x").points(), grid.axis("t").points()
    rate = VISCOSITY * 8 * math.pi**2
    wave = FORCE * torch.sin(2 * math.pi * (x[:, None] + x) + phase)
    exact = wave[:, :, None] * (1 - torch.exp(-rate * t)) / rate
    # Viscosity is exact, a steady source is integrated to fourth order.
    assert (found - exact).abs().max() < 1e-9


def test_fourth_order_in_time():
    start = states(32)
    x, y = square(32)
    forcing = np.broadcast_to(0.1 * np.sin(x + y), start.shape)
    fine = last(start, forcing, 1.0, VISCOSITY, 0.00625)
    errors = [abs(last(start, forcing, 1.0, VISCOSITY, step) - fine).max() for step in (0.1, 0.05, 0.025)]
    assert all(3.7 < math.log2(a / b) < 4.5 for a, b in pairwise(errors)), errors


def test_the_default_step_is_right_to_1e_6():
    grid = Grid((*navier_stokes_grid(16).axes[:2], Axis("t", 0.0, 3.0, 4)))
    start = draw(0, 0, 3, lambda random: random_state(random, 64))
    phase = torch.linspace(0.0, 1.5, 3, dtype=torch.float64)
    gap = navier_stokes_fields(start, phase, grid) - navier_stokes_fields(start, phase, grid, step=0.0125)
    assert gap.abs().max() < 1e-6


def test_without_viscosity_and_force_energy_and_enstrophy_stay():
    start = states(32)
    spectra = list(vorticity_waves(start, np.zeros_like(start), 2, 1.0, 0.0, 0.01))
    k = 2 * np.pi * np.fft.fftfreq(32, 1 / 32)
    inverse = 1 / np.where(k[:, None] ** 2 + k**2 == 0, 1.0, k[:, None] ** 2 + k**2)
    totals = []
    for spectrum in spectra:
        whole = abs(scipy.fft.fft2(scipy.fft.irfft2(spectrum, s=(32, 32)))) ** 2
        totals.append((whole.sum((1, 2)), (whole * inverse).sum((1, 2))))
    moved = abs(spectra[1] - spectra[0]).max() / abs(spectra[0]).max()
    assert moved > 0.1
    for before, after in zip(*totals):
        assert abs(after / before - 1).max() < 1e-8


def test_mean_vorticity_stays_to_rounding():
    start = states(16) + 0.25
    found = last(start, np.zeros_like(start), 2.0, VISCOSITY, 0.05)
    assert abs(found.mean((1, 2)) - start.mean((1, 2))).max() < ROUNDING


def test_random_states_have_the_power_asked_for_and_survive_refinement():
    fields = draw(3, 0, 128, lambda random: random_state(random, 32))
    assert fields.mean((1, 2)).abs().max() < ROUNDING
    k = np.fft.fftfreq(32, 1 / 32)
    length = k[:, None] ** 2 + k**2
    power = (abs(np.fft.fft2(fields.numpy()) / 32**2) ** 2).mean(0)
    for one in (1, 2, 5, 10):  # every wave of squared length one: 4 or 8 of them, 128 draws each
        expected = 2 * 7.0**3 * (4 * np.pi**2 * one + 49) ** -2.5
        assert power[length == one].mean() == pytest.approx(expected, rel=0.25)
    fine = draw(3, 0, 2, lambda random: random_state(random, 64))
    coarse = regrid(scipy.fft.rfft2(fine.numpy()), 64, 32)
    assert abs(coarse - fields[:2].numpy()).max() < ROUNDING


def test_wide_states_include_waves_as_large_as_the_sine_and_survive_refinement():
    fields = draw(3, 0, 256, lambda random: wide_state(random, 16))
    assert float(fields.mean(dim=(1, 2)).abs().max()) < ROUNDING
    power = scipy.fft.rfft2(fields.numpy())
    power = abs(power[:, :, :8]) ** 2
    single = power.max(axis=(1, 2)) > 0.99 * (power.sum(axis=(1, 2)) - power[:, 9:, 0].sum(axis=1))
    assert 0.08 < single.mean() < 0.3  # half are waves, a third of these single ones
    sizes = fields.flatten(1).std(1)
    assert float((sizes > float(sine_state(16).std())).double().mean()) > 0.1
    assert float((sizes < 0.2).double().mean()) > 0.1
    fine = draw(3, 0, 8, lambda random: wide_state(random, 32))
    assert (
        abs(regrid(scipy.fft.rfft2(fine.numpy()), 32, 15) - regrid(scipy.fft.rfft2(fields[:8].numpy()), 16, 15)).max()
        < 1e-3
    )


def test_the_training_distribution_may_be_wide():
    narrow, wide = (
        snapfm.problem("navier-stokes-ic-mass", resolution=24, nt=3, training=name) for name in ("random", "wide")
    )
    assert not torch.allclose(narrow.draw_fields(0, 0, 2), wide.draw_fields(0, 0, 2))
    for one, other in zip(narrow.draw_truth(0, 0, 2)[0], wide.draw_truth(0, 0, 2)[0]):
        assert torch.equal(one, other)  # inference is the same task
    with pytest.raises(UnknownName, match=r"\(training\) expects one of \['random', 'wide'\]; got 'narrow'"):
        snapfm.problem("navier-stokes-ic-mass", training="narrow")


@pytest.mark.parametrize("size", [5, 8, 15, 16, 40])
def test_regrid_evaluates_the_same_waves_on_other_points(size):
    def wave(points):
        x, y = square(points)
        return 0.3 + np.cos(x + 2 * y) + 0.5 * np.sin(2 * x - y)

    assert abs(regrid(scipy.fft.rfft2(wave(16)), 16, size) - wave(size)).max() < ROUNDING


def test_states_and_fields_lie_on_the_points_of_the_grid():
    for discretization in ("grid", "release"):
        problem = snapfm.problem("navier-stokes-ic-mass", nt=2, resolution=32, discretization=discretization)
        y = problem.grid.axis("y").points()
        expected = torch.sin(2 * math.pi * y).expand(16, 16)
        assert (problem.params(1)["u0"][0] - expected).abs().max() < ROUNDING
    assert torch.equal(sine_state(8)[0], sine_state(8)[5])


def violation(**settings):
    problem = snapfm.problem("navier-stokes-ic-mass-enstrophy", nt=10, resolution=32, **settings)
    fields, params = problem.truth(2, torch.Generator().manual_seed(3))
    return {
        law.name: max(float(law.residual(fields[i], {"u0": params["u0"][i]}).abs().max()) for i in range(2))
        for law in problem.laws
    }


def test_total_vorticity_holds_to_rounding_and_enstrophy_does_not_hold():
    for state in ("sine", "random"):
        found = violation(state=state)
        assert found["initial"] == 0.0
        assert found["mass"] < 1e-11  # a sum over 256 points of order one
        assert found["enstrophy"] > 0.1


def test_the_released_sum_over_both_ends_counts_points_twice():
    assert violation(state="random", discretization="release")["mass"] > 0.1
