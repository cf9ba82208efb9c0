"""Models of flow_matching and torchcfm, trained with those libraries and sampled under a nonlinear law."""

from __future__ import annotations

from typing import Any

import flow_matching.path.scheduler as schedulers
import pytest
import torch
import torchcfm
from flow_matching.path import AffineProbPath, CondOTProbPath
from flow_matching.utils import ModelWrapper
from tests.adapters.toys import (
    SHAPE,
    Net,
    energies,
    energy_projector,
    fit,
    is_in_three_parts,
    seeded,
    unlike_waves,
    waves,
)
from torch import Tensor, nn
from torchcfm.models import MLP
from torchcfm.models.unet import UNetModel

import snapfm
from snapfm import Status, adapters
from snapfm.errors import SnapfmError
from snapfm.sampling import COSINE, STRAIGHT

TAUS = (0.0, 0.13, 0.5, 0.97)
BATCH = 128
TRUTH_MEAN = waves(4096, seeded(9)).mean(0)


def missed_mean(u: Tensor) -> float:
    return float((u.double().mean(0) - TRUTH_MEAN).square().mean())


def check_samples(velocity: Any) -> None:
    """Sixteen lawful fields, certified; and, over more of them, fields like the data: not just any lawful ones."""
    project, params = energy_projector(), {"energy": energies()}
    out = snapfm.sample(velocity, project, params, 16, 20, seeded(3), dtype=torch.float64)
    assert out.projection.status.tolist() == [Status.CONVERGED] * 16
    assert float((out.u.square().sum(1) - params["energy"]).abs().max()) <= 1e-8
    many = snapfm.sample(velocity, project, params, 64, 20, seeded(3), dtype=torch.float64)
    assert torch.equal(many.u[:16], out.u) or torch.allclose(
        many.u[:16], out.u, atol=1e-4
    )  # a float32 network's batch sizes
    noise = project(torch.randn(64, *SHAPE, generator=seeded(4), dtype=torch.float64), params).u
    assert missed_mean(many.u) <= 0.1 * missed_mean(noise)
    assert unlike_waves(many.u) <= 0.35 * unlike_waves(noise)


# flow_matching.


@pytest.mark.parametrize(
    "scheduler", [schedulers.CondOTScheduler(), schedulers.CosineScheduler()], ids=["straight", "cosine"]
)
def test_a_flow_matching_model_is_sampled_under_a_nonlinear_law(scheduler: schedulers.Scheduler):
    path, network, generator = AffineProbPath(scheduler), Net(), seeded(1)

    def loss() -> Tensor:
        data = waves(BATCH, generator).float().flatten(1)
        noise = torch.randn(data.shape, generator=generator)
        drawn = path.sample(x_0=noise, x_1=data, t=torch.rand(BATCH, generator=generator))
        return (network(drawn.x_t, drawn.t) - drawn.dx_t).square().mean()

    fit(network, loss)
    check_samples(adapters.flat(adapters.flow_matching(network, path)))


SCHEDULERS = {
    "CondOT": schedulers.CondOTScheduler(),
    "cosine": schedulers.CosineScheduler(),
    "polynomial 2": schedulers.PolynomialConvexScheduler(2),
    "polynomial 0.5": schedulers.PolynomialConvexScheduler(0.5),
    "linear VP": schedulers.LinearVPScheduler(),
    "VP": schedulers.VPScheduler(),
}


@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_schedulers_path_is_that_of_its_samples(scheduler: schedulers.Scheduler):
    path, theirs = adapters.scheduler_path(scheduler), AffineProbPath(scheduler)
    noise, data = torch.randn(2, 1, *SHAPE, generator=seeded(2), dtype=torch.float64)
    start = adapters.flow_matching(Net(), scheduler).start  # where a path at rest is entered
    for tau in (0.0, 0.02, 0.5, 0.97):
        drawn = theirs.sample(x_0=noise, x_1=data, t=torch.tensor([start + (1 - start) * tau], dtype=torch.float64))
        speed = (1 - start) * drawn.dx_t
        assert torch.allclose(path.pull_back(noise, data, tau), drawn.x_t, rtol=0, atol=1e-14)
        assert torch.allclose(path.velocity(noise, data, tau), speed, rtol=1e-14, atol=1e-14)
        assert torch.allclose(path.shoot(drawn.x_t, speed, tau), data, rtol=0, atol=1e-12)
    assert torch.equal(path.pull_back(noise, data, 1.0), data)


