"""Adaptive steps against solutions in closed form."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.sampling.toys import MEAN, SHAPE, Gaussian, noise, run, seeded, task
from torch import Tensor

from snapfm.errors import ParamsError, ShapeError
from snapfm.sampling import Flow, sample
from snapfm.sampling.flow import _ERROR, _STAGES, _try

TOLERANCE = 1e-5


def rate(u: Tensor, tau: Any) -> Tensor:
    """u' = (2τ − 1)·u + 3: the solution is found by the integrating factor exp(τ − τ²)."""
    times = torch.as_tensor(tau, dtype=torch.float64).reshape(-1, 1, 1)
    return ((2 * times - 1) * u.double() + 3).to(u.dtype)


def solved(start: Tensor) -> Tensor:
    """u(1) = u(0) + 3·∫exp(τ − τ²)dτ, because the factor is 1 at both ends."""
    integral = math.exp(0.25) * math.sqrt(math.pi) * math.erf(0.5)
    return start + 3 * integral


def test_the_tableau_is_consistent_and_of_its_order():
    for share, weights in _STAGES:
        assert sum(weights) == pytest.approx(share, abs=1e-14)
    assert sum(_ERROR) == pytest.approx(0.0, abs=1e-16)
    start = torch.ones(1, *SHAPE, dtype=torch.float64)
    growth = task(lambda u, tau: u, None, None, start)
    errors = []
    for length in (0.2, 0.1):
        moved, _, _ = _try(growth, start, start, torch.zeros(1), torch.tensor([length], dtype=torch.float64))
        errors.append(float((moved - math.exp(length)).abs().max()))
    assert math.log2(errors[0] / errors[1]) == pytest.approx(6.0, abs=0.3)  # one step of order 5 is off by h⁶


@pytest.mark.parametrize("tolerance", [1e-3, 1e-5, 1e-9])
def test_a_linear_equation_is_solved_to_the_tolerance(tolerance: float):
    sampler = Flow(solver="adaptive", relative_tolerance=tolerance, absolute_tolerance=tolerance)
    out = run(sampler, rate, None, None)
    expected = solved(noise(3, 0))
    # Errors per step are below the tolerance; a dozen steps, which this flow carries on with factors near one, add up.
    assert float((out.u - expected).abs().max()) <= 20 * tolerance * float(1 + expected.abs().max())


@pytest.mark.parametrize("cosine", [False, True])
def test_gaussian_noise_is_mapped_to_gaussian_data(cosine: bool):
    flow = Gaussian(MEAN, 0.3, cosine)
    out = run(Flow(solver="adaptive"), flow, None, None)
    assert float((out.u - flow.end(noise(3, 0))).abs().max()) <= 20 * TOLERANCE * 5
    euler = run(Flow(), flow, None, None, steps=20)
    assert float((euler.u - flow.end(noise(3, 0))).abs().max()) > 100 * TOLERANCE  # what adaptive steps are for


def test_single_precision_keeps_the_tolerance():
    flow = Gaussian(MEAN, 0.3)
    out = run(Flow(solver="adaptive"), flow, None, None, dtype=torch.float32)
    assert out.u.dtype == torch.float32
    assert float((out.u.double() - flow.end(noise(3, 0))).abs().max()) <= 20 * TOLERANCE * 5


def test_steps_grow_where_nothing_happens():
    out = run(Flow(solver="adaptive"), lambda u, tau: torch.full_like(u, 2.0), None, None, steps=4)
    # One velocity to begin with and one to see how times are taken; then steps of 1/4 and 3/4, of six velocities each.
    assert out.calls == 1 + 1 + 2 * 6
    assert torch.allclose(out.u, noise(3, 0) + 2.0, rtol=0.0, atol=1e-14)


