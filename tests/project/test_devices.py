"""Tensors on a device: projected by the CPU, with the same answers."""

from __future__ import annotations

import warnings
from dataclasses import fields

import numpy as np
import pytest
import torch
from tests.project.far import CUDA, Far, device, far, near
from torch import Tensor

import snapfm
from snapfm.errors import DeviceWarning, Status
from snapfm.kernels import threads
from snapfm.project import projector
from snapfm.sampling import PCFM

SHAPE, COUNT = (3, 5), 150
ENERGY = snapfm.Equality("energy", lambda u, p: (u**2).sum(0) - p["energy"])
FALLS = snapfm.Inequality("falls", lambda u, p: u[0, 1:] - u[0, :-1])


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(autouse=True)
def _warned(monkeypatch: pytest.MonkeyPatch):
    """A process that has warned of `cuda:0`."""
    monkeypatch.setattr(projector, "_warned", {CUDA})


@pytest.fixture(scope="module")
def project() -> snapfm.Projector:
    return snapfm.Projector([ENERGY, FALLS, snapfm.Bounds(lower=-2.0, upper=2.0)], SHAPE, given(1))


def given(count: int) -> dict[str, Tensor]:
    return {"energy": torch.linspace(1.0, 2.0, 5 * count, dtype=torch.float64).view(count, 5)}


def assert_same(there: object, here: object) -> None:
    """Ask for the same bits in all fields of a result."""
    for one in fields(here):
        mine, other = getattr(there, one.name), getattr(here, one.name)
        if isinstance(other, Tensor):
            assert isinstance(mine, Far), one.name
            assert mine.dtype == other.dtype, one.name
            assert torch.equal(near(mine).nan_to_num(7.0), other.nan_to_num(7.0)), one.name
        elif isinstance(other, dict):
            assert all(
                torch.equal(near(mine[law]).nan_to_num(7.0), rows.nan_to_num(7.0)) for law, rows in other.items()
            )
            assert all(isinstance(rows, Far) for rows in mine.values())
        elif isinstance(other, snapfm.solve.base.Warm):
            for name in ("place", "multipliers", "usable"):
                assert np.array_equal(getattr(mine, name), getattr(other, name), equal_nan=name != "usable"), name
            assert mine.owner is other.owner
        else:
            assert mine == other, one.name


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("count", [COUNT, 1, 0])
def test_certificates_are_those_of_the_cpu(project, dtype, count):
    u_hat, params = randn(count, *SHAPE).to(dtype), given(count)
    u_hat[70:71, 0, 0] = torch.nan
    with device():
        there = project(far(u_hat), far(params))
    here = project(u_hat, params)
    assert_same(there, here)
    assert count < 70 or here.status[70] == Status.NONFINITE


def test_moves_and_their_warm_starts_are_those_of_the_cpu(project):
    u_hat, params = randn(COUNT, *SHAPE), given(COUNT)
    with device():
        first = project.move(far(u_hat), far(params))
        second = project.move(far(u_hat + 0.01), far(params), warm=first)
        last = project(far(u_hat + 0.02), far(params), warm=second)
    first_here = project.move(u_hat, params)
    second_here = project.move(u_hat + 0.01, params, warm=first_here)
    assert_same(first, first_here)
    assert_same(second, second_here)
    assert_same(last, project(u_hat + 0.02, params, warm=second_here))


def test_gradients_in_fields_and_params_flow_through_the_copies():
    project = snapfm.Projector([ENERGY], SHAPE, given(1))

    def gradients(place) -> tuple[Tensor, ...]:
        u_hat, energy = (place(one).requires_grad_() for one in (randn(COUNT, *SHAPE), given(COUNT)["energy"]))
        made = project(u_hat, {"energy": energy})
        (made.u * place(randn(COUNT, *SHAPE, seed=1))).sum().backward()
        return near(u_hat.grad), near(energy.grad)

    here = gradients(torch.clone)
    with device():
        there = gradients(far)
    for mine, other in zip(there, here):
        assert torch.equal(mine, other)
        assert other.abs().max() > 0.1


def test_params_may_stay_on_the_cpu_and_be_shared(project):
    u_hat, params = randn(COUNT, *SHAPE), given(1)
    with device():
        there = project(far(u_hat), params)
    assert_same(there, project(u_hat, params))


def test_the_wait_for_the_device_is_not_counted(project, monkeypatch: pytest.MonkeyPatch):
    now, late = threads.time.monotonic, [0.0]
    monkeypatch.setattr(threads.time, "monotonic", lambda: now() + late[0])
    with device() as cuda:
        cuda.waits = lambda: late.append(late.pop() + 1e4)
        there = project(far(randn(COUNT, *SHAPE)), far(given(COUNT)), seconds=60.0)
    assert late[0] >= 1e4
    assert near(there.converged).all()


def test_a_metric_gives_the_answers_of_the_cpu():
    project = snapfm.Projector([snapfm.Equality("total", lambda u, p: u.sum(1) - 1.0)], SHAPE)
    metric = snapfm.Metric(torch.linspace(0.5, 2.0, 15, dtype=torch.float64).view(SHAPE))
    u_hat = randn(COUNT, *SHAPE)
    with device():
        there = project(far(u_hat), metric=metric)
    assert_same(there, project(u_hat, metric=metric))


def test_check_and_excess_answer_on_the_device(project):
    u, params = randn(4, *SHAPE), given(4)
    with device():
        judged, excess = project.check(far(u), far(params)), project.excess(far(u), far(params))
    assert_same(judged, project.check(u, params))
    assert torch.equal(near(excess), project.excess(u, params))
    assert isinstance(excess, Far)


class Drift(torch.nn.Module):
    """A velocity on the device of its weight."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)

    def forward(self, u: Tensor, tau: Tensor) -> Tensor:
        return -0.5 * self.weight * u


def test_a_flow_with_its_network_on_the_device_gives_the_fields_of_the_cpu(project):
    def run(weight: Tensor, params: dict[str, Tensor]):
        generator = torch.Generator().manual_seed(5)
        return snapfm.sample(
            Drift(weight), project, params, 4, 3, generator, sampler=PCFM(), dtype=torch.float64, on_failure="keep"
        )

    one = torch.ones((), dtype=torch.float64)
    with device():
        there = run(far(one), far(given(4)))
    assert isinstance(there.u, Far)
    assert torch.equal(near(there.u), run(one, given(4)).u)


def test_what_happens_is_said_once_in_a_process_for_each_device(project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(projector, "_warned", set())
    u_hat, params = far(randn(2, *SHAPE)), far(given(2))
    with device():
        with pytest.warns(DeviceWarning, match=r"expects fields on the CPU.*got cuda:0.*0.00024 MB each way") as said:
            project.move(u_hat, params)
        assert [one.filename for one in said] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            project(u_hat, params)
            snapfm.Projector([FALLS], SHAPE)(u_hat)