def test_a_path_at_rest_is_entered_where_it_holds_a_hundredth_of_data():
    starts = {kind: adapters.flow_matching(Net(), scheduler).start for kind, scheduler in SCHEDULERS.items()}
    assert starts == dict.fromkeys(SCHEDULERS, 0.0) | {
        "polynomial 2": pytest.approx(0.1), "polynomial 0.5": pytest.approx(1e-4)
    }  # fmt: skip
    assert adapters.scheduler_path(SCHEDULERS["polynomial 2"]).data(0.0) == pytest.approx(0.01)


@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
def test_every_scheduler_leads_to_the_data_from_the_first_step_on(scheduler: schedulers.Scheduler):
    data = waves(3, seeded(5))
    theirs = AffineProbPath(scheduler)

    def model(x: Tensor, t: Tensor) -> Tensor:  # the velocity of a model that knows the data
        spread = t.view(-1, 1, 1)
        return theirs.target_to_velocity(x_1=data[: len(x)], x_t=x, t=spread)

    velocity = adapters.flow_matching(model, scheduler)
    seen: list[Tensor] = []

    class Reading:
        """A projector that keeps where each step leads."""

        shape = SHAPE
        real = energy_projector()

        def __call__(self, u: Tensor, params: Any, **settings: Any) -> Any:
            seen.append(u)
            return self.real(u, params, **settings)

    snapfm.sample(velocity, Reading(), {"energy": energies()}, 3, 5, seeded(6), dtype=torch.float64)
    assert len(seen) == 6
    for led in seen:
        assert torch.allclose(led, data, rtol=0, atol=1e-9)


def test_the_straight_path_and_theirs_give_the_same_bits():
    def model(x: Tensor, t: Tensor) -> Tensor:
        return -x * (1 - t)[:, None, None]

    def draw(velocity: Any) -> Tensor:
        return snapfm.sample(
            velocity, energy_projector(), {"energy": energies()}, 3, 4, seeded(7), dtype=torch.float64
        ).u

    plain = draw(lambda u, tau: -u * (1 - tau))
    assert torch.equal(plain, draw(adapters.flow_matching(model)))
    assert torch.equal(plain, draw(adapters.flow_matching(model, schedulers.CondOTScheduler())))
    assert torch.equal(plain, draw(adapters.flow_matching(model, CondOTProbPath())))
    matched = adapters.torchcfm(lambda t, x: -x * (1 - t), torchcfm.ConditionalFlowMatcher())
    assert torch.equal(plain, draw(matched))


def test_their_model_wrapper_gets_keywords_and_a_time_per_sample():
    seen: list[tuple[torch.Size, torch.dtype]] = []

    class Inside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(-1.0))

        def forward(self, *, x: Tensor, t: Tensor, label: Tensor) -> Tensor:
            seen.append((t.shape, t.dtype))
            return self.scale * x + label[:, None, None]

    wrapped = adapters.conditioned(adapters.flow_matching(ModelWrapper(Inside())), label=torch.arange(3.0))
    u = torch.randn(3, *SHAPE, generator=seeded(8))
    assert torch.equal(wrapped(u, 0.25), -u + torch.arange(3.0)[:, None, None])
    assert seen == [(torch.Size([3]), torch.float32)]
    assert len(list(wrapped.parameters())) == 1


# torchcfm.

MATCHERS = {
    "independent": torchcfm.ConditionalFlowMatcher(sigma=0.0),
    "optimal transport": torchcfm.ExactOptimalTransportConditionalFlowMatcher(sigma=0.0),
    "target": torchcfm.TargetConditionalFlowMatcher(sigma=0.01),
    "variance preserving": torchcfm.VariancePreservingConditionalFlowMatcher(sigma=0.0),
}


