"""True fields pass; white noise projected onto the laws obeys them and fails, on all six problems."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import snapfm
from snapfm.errors import ShapeError
from snapfm.metrics.texture import REACH_LIMIT, SWING_LIMIT, neighbor_correlation, texture
from snapfm_bench.problems import Problem

SIX = {
    "heat": ("heat-ic-mass", {}),
    "heat-energy": ("heat-ic-mass-pde-energy", {}),
    "burgers-bc": ("burgers-bc-mass", {}),
    "burgers": ("burgers-ic-mass-flux", {}),
    "reaction": ("reaction-diffusion-ic-mass", {}),
    "flow": ("navier-stokes-ic-mass-enstrophy", {"resolution": 32}),
}
FREE = {  # the training distribution, whose fields differ most from each other
    "heat-free": ("heat-ic-mass", {"phase": None}),
    "burgers-free": ("burgers-ic-mass-flux", {"position": None}),
    "reaction-free": ("reaction-diffusion-ic-mass", {"initial_seed": None}),
    "flow-free": ("navier-stokes-ic-mass-enstrophy", {"resolution": 32, "state": "random"}),
}
COUNT = 12


class Drawn(NamedTuple):
    """Two sets of true fields, simulated once for all tests, and the params of the first."""

    problem: Problem
    truth: Tensor
    params: dict[str, Tensor]
    other: Tensor


@cache
def drawn(case: str) -> Drawn:
    name, settings = (SIX | FREE)[case]
    problem = snapfm.problem(name, **settings)
    return Drawn(problem, *problem.draw_truth(1, 0, COUNT), problem.draw_truth(2, 0, COUNT)[0])


@pytest.mark.parametrize("case", [*SIX, *FREE])
def test_true_fields_pass(case: str) -> None:
    _, truth, _, other = drawn(case)
    found = texture(other, truth)
    assert found.alike, found
    assert found.correlation.min() > 0.85
    assert found.spectrum_distance.max() < 0.2
    assert found.reach.max() < 0.5 * REACH_LIMIT
    assert found.swing.max() < 0.75 * SWING_LIMIT
    assert texture(other.float(), truth.float()).alike


@pytest.mark.parametrize("case", [*SIX, *FREE])
@pytest.mark.parametrize("factor", [7.0, 5.0, 0.1])
def test_fields_of_another_size_fail_however_smooth(case: str, factor: float) -> None:
    _, truth, _, other = drawn(case)
    found = texture(factor * other, truth)
    assert not found.noise.any()  # neighbors and scales do not see it
    assert found.spectrum_distance.max() < 0.2
    assert found.oversized.all()
    assert not found.alike


def test_one_field_that_leaves_the_range_is_found_among_good_ones() -> None:
    problem = snapfm.problem("heat-ic-mass", nx=23, nt=11)
    truth, mixed = (problem.draw_truth(seed, 0, COUNT)[0] for seed in (1, 2))
    mixed[5] += 2.0
    found = texture(mixed, truth)
    assert found.oversized.tolist() == [i == 5 for i in range(COUNT)]
    assert not found.alike


@pytest.mark.parametrize("case", SIX)
def test_noise_that_obeys_the_laws_fails(case: str) -> None:
    problem, truth, params, _ = drawn(case)
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = snapfm.Projector(problem.laws, problem.grid.shape, params)(noise, params)
    assert result.converged.all()
    found = texture(result.u, truth)
    assert found.noise.all()
    assert not found.alike
    assert found.correlation.max() < 0.2
    assert found.spectrum_distance.min() > 0.5


def test_one_noisy_sample_is_found_among_good_ones() -> None:
    problem = snapfm.problem("heat-ic-mass", nx=23, nt=11)
    truth = problem.draw_truth(1, 0, COUNT)[0]
    mixed = problem.draw_truth(2, 0, COUNT)[0]
    mixed[3] = torch.randn(mixed[3].shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = texture(mixed, truth)
    assert found.noise.tolist() == [i == 3 for i in range(COUNT)]
    assert not found.alike


def test_constant_and_broken_fields_are_told_apart_from_true_ones() -> None:
    truth = snapfm.problem("heat-ic-mass", nx=23, nt=11).draw_truth(1, 0, COUNT)[0]
    flat = texture(torch.full_like(truth, 0.5), truth)
    assert not flat.noise.any()
    assert flat.spectrum_distance.tolist() == [1.0, 1.0]
    assert not flat.alike
    broken = truth.clone()
    broken[0, 0, 0] = float("nan")
    assert texture(broken, truth).noise.tolist() == [i == 0 for i in range(COUNT)]


def test_neighbours_along_each_axis() -> None:
    x = torch.linspace(0, 6.28, 50, dtype=torch.float64)
    zigzag = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(10)
    along = neighbor_correlation((torch.sin(x)[:, None] * zigzag)[None])[0]
    assert along[0] > 0.98
    assert along[1] == pytest.approx(-1.0)


def test_other_grids_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"texture\(fields, truth\) expects fields of one shape.*got \(2, 3, 5\) and"):
        texture(torch.zeros(2, 3, 5), torch.zeros(2, 3, 4))
