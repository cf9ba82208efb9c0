import pytest
import torch

from snapfm.errors import UnknownName
from snapfm.flow import load_checkpoint, shipped, shipped_names
from snapfm.flow.quality import integrate, roughness
from snapfm.flow.shipped import _FOLDER

LARGEST = 25_000_000  # bytes of all shipped models together


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_models_load_and_answer(name: str) -> None:
    velocity = shipped(name)
    u = torch.randn(2, *velocity.settings.shape, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        for tau in (0.0, 0.5, 0.99, 1.0):
            assert bool(velocity(u, tau).isfinite().all())


def test_shipped_models_are_small_together() -> None:
    assert "heat-small" in shipped_names()
    files = [file for name in shipped_names() for file in (_FOLDER / name).iterdir()]
    assert sum(len(file.read_bytes()) for file in files) <= LARGEST


@pytest.mark.parametrize("name", shipped_names())
def test_records_say_that_samples_beat_the_training_mean(name: str) -> None:
    record = load_checkpoint(str(_FOLDER / name)).record
    assert record["quality"]["samples"]["smse"] < record["quality"]["constant"]["smse"]
    assert record["command"].startswith("snapfm train ")
    assert len(record["loss_curve"]) > 1


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
