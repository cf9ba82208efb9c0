"""Call conventions and layouts: where time goes, in which form, and in which shape fields reach the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.adapters.toys import SHAPE, Net, energies, energy_projector, is_in_three_parts, seeded
from torch import Tensor, nn

import snapfm
from snapfm import adapters
from snapfm.errors import SnapfmError
from snapfm.sampling import COSINE, STRAIGHT, Path


class Recording(nn.Module):
    """A network that writes down what it is called with and answers with its first tensor of fields."""

    def __init__(self, fields: int = 0, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones((), dtype=dtype))
        self.fields = fields
        self.calls: list[tuple[Any, ...]] = []

    def forward(self, *given: Any, **named: Any) -> Tensor:
        self.calls.append((*given, named))
        return -self.weight * given[self.fields]


def noise(count: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, *SHAPE, generator=seeded(1), dtype=dtype)


def draw(velocity: Any, count: int = 3, **settings: Any) -> Tensor:
    return snapfm.sample(velocity, energy_projector(), {"energy": energies()}, count, 4, seeded(2), **settings).u


# Time.


@pytest.mark.parametrize("tau", [0.25, torch.tensor(0.25), torch.tensor([0.25]), torch.full((3,), 0.25)])
def test_time_reaches_the_model_as_one_per_sample(tau: float | Tensor):
    for adapt, place in ((adapters.field_first, 0), (adapters.time_first, 1)):
        network, u = Recording(place), noise()
        assert torch.equal(adapt(network)(u, tau), -u)
        time = network.calls[0][1 - place]
        assert time.dtype == u.dtype
        assert time.tolist() == [0.25] * 3


def test_time_may_be_one_for_all():
    network = Recording(1)
    velocity = adapters.time_first(network, times="one")
    velocity(noise(), 0.25)
    velocity(noise(), torch.tensor([0.1, 0.2, 0.3]))
    assert network.calls[0][0].shape == ()
    assert network.calls[1][0].shape == (3,)


def test_a_clock_maps_flow_time_to_the_models_own():
    network = Recording()
    adapters.field_first(network, clock=lambda tau: 1.0 - tau)(noise(), 0.25)
    adapters.field_first(network, clock=lambda tau: round(1000 * tau))(noise(), torch.tensor([0.1, 0.2, 0.3]))
    assert network.calls[0][1].tolist() == [0.75] * 3
    assert network.calls[1][1].tolist() == [100, 200, 300]
    assert network.calls[1][1].dtype == torch.int64


def test_fields_and_time_may_be_one_input():
    network = Recording()
    network.forward = lambda x: network.calls.append((x,)) or x[:, :-1] * x[:, -1:]
    u = noise()
    assert torch.equal(adapters.joined(network)(u, 0.5), 0.5 * u)
    assert network.calls[0][0].shape == (3, 49)
    times = torch.tensor([0.1, 0.2, 0.3])
    assert torch.equal(adapters.joined(network)(u, times), times[:, None, None] * u)


@pytest.mark.parametrize("adapt", [adapters.field_first, adapters.time_first], ids=["field first", "time first"])
def test_adapted_and_plain_velocities_give_the_same_bits(adapt: Any):
    def model(*given: Tensor) -> Tensor:
        u, tau = given if adapt is adapters.field_first else given[::-1]
        return -u * (1 - tau)[:, None, None]

    for dtype in (torch.float32, torch.float64):
        assert torch.equal(draw(adapt(model), dtype=dtype), draw(lambda u, tau: -u * (1 - tau), dtype=dtype))


# Weights and what else the sampler looks for.


def test_device_and_dtype_are_those_of_the_models_weights():
    network = Recording(1, torch.float64)
    velocity = adapters.channels(adapters.time_first(network))
    assert draw(velocity, dtype=torch.float32).dtype == torch.float32
    assert network.calls[0][1].dtype == torch.float64
    assert network.calls[0][1].shape == (3, 1, *SHAPE)
    assert [weight is network.weight for weight in velocity.parameters()] == [True]


def test_path_and_shape_are_passed_on_from_the_inside_out():
    network = Recording()
    assert adapters.field_first(network).path is STRAIGHT
    assert adapters.channels(adapters.flat(adapters.field_first(network, path=COSINE))).path is COSINE
    network.path, network.shape = COSINE, (2, *SHAPE)
    assert adapters.field_first(network).path is COSINE
    assert adapters.field_first(network).shape == (2, *SHAPE)
    assert adapters.channels(network, axis=-1).shape == (*SHAPE, 2)
    assert adapters.channels(network, axis=0).shape == (2, *SHAPE)
    network.shape, network.path = (1, *SHAPE), "weights/model.pt"  # attributes that only happen to have that name
    assert adapters.channels(network).shape == SHAPE
    assert adapters.channels(network).path is STRAIGHT
    assert snapfm.sample(adapters.channels(network), None, count=2, steps=1).u.shape == (2, *SHAPE)
    assert adapters.flat(network).shape is None


def test_the_pull_back_follows_the_path_of_the_adapter():
    def model(u: Tensor, tau: Tensor) -> Tensor:
        return -u

    velocity = adapters.field_first(model, path=COSINE)
    with_path = draw(lambda u, tau: -u, path=COSINE, dtype=torch.float64)
    assert torch.equal(draw(velocity, dtype=torch.float64), with_path)
    assert not torch.equal(draw(lambda u, tau: -u, dtype=torch.float64), with_path)


# Layout.


def test_flat_fields():
    network, u = Recording(), noise()
    assert torch.equal(adapters.flat(network)(u, 0.5), -u)
    assert network.calls[0][0].shape == (3, 48)
    assert torch.equal(
        adapters.flat(adapters.field_first(Net()))(u, 0.5), Net()(u.flatten(1), torch.full((3,), 0.5)).view_as(u)
    )


def test_one_channel_is_put_in_and_taken_out():
    network, u = Recording(), noise()
    assert torch.equal(adapters.channels(network)(u, 0.5), -u)
    assert network.calls[0][0].shape == (3, 1, *SHAPE)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_components_are_moved_to_the_channel_axis_and_back(axis: int):
    def model(u: Tensor, tau: float) -> Tensor:
        return u * torch.tensor([1.0, 10.0, 100.0, 1000.0]).view(1, 4, 1, 1)

    extents = [2, 3]
    extents.insert(axis % 3, 4)
    u = torch.randn(5, *extents, generator=seeded(3))
    scale = torch.tensor([1.0, 10.0, 100.0, 1000.0]).view([4 if i == axis % 3 else 1 for i in range(3)])
    assert torch.equal(adapters.channels(model, axis=axis)(u, 0.5), u * scale)


def test_sampled_through_layouts_the_bits_stay():
    plain = draw(lambda u, tau: -u, dtype=torch.float64)
    for velocity in (adapters.flat(lambda u, tau: -u), adapters.channels(lambda u, tau: -u)):
        assert torch.equal(draw(velocity, dtype=torch.float64), plain)


# Mistakes.

STUCK = Path(lambda t: t * t, lambda t: 1 - t * t, lambda t: 2 * t, lambda t: -2 * t)
WRONG = Path(lambda t: t, lambda t: 1 - t, lambda t: 1.0, lambda t: 1.0)
LOUD = Path(lambda t: 1.0, lambda t: 80 * (1 - t), lambda t: 0.0, lambda t: -80.0)
SHORT = Path(lambda t: 0.5 * t, lambda t: 1 - t, lambda t: 0.5, lambda t: -1.0)
WORDS = Path(lambda t: t, lambda t: "none", lambda t: 1.0, lambda t: -1.0)  # type: ignore[arg-type, return-value]
RAISES = Path(lambda t: 1.0 // 0, lambda t: 1 - t, lambda t: 1.0, lambda t: -1.0)
U = torch.zeros(2, 3, 5)


@pytest.mark.parametrize(
    ("mistake", "expected", "came", "cure"),
    [
        (lambda: adapters.time_first(3), "expects a model to call", "got int", "Pass the trained network"),
        (lambda: adapters.flat(Net), "expects a model to call", "got Net", "Pass the trained network"),
        (lambda: adapters.field_first(Net(), path="straight"), "expects a snapfm.sampling.Path", "got str", "Build one"),
        (
            lambda: adapters.field_first(Net(), path=STUCK),
            "expects a path that leaves the noise at once", "got data_slope(0) = 0", "start the path a little later",
        ),
        (
            lambda: adapters.field_first(Net(), path=WRONG),
            "expects path.noise_slope to be the slope of path.noise", "got 1 at τ = 0.31", "Differentiate it again",
        ),
        (
            lambda: adapters.field_first(Net(), path=LOUD),
            "expects a path from white noise to data", "got noise(0) = 80", "scale the path",
        ),
        (
            lambda: adapters.field_first(Net(), path=SHORT),
            "expects a path from white noise to data", "got data(1) = 0.5", "scale the path",
        ),
        (lambda: adapters.field_first(Net(), clock=5), "expects a function of flow time", "got int", "clock=lambda tau"),
        (lambda: adapters.field_first(Net(), times="all"), "expects 'each'", "got 'all'", "Most networks"),
        (
            lambda: adapters.field_first(lambda u, t: u)(U, "0.5"),
            "expects tau as a number or of shape (2,)", "got str", "one per sample",
        ),
        (
            lambda: adapters.time_first(lambda t, u: u[:, 0])(U, 0.5),
            "expects fields (2, 3, 5) back", "got (2, 5)", "Choose the adapter",
        ),
        (
            lambda: adapters.joined(lambda x: x)(U, 0.5),
            "expects fields (2, 3, 5) back", "got (2, 16)", "Choose the adapter",
        ),
        (
            lambda: adapters.channels(lambda u, tau: u.expand(-1, 2, -1, -1))(U, 0.5),
            "channels(model) expects fields (2, 1, 3, 5) back", "got (2, 2, 3, 5)", "Choose the adapter",
        ),
        (
            lambda: adapters.flat(lambda u, tau: u.tolist())(U, 0.5),
            "flat(model) expects fields (2, 15) back", "got list", "Choose the adapter",
        ),
        (
            lambda: adapters.channels(lambda u, tau: u, axis=2)(U, 0.5),
            "expects an axis of fields with 2", "got 2", "Count without the batch axis",
        ),
        (
            lambda: adapters.time_first(adapters.flat(Net())),
            "expects a model that is called in its own way", "got the adapter flat", "Put time_first inside",
        ),
        (lambda: adapters.channels(Net(), axis="c"), "expects the axis of ONE field", "got 'c'", "axis=-1"),
        (lambda: adapters.channels(Net(), axis=True), "expects the axis of ONE field", "got True", "axis=-1"),
        (
            lambda: adapters.field_first(Net(), path=WORDS),
            "field_first(path) expects path.noise to give a number for a flow time", "got 'none' at τ = 0.5", "Return a float.",
        ),
        (
            lambda: adapters.field_first(Net(), path=RAISES),
            "expects path.data to give a number for a flow time", "got ZeroDivisionError(", "Return a float.",
        ),
    ],
    ids=[
        "number", "class", "path name", "stuck", "slope", "loud", "short", "clock", "times", "tau", "shape", "joined",
        "channels", "list", "axis", "adapter", "axis name", "axis flag", "path of words", "path that raises",
    ],
)  # fmt: skip
def test_a_mistake_is_in_three_parts(mistake: Any, expected: str, came: str, cure: str):
    with pytest.raises(SnapfmError) as caught:
        mistake()
    assert is_in_three_parts(str(caught.value), expected, came, cure), str(caught.value)
