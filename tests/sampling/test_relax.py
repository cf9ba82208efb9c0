"""The relaxed correction: never worse, never shared, and at its minimum where that is known."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.sampling.toys import (
    EPS,
    MEAN,
    SHAPE,
    Gaussian,
    bent,
    curved,
    mixed,
    noise,
    pinned,
    run,
    seeded,
    summed,
    task,
)
from torch import Tensor

from snapfm import Projector, Status
from snapfm.errors import ParamsError
from snapfm.sampling import COSINE, PCFM, STRAIGHT, Relaxation
from snapfm.sampling.task import Task

C = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
U0 = torch.randn(3, SHAPE[0], generator=seeded(1), dtype=torch.float64)
CASES: dict[str, tuple[Projector, dict[str, Tensor]]] = {
    "value": (pinned(), {"c": C}),
    "values and sums": (mixed(), {"u0": U0}),
    "sphere": (curved(), {"c": C.abs() + 5.0}),
}


def objective(work: Task, near: Tensor, u: Tensor, tau: float, weight: float) -> Tensor:
    """‖u − ũ‖² + λ‖h(shot end of u)‖², written apart from the code under test."""
    with torch.no_grad():
        broken = work.excess(work.path.shoot(u, work.velocity(u, tau), tau))
        return (u - near).double().square().flatten(1).sum(1) + weight * broken.square().sum(1)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("weight", [1e-3, 1.0, 1e3, 1e9])
@pytest.mark.parametrize("path", [STRAIGHT, COSINE], ids=["straight", "cosine"])
def test_no_sample_gets_worse(case: str, weight: float, path: Any):
    project, params = CASES[case]
    near = noise(3, 1)
    work = task(bent, project, params, near, path)
    start = before = objective(work, near, near, 0.5, weight)
    for iterations in (1, 2, 5, 12):
        after = objective(work, near, Relaxation(weight, iterations).correct(work, near, 0.5), 0.5, weight)
        assert bool((after <= before).all())
        before = after
    assert bool((before < start).all())
    assert bool((before < 0.9 * start).all()) or weight < 1.0  # a weight of nothing has nothing to gain


@pytest.mark.parametrize("weight", [1e-2, 1.0, 1e4])
def test_a_linear_problem_is_solved(weight: float):
    """A flow that stands still and one given value: the minimum moves that point alone, to (ũ + λc)/(1 + λ)."""
    near = noise(3, 1)
    work = task(lambda u, tau: 0 * u, pinned(), {"c": C}, near)
    expected = near.clone()
    expected[:, 0, 0] = (near[:, 0, 0] + weight * C) / (1 + weight)
    found = Relaxation(weight, iterations=6).correct(work, near, 0.5)
    assert torch.allclose(found, expected, rtol=0.0, atol=1e-9)


def test_a_huge_weight_obeys_the_law_and_goes_no_further():
    project, params = CASES["sphere"]
    near = noise(3, 1)
    work = task(bent, project, params, near)
    found = Relaxation(weight=1e12, iterations=30).correct(work, near, 0.5)
    shot = work.shoot(found, 0.5)
    assert float(project.check(shot, params).violation.max()) <= 1e-4
    assert float((found - near).abs().max()) <= 5.0  # of the order of the field: no leap along the law


def test_a_feasible_state_stays_where_it_is():
    near = noise(3, 1)
    near[:, 0, 0] = C
    work = task(lambda u, tau: 0 * u, pinned(), {"c": C}, near)
    assert torch.equal(Relaxation().correct(work, near, 0.5), near)


@pytest.mark.parametrize("case", CASES)
def test_a_sample_that_is_no_number_leaves_the_others_as_they_are(case: str):
    project, params = CASES[case]
    near = noise(3, 1)
    work = task(bent, project, params, near)
    expected = Relaxation(10.0).correct(work, near, 0.5)
    broken = near.clone()
    broken[1, 2, 3] = torch.nan
    found = Relaxation(10.0).correct(work, broken, 0.5)
    assert torch.equal(found[[0, 2]], expected[[0, 2]])
    assert torch.equal(found[1].nan_to_num(9.0), broken[1].nan_to_num(9.0))


@pytest.mark.parametrize("case", CASES)
def test_a_sample_is_corrected_alone_as_in_a_batch(case: str):
    project, params = CASES[case]
    near = noise(3, 1)
    whole = Relaxation(100.0, iterations=12).correct(task(bent, project, params, near), near, 0.5)
    for i in range(3):
        one = {name: value[i : i + 1] for name, value in params.items()}
        work = task(bent, project, one, near[i : i + 1])
        assert torch.equal(Relaxation(100.0, iterations=12).correct(work, near[i : i + 1], 0.5)[0], whole[i])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_relaxed_pcfm_ends_feasible_on_a_nonlinear_law(dtype: torch.dtype):
    project, params = CASES["sphere"]
    out = run(PCFM(relaxation=Relaxation(weight=10.0)), bent, project, params, steps=5, dtype=dtype)
    assert out.u.dtype == dtype
    assert out.projection.status.tolist() == [Status.CONVERGED] * 3
    plain = run(PCFM(), bent, project, params, steps=5, dtype=dtype)
    assert not torch.allclose(out.u, plain.u, rtol=0.0, atol=1e-3)  # it does something
    assert out.calls > plain.calls


def test_relaxed_pcfm_by_hand():
    """One correction between two steps, of a flow that stands still: (ũ + λc)/(1 + λ) at the given value."""
    project, params, weight = pinned(), {"c": C}, 2.0
    seen: list[Tensor] = []

    def still(u: Tensor, tau: Any) -> Tensor:
        if tau == 0.5:
            seen.append(u.detach().clone())
        return 0 * u

    run(PCFM(relaxation=Relaxation(weight, iterations=6)), still, project, params, steps=2)
    start = noise(3, 0)
    near = start.clone()
    near[:, 0, 0] = 0.5 * start[:, 0, 0] + 0.5 * C
    expected = near.clone()
    expected[:, 0, 0] = (near[:, 0, 0] + weight * C) / (1 + weight)
    assert torch.allclose(seen[0], near, rtol=0.0, atol=16 * EPS)
    assert torch.allclose(seen[-1], expected, rtol=0.0, atol=1e-12)


def test_the_last_step_is_not_relaxed():
    """At τ = 1 there is no flow left to look along: the last pull-back goes straight to the last projection."""
    out = run(PCFM(relaxation=Relaxation()), Gaussian(MEAN, 0.5), summed(), {"c": C}, steps=1)
    assert torch.equal(out.u, run(PCFM(), Gaussian(MEAN, 0.5), summed(), {"c": C}, steps=1).u)
    assert out.calls == 1


@pytest.mark.parametrize("wrong", [{"weight": 0.0}, {"weight": -1.0}, {"iterations": 0}])
def test_settings_are_checked(wrong: dict[str, Any]):
    with pytest.raises(ParamsError, match=r"Relaxation expects weight > 0 and iterations >= 1; got .*relaxation=None"):
        Relaxation(**wrong)
