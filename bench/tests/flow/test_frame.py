import copy
import re

import pytest
import torch

from snapfm.errors import DtypeError, ShapeError
from snapfm.grid import Axis, Grid
from snapfm_bench.flow import (
    Checkpoint,
    FrameSettings,
    FrameVelocity,
    Latent,
    TrainingSettings,
    load_checkpoint,
    save_checkpoint,
    train,
)
from snapfm_bench.flow.quality import integrate
from snapfm_bench.flow.waves import real_waves

SETTINGS = FrameSettings(shape=(5, 7), size=3, width=8, layers=2, anchors=(-1, 0), embedding=8)
ROUNDING = 64 * torch.finfo(torch.float32).eps


@pytest.fixture
def data() -> torch.Tensor:
    """Draw fields with three random numbers each."""
    random = torch.Generator().manual_seed(4)
    basis = torch.randn(3, 5, 7, generator=random)
    size = torch.tensor([2.0, 1.0, 0.5])
    return 1.0 + torch.einsum("bk,kxt->bxt", torch.randn(200, 3, generator=random) * size, basis)


@pytest.fixture
def network(data: torch.Tensor) -> FrameVelocity:
    network = FrameVelocity(SETTINGS, seed=1)
    network.fit(data)
    return network.eval()


def answer(network: FrameVelocity, u: torch.Tensor, tau: float) -> torch.Tensor:
    return u + (1 - tau) * network(u, tau)


def test_the_frame_is_orthonormal_and_holds_the_data(network: FrameVelocity, data: torch.Tensor) -> None:
    torch.testing.assert_close(network.frame @ network.frame.T, torch.eye(3), rtol=0.0, atol=ROUNDING)
    flat = data.flatten(1)
    inside = network.mean + (flat - network.mean) @ network.frame.T @ network.frame
    torch.testing.assert_close(inside, flat, rtol=0.0, atol=ROUNDING * float(flat.abs().max()))
    assert bool((network.scale.diff() < 0).all())  # the widest direction first


def test_an_untrained_network_gives_the_best_linear_estimate(network: FrameVelocity, data: torch.Tensor) -> None:
    tau = 0.6
    u = tau * data + (1 - tau) * torch.randn(data.shape, generator=torch.Generator().manual_seed(9))
    flat = data.flatten(1).double()
    centered = flat - flat.mean(0)
    covariance = centered.T @ centered / (len(flat) - 1)
    noisy = tau**2 * covariance + (1 - tau) ** 2 * torch.eye(flat.shape[1], dtype=torch.float64)
    gain = tau * covariance @ torch.linalg.inv(noisy)
    expected = flat.mean(0) + (u.flatten(1).double() - tau * flat.mean(0)) @ gain.T
    found = answer(network, u, tau).flatten(1).double()
    # The frame's axes are those of all fields, for its scales as for its rows.
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-3)


def test_clean_fields_stay(network: FrameVelocity, data: torch.Tensor) -> None:
    near = 1 - 1e-3
    torch.testing.assert_close(answer(network, near * data, near), data, rtol=0.0, atol=1e-3)


def test_first_weights_depend_on_the_seed_and_nothing_else() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, two, other = FrameVelocity(SETTINGS, 1), FrameVelocity(SETTINGS, 1), FrameVelocity(SETTINGS, 2)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.first.weight, two.first.weight)
    assert not torch.equal(one.first.weight, other.first.weight)


def moved(network: FrameVelocity) -> FrameVelocity:
    """Give the last layer weights, or nothing of the others can be seen."""
    with torch.no_grad():
        network.last.weight.normal_(generator=torch.Generator().manual_seed(3))
    return network


def test_anchors_are_read_point_by_point(network: FrameVelocity) -> None:
    network = moved(network)
    u = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(6))
    outside = torch.randn(35, generator=torch.Generator().manual_seed(7))
    outside = (outside - outside @ network.frame.T @ network.frame).view(5, 7)  # invisible to the frame
    inner = outside.clone()
    inner[0], inner[:, 0] = 0, 0
    inner_flat = inner.flatten() - inner.flatten() @ network.frame.T @ network.frame
    assert not torch.allclose(answer(network, u + outside, 0.5), answer(network, u, 0.5), atol=1e-3)
    blind = FrameVelocity(FrameSettings(shape=(5, 7), size=3, width=8, layers=2, anchors=()), seed=1)
    blind.mean, blind.frame, blind.scale = network.mean, network.frame, network.scale
    blind = moved(blind)
    for part in (outside, inner_flat.view(5, 7)):
        torch.testing.assert_close(answer(blind, u + part, 0.5), answer(blind, u, 0.5), rtol=0.0, atol=1e-4)


