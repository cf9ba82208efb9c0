"""Models of `diffusers`, by a stand-in with the same calls: the library is not imported, and not needed here."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.adapters.toys import SHAPE, Gaussian, is_in_three_parts, seeded
from torch import Tensor, nn

import snapfm
from snapfm import adapters
from snapfm.errors import SettingError

BETAS = torch.linspace(1e-4, 0.02, 1000)
STEPS = adapters.Timesteps(torch.cumprod(1 - BETAS, 0))
KINDS = {"epsilon": "noise", "sample": "data", "v_prediction": "v"}


def scheduler(kind: str) -> Any:
    """What is read of a DDPMScheduler."""
    return SimpleNamespace(alphas_cumprod=torch.cumprod(1 - BETAS, 0), config={"prediction_type": kind})


@dataclass
class Output:
    sample: Tensor


class UNet(nn.Module):
    """Called as a UNet2DModel is: (b, c, h, w) and whole timesteps (b,) in, an object with `.sample` out. Exact."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.answer, self.weight = getattr(Gaussian(STEPS.path), KINDS[kind]), nn.Parameter(torch.zeros(()))
        self.calls: list[tuple[tuple[int, ...], torch.dtype]] = []

    def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor | None = None) -> Output:
        self.calls.append((tuple(sample.shape), timestep.dtype))
        taus = 1.0 - (timestep.double() + 1) / 1000
        return Output(torch.stack([self.answer(one, float(tau)) for one, tau in zip(sample, taus)]))


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_unet_predicts_becomes_a_velocity(kind: str):
    unet = UNet(kind).double()
    velocity = adapters.diffusers(unet, scheduler(kind))
    u = torch.randn(2, 1, *SHAPE, generator=seeded(0), dtype=torch.float64)
    for step in (900, 500, 20):
        tau = 1 - (step + 1) / 1000
        assert torch.allclose(velocity(u, tau), Gaussian(STEPS.path).velocity(u, tau), rtol=1e-5, atol=1e-5)
    assert set(unet.calls) == {((2, 1, *SHAPE), torch.int64)}
    assert velocity.path is not snapfm.sampling.STRAIGHT


@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_a_unet_obey_a_law_on_fields_without_channels(kind: str):
    law = snapfm.Equality("energy", lambda u, p: u.square().sum() - 5.0)
    velocity = adapters.channels(adapters.diffusers(UNet(kind), scheduler(kind)))
    out = snapfm.sample(velocity, snapfm.Projector([law], SHAPE), count=3, steps=50, seed=0)
    assert bool(out.projection.converged.all())
    assert torch.allclose(out.u.square().sum((1, 2)), torch.tensor(5.0), atol=1e-4)


def test_more_inputs_go_along():
    seen: list[Tensor] = []

    def unet(sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Output:
        seen.append(encoder_hidden_states)
        return Output(0.9 * sample)

    text = torch.randn(4, 7, 3)
    velocity = adapters.conditioned(adapters.diffusers(unet, scheduler("epsilon")), encoder_hidden_states=text)
    law = snapfm.Equality("mean", lambda u, p: u.mean())
    out = snapfm.sample(velocity, snapfm.Projector([law], (1, *SHAPE)), count=4, steps=10, seed=0, batch=3)
    assert bool(out.projection.converged.all())
    assert torch.equal(seen[0], text[:3])
    assert torch.equal(seen[-1], text[3:])


@pytest.mark.parametrize(
    "wrong", [None, object(), SimpleNamespace(config={"prediction_type": "epsilon"}), scheduler("x")]
)
def test_another_scheduler_is_refused(wrong: Any):
    with pytest.raises(SettingError) as caught:
        adapters.diffusers(UNet("epsilon"), wrong)
    assert is_in_three_parts(str(caught.value), "diffusers(model, scheduler) expects", "got", "Pass the scheduler")