class Stiff:
    """u' = −k·u with another k for every sample."""

    rates = torch.tensor([1.0, 300.0, 5.0], dtype=torch.float64).view(-1, 1, 1)

    def __init__(self, first: int = 0) -> None:
        self.first = first

    def __call__(self, u: Tensor, tau: Any) -> Tensor:
        return -self.rates[self.first : self.first + len(u)] * u


def test_every_sample_has_its_own_steps():
    whole = run(Flow(solver="adaptive"), Stiff(), None, None)
    calls = []
    for i in range(3):
        alone = run(Flow(solver="adaptive"), Stiff(i), None, None, count=1, first=i)
        assert torch.equal(alone.u[0], whole.u[i])
        calls.append(alone.calls)
    assert calls[0] < calls[2] < calls[1]
    assert whole.calls == max(calls) + 1  # as many as the slowest, and one to see how times are taken
    assert torch.allclose(whole.u[0], noise(3, 0)[0] * math.exp(-1), rtol=0.0, atol=20 * TOLERANCE)


def test_a_velocity_that_is_no_number_gives_up_its_sample_alone():
    def broken(u: Tensor, tau: Any) -> Tensor:
        times = torch.as_tensor(tau, dtype=torch.float64).expand(len(u))
        lost = (torch.arange(len(u)) == 1) & (times > 0.3)
        return torch.where(lost.view(-1, 1, 1), torch.nan, rate(u, tau))

    out, healthy = run(Flow(solver="adaptive"), broken, None, None), run(Flow(solver="adaptive"), rate, None, None)
    assert bool(out.u[1].isnan().all())
    assert torch.equal(out.u[[0, 2]], healthy.u[[0, 2]])


def test_a_velocity_without_end_is_given_up():
    def blow(u: Tensor, tau: Any) -> Tensor:
        return 3 * (1 + u * u)  # tan(3τ + …) is infinite before τ = 1

    out = run(Flow(solver="adaptive"), blow, None, None, count=2)
    assert bool(out.u.isnan().all())


@pytest.mark.parametrize("count", [3, 5])  # three times do not fit the last axis of five; five do, in silence
def test_a_velocity_that_misplaces_times_is_refused(count: int):
    def careless(u: Tensor, tau: Any) -> Tensor:
        return -u * (1 + tau)

    with pytest.raises(
        ShapeError, match=r"one flow time per sample.*got a velocity that does not.*tau.view\(-1, 1, 1\)"
    ):
        run(Flow(solver="adaptive"), careless, None, None, count=count)
    assert run(Flow(solver="adaptive"), careless, None, None, count=1).u.isfinite().all()  # one time fits any axis


def test_progress_follows_the_slowest_sample():
    reported: list[tuple[int, int]] = []
    run(
        Flow(solver="adaptive"),
        Stiff(),
        None,
        None,
        steps=5,
        progress=lambda done, total: reported.append((done, total)),
    )
    assert reported == [(k, 5) for k in range(1, 6)]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ({"solver": "heun"}, r"Flow\(solver\) expects 'euler' or 'adaptive'; got 'heun'"),
        ({"relative_tolerance": 0.0}, r"expects positive numbers; got 0.0 and 1e-05\. The default is 1e-5"),
        ({"absolute_tolerance": -1.0}, r"expects positive numbers; got 1e-05 and -1.0"),
    ],
)
def test_settings_are_checked(wrong: dict[str, Any], expected: str):
    with pytest.raises(ParamsError, match=expected):
        Flow(**wrong)


def test_a_network_gets_one_time_per_sample_in_its_own_dtype():
    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(-0.5))
            self.times: list[Any] = []

        def forward(self, u: Tensor, tau: Any) -> Tensor:
            self.times.append(tau)
            return self.weight * u

    network = Network()
    out = sample(network, None, None, 2, 3, seeded(), sampler=Flow(solver="adaptive"), shape=SHAPE, dtype=torch.float64)
    assert out.u.dtype == torch.float64
    assert network.times[0] == 0.0
    assert all(tau.shape == (2,) and tau.dtype == torch.float32 for tau in network.times[1:])