def test_a_sample_does_not_depend_on_its_batch_mates(network: FrameVelocity) -> None:
    network = moved(network)
    u = torch.randn(4, 5, 7, generator=torch.Generator().manual_seed(6))
    tau = torch.tensor([0.0, 0.3, 0.7, 1.0])
    spoiled = u.clone()
    spoiled[2] = float("nan")
    found, other = network(u, tau), network(spoiled, tau)
    keep = torch.tensor([0, 1, 3])
    assert torch.equal(found[keep], other[keep])
    assert bool(other[2].isnan().all())


def test_the_answer_has_the_dtype_of_the_fields_and_weights_may_be_double(network: FrameVelocity) -> None:
    network = moved(network)
    u = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    assert network(u, 0.4).dtype == torch.float64
    double = copy.deepcopy(network).double()
    torch.testing.assert_close(double(u, 0.4), network(u, 0.4), rtol=1e-4, atol=1e-4)


def test_wrong_fields_are_refused(network: FrameVelocity, data: torch.Tensor) -> None:
    with pytest.raises(ShapeError, match=r"expects u of shape \(b, 5, 7\); got \(2, 7, 5\)"):
        network(torch.zeros(2, 7, 5), 0.5)
    with pytest.raises(DtypeError, match=r"expects real floating fields; got torch\.int64"):
        network(torch.zeros(2, 5, 7, dtype=torch.int64), 0.5)
    for wrong in (data[:3], data.transpose(1, 2)):
        with pytest.raises(
            ShapeError, match=r"expects more than 3 fields of shape \(5, 7\); got .*Simulate more fields"
        ):
            network.fit(wrong)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 35}, {"width": 0}, {"layers": 0}, {"anchors": (2,)}])
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    values = {"shape": (5, 7), "size": 3, "width": 8, "layers": 2, **wrong}
    with pytest.raises(ShapeError, match=re.escape("expects a size from 1 to 34, positive width and layers")):
        FrameSettings(**values)
    with pytest.raises(ShapeError, match=r"embedding\) expects a positive even number; got 3"):
        FrameSettings(shape=(5, 7), size=3, width=8, layers=2, embedding=3)


def test_training_lowers_the_loss_and_resumes_to_the_same_bits(data: torch.Tensor, tmp_path) -> None:
    settings = TrainingSettings(
        steps=60, batch=16, learning_rate=1e-2, warmup=5, save_every=20, pool=64, imposed=(-1,), rows=20,
        pairing="rows", meeting=0.5, own=0.5, least_gap=0.05, tau_power=1.5,
    )  # fmt: skip

    def fresh() -> FrameVelocity:
        network = FrameVelocity(SETTINGS, seed=1)
        network.fit(data)
        return network

    class Stopped(Exception):
        pass

    def stop(done: int, loss: float) -> None:
        if done == 47:
            raise Stopped

    whole = train(fresh(), data, settings, tmp_path / "whole")
    with pytest.raises(Stopped):
        train(fresh(), data, settings, tmp_path / "parts", progress=stop)
    resumed = train(fresh(), data, settings, tmp_path / "parts")
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name]), name
    curve = [point["loss"] for point in whole.record["loss_curve"]]
    assert sum(curve[-10:]) < 0.8 * sum(curve[:10])


FREE = FrameSettings(shape=(5, 7), size=3, width=8, layers=2, anchors=(), embedding=8, filtered=True)
CUBE = FrameSettings(shape=(4, 5, 6), size=9, width=8, layers=1, anchors=(), embedding=8, filtered=True, separable=True)


def flows() -> torch.Tensor:
    """Draw fields 4 × 5 × 6 of which some waves are strong."""
    random = torch.Generator().manual_seed(8)
    series = torch.randn(60, 20, 6, generator=random) * torch.linspace(3, 0.1, 20)[:, None]
    return (real_waves((4, 5)).float().T @ series).view(60, 4, 5, 6)