@pytest.mark.parametrize("kind", MATCHERS)
def test_a_torchcfm_model_is_sampled_under_a_nonlinear_law(kind: str):
    matcher, generator = MATCHERS[kind], seeded(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = MLP(dim=SHAPE[0] * SHAPE[1], w=128, time_varying=True)

        def loss() -> Tensor:
            data = waves(BATCH, generator).float().flatten(1)
            noise = torch.randn(data.shape, generator=generator)
            t, x, flow = matcher.sample_location_and_conditional_flow(noise, data)
            return (network(torch.cat([x, t[:, None]], dim=1)) - flow).square().mean()

        fit(network, loss)
    check_samples(adapters.torchcfm(network, matcher))


@pytest.mark.parametrize("kind", MATCHERS)
def test_a_matchers_path_is_that_of_its_samples(kind: str):
    matcher = MATCHERS[kind]
    path = adapters.matcher_path(matcher)
    noise, data, spread = torch.randn(3, 1, *SHAPE, generator=seeded(2), dtype=torch.float64)
    if kind == "target":  # its noise is all in the spread around t·data
        noise = spread
    for tau in (0.02, 0.5, 0.97):
        t = torch.tensor([tau], dtype=torch.float64)
        x = matcher.sample_xt(noise, data, t, spread)
        flow = matcher.compute_conditional_flow(noise, data, t, x)
        assert torch.allclose(path.pull_back(noise, data, tau), x, rtol=0, atol=1e-14)
        assert torch.allclose(path.velocity(noise, data, tau), flow, rtol=0, atol=1e-13)
        assert torch.allclose(path.shoot(x, flow, tau), data, rtol=0, atol=1e-12)
    assert torch.allclose(path.pull_back(noise, data, 1.0), data, rtol=0, atol=1e-15)


def test_constant_jitter_is_left_out_of_a_path():
    path = adapters.matcher_path(torchcfm.ConditionalFlowMatcher(sigma=0.1))
    for tau in TAUS:
        assert (path.data(tau), path.noise(tau)) == (STRAIGHT.data(tau), STRAIGHT.noise(tau))
        assert (path.data_slope(tau), path.noise_slope(tau)) == (1.0, -1.0)
    preserving = adapters.matcher_path(torchcfm.VariancePreservingConditionalFlowMatcher())
    for tau in TAUS:
        assert preserving.noise(tau) == pytest.approx(COSINE.noise(tau), abs=1e-15)


def test_a_unet_of_torchcfm_gets_time_first_and_channels():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = UNetModel(dim=(1, 8, 8), num_channels=32, num_res_blocks=1, channel_mult=(1,), num_heads=1)
    velocity = adapters.channels(adapters.torchcfm(network))
    u = torch.randn(2, 8, 8, generator=seeded(3))
    assert torch.equal(velocity(u, 0.5), network(torch.tensor(0.5), u[:, None])[:, 0])
    assert torch.allclose(velocity(u, torch.tensor([0.5, 0.5])), velocity(u, 0.5), atol=1e-6)


def test_a_torchdyn_style_model_gets_one_time_for_all():
    def wrapped(
        t: Tensor, x: Tensor, *args: Any, **kwargs: Any
    ) -> Tensor:  # torchcfm.utils.torch_wrapper, which needs torchdyn
        return torch.cat([x, t.repeat(x.shape[0])[:, None]], 1)[:, :-1] * -t

    velocity = adapters.flat(adapters.torchcfm(wrapped))
    u = torch.randn(3, *SHAPE, generator=seeded(4))
    assert torch.equal(velocity(u, 0.5), -0.5 * u)


# Mistakes.


@pytest.mark.parametrize(
    ("mistake", "expected", "came", "cure"),
    [
        (lambda: adapters.flow_matching(Net(), 3), "expects a scheduler or an AffineProbPath", "got int", "CondOTScheduler()"),
        (
            lambda: adapters.flow_matching(Net(), schedulers.CondOTScheduler),
            "expects a scheduler or an AffineProbPath", "got CondOTScheduler", "Pass the object",
        ),
        (
            lambda: adapters.flow_matching(Net(), lambda t: t),
            "expects a scheduler or an AffineProbPath", "got function", "Pass the object",
        ),
        (
            lambda: adapters.flow_matching(Net(), lambda t, x: t),
            "expects a scheduler or an AffineProbPath", "got function", "Pass the object",
        ),
        (lambda: adapters.flow_matching(Net), "expects a model to call", "got Net", "Pass the trained network"),
        (lambda: adapters.torchcfm(Net(), 0.1), "expects a ConditionalFlowMatcher", "got float", "Pass the object whose"),
        (
            lambda: adapters.torchcfm(Net(), torchcfm.SchrodingerBridgeConditionalFlowMatcher(sigma=0.5)),
            "expects a path from noise to data", "got SchrodingerBridgeConditionalFlowMatcher", "Train with",
        ),
        (
            lambda: adapters.flow_matching(Net())(torch.zeros(2, 3, 5), torch.zeros(3)),
            "expects tau as a number or of shape (2,)", "got a tensor of shape (3,)", "one per sample",
        ),
        (
            lambda: adapters.torchcfm(lambda t, x: x[:, :1])(torch.zeros(2, 3, 5), 0.5),
            "expects fields (2, 3, 5) back", "got (2, 1, 5)", "Choose the adapter",
        ),
    ],
    ids=[
        "no scheduler", "a class", "a function", "a function of two", "a network's class", "no matcher", "a bridge", "times",
        "shape",
    ],
)  # fmt: skip
def test_a_mistake_is_in_three_parts(mistake: Any, expected: str, came: str, cure: str):
    with pytest.raises(SnapfmError) as caught:
        mistake()
    assert is_in_three_parts(str(caught.value), expected, came, cure), str(caught.value)
