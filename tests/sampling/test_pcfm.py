"""The options of PCFM: when to project, how exactly, at which times, along which path."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from tests.sampling.toys import (
    EPS,
    MEAN,
    SHAPE,
    Gaussian,
    Watched,
    bent,
    curved,
    mixed,
    noise,
    pinned,
    run,
    seeded,
    summed,
)
from torch import Tensor

from snapfm import Projector
from snapfm.errors import ParamsError
from snapfm.sampling import COSINE, PCFM, STRAIGHT, EndProjection, Flow, Path, sample

C = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
U0 = torch.randn(5, SHAPE[0], generator=seeded(1), dtype=torch.float64)


def close(a: Tensor, b: Tensor, steps: int = 1) -> bool:
    return torch.allclose(a, b, rtol=0.0, atol=64 * steps * EPS * 10)


# project_from.


def test_steps_before_project_from_are_those_of_the_plain_flow():
    project, params = mixed(), {"u0": U0[:3]}
    watched = Watched(project)
    out = run(PCFM(project_from=0.5, warm=False), bent, watched, params, steps=4)
    start = noise(3, 0)
    u = start
    for step in range(2):
        u = u + 0.25 * bent(u, step / 4)
    for step in (2, 3):
        tau, later = step / 4, (step + 1) / 4
        landed = project.move(u + (1 - tau) * bent(u, tau), params).u
        u = (1 - later) * start + later * landed
    assert close(out.u, project(u, params).u, 4)
    assert len(watched.results) == 2 + 1


@pytest.mark.parametrize(("project_from", "count"), [(0.0, 5), (0.25, 4), (0.3, 3), (0.99, 1), (1.0, 1)])
def test_project_from_counts_the_times_from_there_on(project_from: float, count: int):
    watched = Watched(pinned())
    run(PCFM(project_from=project_from), bent, watched, {"c": C}, steps=4)
    assert len(watched.results) == count  # and the last one always


def test_projecting_from_one_on_is_the_end_projection():
    late = run(PCFM(project_from=1.0), bent, mixed(), {"u0": U0[:3]})
    assert torch.equal(late.u, run(EndProjection(), bent, mixed(), {"u0": U0[:3]}).u)


@pytest.mark.parametrize("wrong", [-0.1, 1.5, math.nan])
def test_project_from_is_a_flow_time(wrong: float):
    with pytest.raises(
        ParamsError, match=r"PCFM\(project_from\) expects a flow time in \[0, 1\]; got .*0 projects at every"
    ):
        PCFM(project_from=wrong)


# early_tolerance.


def test_early_tolerances_may_depend_on_flow_time():
    watched = Watched(curved())
    sampler = PCFM(early_tolerance=lambda tau: 10.0 ** (-1 - 4 * tau), warm=False)
    out = run(sampler, bent, watched, {"c": C.abs() + 5.0}, steps=4)
    assert watched.tolerances == [1e-1, 1e-2, 1e-3, 1e-4, None]
    for result, tolerance in zip(watched.results, watched.tolerances[:-1]):
        assert float(watched.project.check(result.u, {"c": C.abs() + 5.0}).violation.max()) <= tolerance
    assert out.projection.tolerance == watched.project.tolerance
    assert float(out.projection.violation.max()) <= watched.project.tolerance


def test_one_early_tolerance_serves_all_but_the_last():
    watched = Watched(curved())
    run(PCFM(early_tolerance=1e-3), bent, watched, {"c": C.abs() + 5.0}, steps=3)
    assert watched.tolerances == [1e-3] * 3 + [None]


# times.


def test_times_of_ones_own_by_hand():
    project, params = summed(), {"c": C}
    times = (0.0, 0.1, 0.15, 0.7, 1.0)
    out = run(PCFM(warm=False), bent, project, params, times=times)
    start = noise(3, 0)
    u = start
    for tau, later in pairwise(times):
        landed = project(u + (1 - tau) * bent(u, tau), params).u
        u = (1 - later) * start + later * landed
    assert close(out.u, project(u, params).u, 4)
    assert out.calls == 4


def test_uniform_times_are_the_default_to_the_bit():
    given = run(PCFM(), bent, summed(), {"c": C}, times=[k / 7 for k in range(8)])
    assert torch.equal(given.u, run(PCFM(), bent, summed(), {"c": C}, steps=7).u)


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        (0.0,),
        (0.0, 0.5),
        (0.1, 1.0),
        (0.0, 0.5, 0.5, 1.0),
        (0.0, 0.7, 0.3, 1.0),
        (0.0, math.nan, 1.0),
        (0.0, 1.0, 1.5),
    ],
)
def test_times_rise_from_zero_to_one(wrong: tuple[float, ...]):
    with pytest.raises(
        ParamsError, match=r"sample\(times\) expects flow times that rise from 0 to 1; got .*leave times out"
    ):
        run(PCFM(), bent, summed(), {"c": C}, times=wrong)


# path.


@pytest.mark.parametrize("path", [STRAIGHT, COSINE], ids=["straight", "cosine"])
@pytest.mark.parametrize("tau", [0.0, 0.2, 0.5, 0.99])
def test_a_path_knows_its_own_moves(path: Path, tau: float):
    data, held = noise(2, 1), noise(2, 2)
    u, speed = path.pull_back(held, data, tau), path.velocity(held, data, tau)
    assert torch.allclose(path.shoot(u, speed, tau), data, rtol=0.0, atol=64 * EPS)
    step = 1e-6  # the slopes are those of the schedules
    ahead, behind = path.pull_back(held, data, tau + step), path.pull_back(held, data, tau - step)
    assert torch.allclose((ahead - behind) / (2 * step), speed, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("path", [STRAIGHT, COSINE], ids=["straight", "cosine"])
def test_a_path_begins_with_noise_and_ends_with_data_to_the_bit(path: Path):
    data, held = noise(2, 1), noise(2, 2)
    assert torch.equal(path.pull_back(held, data, 0.0), held)
    assert torch.equal(path.pull_back(held, data, 1.0), data)


def test_the_cosine_path_keeps_unit_variance():
    for tau in (0.0, 0.3, 0.5, 0.8, 1.0):
        assert COSINE.data(tau) ** 2 + COSINE.noise(tau) ** 2 == pytest.approx(1.0, abs=4 * EPS)


def test_pcfm_along_the_cosine_path_hits_a_projected_point():
    """Every shot at a point mass hits it, so every projection is of that point."""
    project, params = mixed(), {"u0": U0[:3]}
    out = run(PCFM(), Gaussian(MEAN, 0.0, cosine=True), project, params, steps=5, path=COSINE)
    assert torch.allclose(out.u, project(MEAN.expand(3, *SHAPE), params).u, rtol=0.0, atol=1e-12)


def test_pcfm_along_the_cosine_path_by_hand():
    flow, project, params = Gaussian(MEAN, 0.4, cosine=True), summed(), {"c": C}
    out = run(PCFM(warm=False), flow, project, params, steps=3, path=COSINE)
    start = noise(3, 0)
    u = start
    for step in range(3):
        angle, later = 0.5 * math.pi * step / 3, 0.5 * math.pi * (step + 1) / 3
        # v = (π/2)(cos·data − sin·noise), u = sin·data + cos·noise: data = sin·u + cos·v·2/π.
        landed = math.sin(angle) * u + math.cos(angle) * flow(u, step / 3) * 2 / math.pi
        u = math.sin(later) * project(landed, params).u + math.cos(later) * start
    assert close(out.u, project(u, params).u, 3)


def test_the_wrong_path_misses_the_point():
    flow = Gaussian(MEAN, 0.0, cosine=True)
    out = run(PCFM(), flow, Projector([], SHAPE), None, steps=5)
    assert float((out.u - MEAN).abs().max()) > 0.1


def test_a_velocity_may_bring_its_path():
    class Brings(Gaussian):
        path = COSINE

    flow = Brings(MEAN, 0.0, cosine=True)
    out = run(PCFM(), flow, Projector([], SHAPE), None, steps=5)
    assert torch.allclose(out.u, MEAN.expand(3, *SHAPE), rtol=0.0, atol=1e-12)


# first.


@pytest.mark.parametrize("sampler", [PCFM(), PCFM(warm=False), Flow()], ids=["warm", "cold", "flow"])
def test_first_numbers_the_samples(sampler: Any):
    project, params = mixed(), {"u0": U0}
    whole = run(sampler, bent, project, params, count=5).u
    for first, count in ((0, 2), (2, 3), (4, 1)):
        part = run(sampler, bent, project, {"u0": U0[first : first + count]}, count=count, first=first).u
        assert torch.equal(part, whole[first : first + count])


@pytest.mark.parametrize("wrong", [-1, 0.5])
def test_first_is_a_number_of_a_sample(wrong: Any):
    with pytest.raises(ParamsError, match=r"sample\(first\) expects the number of a sample, 0 or more; got"):
        sample(bent, summed(), {"c": C}, 3, 2, seeded(), first=wrong)