@pytest.mark.parametrize("settings", [FREE, CUBE], ids=["dense", "separable"])
def test_coefficients_flow_as_their_fields_do(settings: FrameSettings, data: torch.Tensor) -> None:
    known = flows() if settings.separable else data
    network = FrameVelocity(settings, seed=1)
    network.fit(known)
    network = moved(network)
    tau, noise = 0.3, torch.randn(4, *settings.shape, generator=torch.Generator().manual_seed(6))
    u = tau * known[:4] + (1 - tau) * noise
    # Noise is about zero and data about the mean, so the velocity of coefficients is that of fields without the mean.
    white = network.coefficients(noise + network.mean.view(settings.shape))
    c = tau * network.coefficients(known[:4]) + (1 - tau) * white
    found = Latent(network)(c, tau)
    torch.testing.assert_close(found, network.coefficients(network(u, tau)), rtol=1e-4, atol=1e-4)


def test_samples_are_the_same_whether_fields_or_coefficients_are_integrated(data: torch.Tensor) -> None:
    network = FrameVelocity(FREE, seed=1)
    network.fit(data)
    network = moved(network)
    noise = torch.randn(4, 5, 7, generator=torch.Generator().manual_seed(6))
    found = integrate(network, noise, steps=7)
    torch.testing.assert_close(found, integrate(lambda u, tau: network(u, tau), noise, steps=7), rtol=1e-4, atol=1e-3)


def test_members_of_a_separable_frame_are_orthonormal_and_the_widest_of_their_kind() -> None:
    data = flows()
    network = FrameVelocity(CUBE, seed=1)
    network.fit(data)
    eye = torch.eye(9)
    members = network._field(eye)
    torch.testing.assert_close(members @ members.T, eye, rtol=0.0, atol=ROUNDING)
    torch.testing.assert_close(network._read(members), eye, rtol=0.0, atol=ROUNDING)
    assert bool((network.scale.diff() < ROUNDING * float(network.scale[0])).all())
    kept = float(network.coefficients(data).square().sum())
    whole = float((data - data.mean(0)).square().sum())
    assert kept > 3 * 9 / 120 * whole  # thrice what 9 of 120 members hold if taken at random


def test_networks_that_read_points_are_not_trained_on_coefficients(network: FrameVelocity) -> None:
    with pytest.raises(ShapeError, match=r"expects a network without anchors; got one with anchors \(-1, 0\), whose"):
        Latent(network)


def test_filtered_coefficients_that_are_noise_are_not_seen(data: torch.Tensor) -> None:
    network = FrameVelocity(FREE, seed=1)
    network.fit(data)
    network = moved(network)
    network.scale[2] = 1e-6
    noisy = torch.randn(2, 3, generator=torch.Generator().manual_seed(6))
    other = noisy + torch.tensor([0.0, 0.0, 3.0])
    tau = torch.full((2, 1), 0.2)
    torch.testing.assert_close(
        network.estimate(noisy, noisy[:, :0], tau), network.estimate(other, noisy[:, :0], tau), rtol=0.0, atol=1e-4
    )


def test_checkpoints_come_back_to_the_bit(network: FrameVelocity, tmp_path) -> None:
    grid = Grid((Axis("x", 0.0, 1.0, 5), Axis("t", 0.0, 2.0, 7)))
    save_checkpoint(tmp_path / "model", Checkpoint(moved(network), grid, "heat", "tiny", {"steps": 1}))
    found = load_checkpoint(tmp_path / "model")
    assert isinstance(found.network, FrameVelocity)
    assert found.network.settings == SETTINGS
    u = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(6))
    assert torch.equal(found.network(u, 0.3), network(u, 0.3))


def test_a_network_tells_how_its_fields_vary_once_its_error_is_known(
    network: FrameVelocity, data: torch.Tensor
) -> None:
    assert network.spread is None
    network.error = 1e-3
    found = network.spread
    assert found is not None
    assert (found.directions.shape, found.rest) == ((3, 5, 7), 1e-3)
    flat = data.flatten(1).double()
    along = (flat - flat.mean(0)) @ found.directions.flatten(1).T
    torch.testing.assert_close(found.variances, along.var(0), rtol=1e-4, atol=0.0)


def test_the_error_is_saved_with_the_network(network: FrameVelocity, tmp_path) -> None:
    grid = Grid((Axis("x", 0.0, 1.0, 5), Axis("t", 0.0, 1.0, 7)))
    for error in (None, 0.25):
        network.error = error
        save_checkpoint(tmp_path / "model", Checkpoint(network, grid, "heat", "frame", {}))
        assert load_checkpoint(tmp_path / "model").network.error == error
