import math

import pytest
import torch

import snapfm
from snapfm.errors import UnknownName
from snapfm_bench.flow import default_model, load_checkpoint, shipped, shipped_names
from snapfm_bench.flow.checkpoint import _SHIPPED
from snapfm_bench.flow.quality import integrate, roughness

EQUATIONS = {"heat", "burgers", "reaction-diffusion", "navier-stokes"}
REACH = 0.5  # share of the data's range beyond it: what an unstable walk leaves first
LARGEST = 25_000_000  # bytes of all shipped models together
LARGEST_PLAIN = 3_000_000  # of a plain one
KINDS = {"plain": "plain", "small": "law-aware"}  # by the end of the name
PLAIN = [name for name in shipped_names() if name.endswith("-plain")]


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_models_load_and_answer(name: str) -> None:
    velocity = shipped(name)
    u = torch.randn(2, *velocity.settings.shape, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        for tau in (0.0, 0.5, 0.99, 1.0):
            assert bool(velocity(u, tau).isfinite().all())


def test_shipped_models_are_small_together() -> None:
    assert set(shipped_names()) == {f"{equation}-{end}" for equation in EQUATIONS for end in KINDS}
    files = [file for name in shipped_names() for file in (_SHIPPED / name).iterdir()]
    assert sum(len(file.read_bytes()) for file in files) <= LARGEST


@pytest.mark.parametrize("name", shipped_names())
def test_names_say_how_models_were_trained(name: str) -> None:
    checkpoint = load_checkpoint(str(_SHIPPED / name))
    equation, _, end = name.rpartition("-")
    assert (checkpoint.equation, checkpoint.training) == (equation, KINDS[end])
    assert (" --plain " in checkpoint.record["command"]) == (end == "plain")
    assert (name == default_model(equation)) == (end == "plain")


@pytest.mark.parametrize("name", PLAIN)
def test_plain_models_are_small_and_beat_the_training_mean_in_mean_and_spread(name: str) -> None:
    assert sum(len(file.read_bytes()) for file in (_SHIPPED / name).iterdir()) <= LARGEST_PLAIN
    found = load_checkpoint(str(_SHIPPED / name)).record["quality"]
    for score in ("mmse", "smse"):
        assert found["samples"][score] < found["constant"][score]


def test_the_plain_heat_model_draws_decaying_sines_of_amplitude_one() -> None:
    noise = torch.randn(16, 100, 100, generator=torch.Generator().manual_seed(0))
    fields = integrate(shipped("heat-plain"), noise, steps=50)[:, :-1].double()
    x = torch.arange(99, dtype=torch.float64) * (2 * math.pi / 99)
    wave = torch.complex(torch.cos(x), -torch.sin(x)) * (2 / 99)
    parts = torch.einsum("x,bxt->bt", wave, fields.to(wave.dtype))
    assert float((parts[:, 0].abs() - 1).abs().max()) < 0.1
    rest = fields - (wave.conj()[:, None] * (99 / 2) * parts[:, None]).real
    assert float(rest.square().mean()) < 1e-3 * float(fields.square().mean())
    rate = -(parts[:, 30] / parts[:, 0]).abs().log() / (30 / 99)
    assert float(rate.min()) > 0.5  # diffusivities lie between 1 and 5
    assert float(rate.max()) < 5.5
    assert float(rate.std()) > 0.5


@pytest.mark.parametrize("name", shipped_names())
def test_records_say_that_samples_beat_the_training_mean(name: str) -> None:
    record = load_checkpoint(str(_SHIPPED / name)).record
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


@pytest.mark.parametrize("steps", [10, 50])
def test_the_heat_model_follows_the_initial_condition_that_laws_impose(steps: int) -> None:
    problem = snapfm.problem("heat-ic-mass")
    params = problem.params(4, torch.Generator().manual_seed(0))
    project = snapfm.Projector(problem.laws, problem.grid.shape, params)
    fields = snapfm.sample(shipped("heat-small"), project, params, 4, steps, torch.Generator().manual_seed(0)).u
    assert float(fields.abs().max()) < 1.1
    x = problem.grid.axis("x").points()[:-1]
    wave = torch.complex(torch.cos(x), -torch.sin(x))
    phase = (fields[:, :-1, 10].to(wave) * wave).sum(1).angle()
    imposed = (params["u0"][:, :-1].to(wave) * wave).sum(1).angle()
    off = torch.remainder(phase - imposed + math.pi, 2 * math.pi) - math.pi
    assert float(off.abs().max()) < math.pi / 16


@pytest.mark.parametrize(
    ("model", "problem", "settings", "steps"),
    [
        ("burgers-small", "burgers-ic-mass-flux", {"mass": "flux"}, 50),
        ("burgers-small", "burgers-bc-mass", {"mass": "flux"}, 50),
        ("reaction-diffusion-small", "reaction-diffusion-ic-mass", {"inner": True}, 50),
    ],
)
def test_models_under_laws_converge_and_stay_near_their_data(
    model: str, problem: str, settings: dict[str, str], steps: int
) -> None:
    built = snapfm.problem(problem, **settings)
    params = built.params(4, torch.Generator().manual_seed(0))
    project = snapfm.Projector(built.laws, built.grid.shape, params)
    out = snapfm.sample(shipped(model), project, params, 4, steps, torch.Generator().manual_seed(0))
    assert out.projection is not None
    assert bool(out.projection.converged.all())
    data = built.simulate(64, torch.Generator().manual_seed(1))
    reach = REACH * float(data.max() - data.min())
    assert float(out.u.min()) > float(data.min()) - reach
    assert float(out.u.max()) < float(data.max()) + reach


def test_unknown_models_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"expects one of \[.*'heat-small'.*\]; got 'moon'\. Train another"):
        shipped("moon")
