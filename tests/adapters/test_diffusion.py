"""Diffusion models against a Gaussian, for which noise, data and velocity are all known; and one that is trained."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.adapters.toys import (
    SHAPE,
    Gaussian,
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

import snapfm
from snapfm import Status, adapters
from snapfm.errors import SnapfmError
from snapfm.sampling import COSINE, STRAIGHT, Flow, Path

VP = adapters.variance_preserving()
BETAS = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)  # those of Ho et al. (2020)
DDPM = adapters.Timesteps.of_betas(BETAS)
PATHS = {"straight": STRAIGHT, "cosine": COSINE, "vp": VP, "ddpm": DDPM.path}
KINDS = {"noise": adapters.predicts_noise, "data": adapters.predicts_data, "v": adapters.predicts_v}


def exact(kind: str, path: Path) -> Any:
    """A model of the Gaussian that predicts `kind`, and takes one time for all or one per sample."""
    answer = getattr(Gaussian(path), kind)

    def model(u: Tensor, time: Tensor) -> Tensor:
        return torch.stack([answer(one, float(tau)) for one, tau in zip(u, time)])

    return model


def noise(count: int = 3) -> Tensor:
    return torch.randn(count, *SHAPE, generator=seeded(1), dtype=torch.float64)


# Paths.


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_slopes_are_those_of_the_values(path: Path):
    step = 1e-6
    for tau in (0.0101, 0.3004, 0.5203, 0.8502, 0.9901):  # between timesteps, where ᾱ is smooth
        for value, slope in ((path.data, path.data_slope), (path.noise, path.noise_slope)):
            assert slope(tau) == pytest.approx((value(tau + step) - value(tau - step)) / (2 * step), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("path", [VP, DDPM.path], ids=["vp", "ddpm"])
def test_variance_is_preserved_from_noise_to_clean_data(path: Path):
    for tau in (0.0, 0.2, 0.7, 0.999, 1.0):
        assert path.data(tau) ** 2 + path.noise(tau) ** 2 == pytest.approx(1.0, abs=1e-14)
    assert (path.data(1.0), path.noise(1.0)) == (1.0, 0.0)
    assert path.noise(0.0) > 0.9999
    assert all(math.isfinite(slope(1.0)) for slope in (path.data_slope, path.noise_slope))


def test_the_variance_preserving_path_is_that_of_song_and_others():
    for tau in (0.0, 0.3, 0.9):
        t = 1 - tau
        assert VP.data(tau) == pytest.approx(math.exp(-0.25 * t**2 * (20.0 - 0.1) - 0.5 * t * 0.1), rel=1e-14)


def test_timesteps_have_their_own_levels():
    levels = torch.cumprod(1 - BETAS, 0)
    assert adapters.Timesteps(levels).levels == DDPM.levels == tuple(levels.tolist())
    for step in (0, 1, 17, 500, 998, 999):
        tau = 1 - (step + 1) / 1000
        assert DDPM.index(tau) == step
        assert DDPM.path.data(tau) == pytest.approx(math.sqrt(levels[step]), rel=1e-12)
    assert [DDPM.index(tau) for tau in (0.0, 0.9996, 1.0)] == [999, 0, 0]


@pytest.mark.parametrize("steps", [1, 8, 10, 50, 125, 1000])
def test_steps_that_divide_the_timesteps_visit_timesteps_only(steps: int):
    for k in range(steps):
        tau = k / steps
        assert DDPM.index(tau) == 999 - k * 1000 // steps
        assert DDPM.path.data(tau) == pytest.approx(math.sqrt(DDPM.levels[DDPM.index(tau)]), rel=1e-9)


# Predictions.


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_exact_prediction_gives_the_exact_velocity(kind: str, path: Path):
    velocity, u = KINDS[kind](exact(kind, path), path), noise()
    for tau in (0.01, 0.2, 0.5, 0.9, 0.998):
        known = Gaussian(path).velocity(u, tau)
        assert torch.allclose(velocity(u, tau), known, rtol=1e-9, atol=1e-9)
    times = torch.tensor([0.01, 0.5, 0.998], dtype=torch.float64)
    each = torch.cat([velocity(u[i : i + 1], float(times[i])) for i in range(3)])
    assert torch.allclose(velocity(u, times), each, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_shooting_gives_the_predicted_data_back(kind: str, path: Path):
    velocity, u = KINDS[kind](exact(kind, path), path), noise()
    for tau in (0.01, 0.5, 0.99):
        assert torch.allclose(path.shoot(u, velocity(u, tau), tau), Gaussian(path).data(u, tau), rtol=0, atol=1e-9)


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_plain_flow_carries_white_noise_to_the_gaussian(kind: str, path: Path):
    velocity = KINDS[kind](exact(kind, path), path)
    white = noise(4)
    known = Gaussian(path)
    u = white
    out = snapfm.sample(velocity, None, None, 4, 500, seeded(2), shape=SHAPE, dtype=torch.float64, sampler=Flow())
    white = snapfm.sample(lambda u, tau: 0 * u, None, None, 4, 1, seeded(2), shape=SHAPE, dtype=torch.float64).u
    u = known.mean + known.std * white  # the flow between Gaussians keeps quantiles
    assert float((out.u - u).abs().max()) <= 0.05 * known.std * float(white.abs().max())


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("kind", KINDS)
def test_both_ends_are_finite_and_continue_what_is_beside_them(kind: str, path: Path):
    velocity = KINDS[kind](exact(kind, path), path)
    for end, beside in ((0.0, 1e-3), (1.0, 1 - 1e-3)):
        data = Gaussian(path).data(torch.ones(1, *SHAPE, dtype=torch.float64), beside)
        u = path.data(beside) * data + path.noise(beside) * noise(1)
        at, near = velocity(u, end), velocity(u, beside)
        assert bool(torch.isfinite(at).all())
        assert torch.allclose(at, near, rtol=0.05, atol=0.05)
        if end == 0.0:  # where α = 0 a prediction of noise says nothing; a little later it does
            led = path.shoot(u, at, end)
            assert torch.allclose(led, Gaussian(path).data(u, beside), rtol=0, atol=0.05)


def test_noise_is_asked_for_no_earlier_than_it_tells_of_data():
    asked: list[float] = []

    def model(u: Tensor, time: Tensor) -> Tensor:
        asked.append(float(time[0]))
        return Gaussian(COSINE).noise(u, float(time[0]))

    velocity = adapters.predicts_noise(model, COSINE)
    velocity(noise(), 0.0)
    velocity(noise(), 0.5)
    assert COSINE.data(asked[0]) == pytest.approx(1e-3, rel=1e-6)
    assert asked[1] == 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_an_exact_diffusion_obey_their_laws(kind: str):
    model = exact(kind, DDPM.path)
    velocity = KINDS[kind](lambda u, step: model(u, 1 - (step + 1) / 1000), DDPM.path, clock=DDPM.index)
    out = snapfm.sample(velocity, energy_projector(), {"energy": energies()}, 5, 50, seeded(3), dtype=torch.float64)
    assert out.projection.status.tolist() == [Status.CONVERGED] * 5
    assert float((out.u.square().sum(1) - energies()).abs().max()) <= 1e-8


def test_a_network_with_a_table_of_timesteps_is_asked_in_whole_ones():
    class Network(nn.Module):
        """What diffusers gives: an object with a sample, and embeddings of whole timesteps."""

        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(1000, 1)
            self.steps: list[int] = []

        def forward(self, u: Tensor, step: Tensor) -> Any:
            self.steps.append(int(step[0]))
            answer = u * (1 + 0 * self.table(step)[:, :, None])
            return type("Output", (), {"sample": answer})()

    network = Network()
    velocity = adapters.predicts_noise(network, DDPM.path, clock=DDPM.index)
    snapfm.sample(velocity, energy_projector(), {"energy": energies()}, 2, 10, seeded(4))
    assert network.steps == [999, 899, 799, 699, 599, 499, 399, 299, 199, 99]
    assert next(velocity.parameters()) is network.table.weight


def test_a_prediction_may_be_behind_other_adapters():
    inside = exact("noise", VP)
    first = adapters.time_first(lambda time, x: inside(x[:, 0], 1 - time)[:, None], clock=lambda tau: 1 - tau)
    velocity = adapters.channels(adapters.predicts_noise(first, VP))
    assert velocity.path is VP
    assert torch.allclose(velocity(noise(), 0.5), Gaussian(VP).velocity(noise(), 0.5), rtol=1e-9, atol=1e-9)


def test_a_trained_diffusion_model_is_sampled_under_a_nonlinear_law():
    network, generator = Net(), seeded(5)
    levels = torch.tensor(DDPM.levels).float()

    def loss() -> Tensor:
        data = waves(128, generator).float().flatten(1)
        white, step = torch.randn(data.shape, generator=generator), torch.randint(1000, (128,), generator=generator)
        level = levels[step][:, None]
        return (network(level.sqrt() * data + (1 - level).sqrt() * white, step / 1000) - white).square().mean()

    fit(network, loss, steps=1200)
    whole = adapters.predicts_noise(lambda u, step: network(u, step / 1000), DDPM.path, clock=DDPM.index)
    velocity, project = adapters.flat(whole), energy_projector()
    out = snapfm.sample(velocity, project, {"energy": energies()}, 32, 50, seeded(6))
    assert out.projection.status.tolist() == [Status.CONVERGED] * 32
    truth = waves(4096, seeded(9)).mean(0)
    assert float((out.u.double().mean(0) - truth).square().mean()) <= 0.15 * float(truth.square().mean())
    assert unlike_waves(out.u) <= 0.5  # 0.75 for noise; 0.38 to 0.43 with the number of threads that trained it


# Mistakes.


@pytest.mark.parametrize(
    ("mistake", "expected", "came", "cure"),
    [
        (
            lambda: adapters.variance_preserving(2.0, 1.0),
            "expects 0 < beta_min <= beta_max", "got 2.0 and 1.0", "0.1 and 20 are usual",
        ),
        (
            lambda: adapters.Timesteps([0.1, 0.5, 0.9]),
            "expects alphas_cumprod, numbers that fall", "got [0.1, 0.5, 0.9]", "of_betas(betas)",
        ),
        (lambda: adapters.Timesteps([]), "expects alphas_cumprod", "got []", "of_betas(betas)"),
        (
            lambda: adapters.Timesteps.of_betas([0.1, 1.5]),
            "expects a row of numbers between 0 and 1", "got shape (2,), 0.1 to 1.5", "Pass the betas",
        ),
        (
            lambda: adapters.predicts_noise(Net(), DDPM),
            "predicts_noise(model, path) expects a snapfm.sampling.Path", "got Timesteps", "Pass its path: Timesteps(…).path.",
        ),
        (
            lambda: adapters.predicts_data(Net(), adapters.Timesteps([0.9, 0.6]).path),
            "expects a path from white noise to data", "got noise(0) = 0.632456, not 1", "noise of variance one",
        ),
        (
            lambda: adapters.predicts_data(adapters.field_first(Net()), VP, clock=lambda tau: tau),
            "expects clock=… for a model that is called as model(u, time)", "got one beside an adapter", "Give it to",
        ),
        (
            lambda: adapters.predicts_data(adapters.channels(adapters.Normalized(Net(), 0.0, 2.0)), VP),
            "expects a model that predicts", "got one inside Normalized", "Normalized(predicts_data(model, path), …)",
        ),
        (
            lambda: adapters.predicts_data(lambda u, t: {"sample": u}, VP)(noise(), 0.5),
            "expects fields (3, 8, 6) back", "got dict", "Choose the adapter",
        ),
        (
            lambda: adapters.predicts_noise(Net(), VP)(noise(), torch.zeros(2)),
            "expects tau as a number or of shape (3,)", "got a tensor of shape (2,)", "one per sample",
        ),
        (
            lambda: adapters.variance_preserving("linear"),
            "expects 0 < beta_min <= beta_max", "got 'linear' and 20.0", "0.1 and 20 are usual",
        ),
        (
            lambda: adapters.variance_preserving(0.1, None),
            "expects 0 < beta_min <= beta_max", "got 0.1 and None", "0.1 and 20 are usual",
        ),
        (lambda: adapters.Timesteps(1000), "expects alphas_cumprod", "got 1000", "of_betas(betas)"),
        (lambda: adapters.Timesteps("linear"), "expects alphas_cumprod", "got 'linear'", "of_betas(betas)"),
        (
            lambda: adapters.Timesteps(torch.rand(3, 2)),
            "expects alphas_cumprod", "got a tensor of shape (3, 2)", "of_betas(betas)",
        ),
        (lambda: adapters.Timesteps.of_betas(None), "expects a row of numbers", "got None", "Pass the betas"),
        (lambda: adapters.Timesteps.of_betas([]), "expects a row of numbers", "got shape (0,), none", "Pass the betas"),
        (lambda: adapters.Timesteps.of_betas(["a"]), "expects a row of numbers", "got ['a']", "Pass the betas"),
        (
            lambda: adapters.predicts_noise(Net(), VP, clock=5),
            "predicts_noise(clock) expects a function of flow time", "got int", "clock=lambda tau",
        ),
        (
            lambda: adapters.predicts_data(3, VP),
            "predicts_data(model) expects a model to call", "got int", "Pass the trained network",
        ),
    ],
    ids=[
        "betas", "rising", "none", "beta", "timesteps", "short", "clock", "nested", "dict", "tau", "a word for betas",
        "no beta", "how many levels", "a word for levels", "a table of levels", "nothing for betas", "no betas at all",
        "words for betas", "a number for a clock", "a number for a model",
    ],
)  # fmt: skip
def test_a_mistake_is_in_three_parts(mistake: Any, expected: str, came: str, cure: str):
    with pytest.raises(SnapfmError) as caught:
        mistake()
    assert is_in_three_parts(str(caught.value), expected, came, cure), str(caught.value)
