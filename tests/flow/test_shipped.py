import pytest
import torch

from snapfm.errors import UnknownName
from snapfm.flow import shipped, shipped_names
from snapfm.flow.quality import integrate, roughness
from snapfm.flow.shipped import _FOLDER

LARGEST = 5_000_000  # bytes of a shipped model


@pytest.mark.parametrize("name", ["heat-small"])
def test_shipped_models_load_and_answer(name: str) -> None:
    assert name in shipped_names()
    velocity = shipped(name)
    u = torch.randn(2, *velocity.settings.shape, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        for tau in (0.0, 0.5, 0.99, 1.0):
            assert bool(velocity(u, tau).isfinite().all())
    assert sum(len(file.read_bytes()) for file in (_FOLDER / name).iterdir()) <= LARGEST


def test_the_heat_model_turns_noise_into_smooth_decaying_waves() -> None:
    noise = torch.randn(2, 100, 100, generator=torch.Generator().manual_seed(0))
    fields = integrate(shipped("heat-small"), noise, steps=25)
    assert roughness(fields) < 0.01 * roughness(noise)
    energy = fields.square().mean(1)
    assert bool((energy[:, 0] > 0.3).all())  # a sine of amplitude one has 0.5
    assert bool((energy[:, -1] < 0.5 * energy[:, 0]).all())


def test_unknown_models_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"expects one of \[.*'heat-small'.*\]; got 'moon'\. Train another"):
        shipped("moon")
