import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from snapfm.errors import DtypeError, MissingDependency, ShapeError
from snapfm_bench.flow import FNOVelocity, NetworkSettings
from snapfm_bench.flow.path import embed

TOLERANCE = 64 * torch.finfo(torch.float32).eps


def draw(settings: NetworkSettings, count: int = 3) -> torch.Tensor:
    return torch.randn(count, *settings.shape, generator=torch.Generator().manual_seed(0))


def test_fields_in_fields_out(settings: NetworkSettings) -> None:
    network = FNOVelocity(settings)
    for count in (1, 3):
        u = draw(settings, count)
        answer = network(u, 0.3)
        assert answer.shape == u.shape
        assert bool(answer.isfinite().all())


def test_a_number_and_a_tensor_of_flow_times_agree_to_the_bit(settings: NetworkSettings) -> None:
    network = FNOVelocity(settings)
    u = draw(settings)
    one = network(u, 0.3)
    assert torch.equal(one, network(u, torch.full((3,), 0.3)))
    assert torch.equal(one, network(u, torch.tensor(0.3)))
    assert not torch.equal(one, network(u, 0.4))


def test_each_sample_has_its_own_flow_time(settings: NetworkSettings) -> None:
    network = FNOVelocity(settings)
    u = draw(settings)
    times = [0.1, 0.5, 0.9]
    together = network(u, torch.tensor(times))
    for i, tau in enumerate(times):
        torch.testing.assert_close(together[i], network(u[i : i + 1], tau)[0], rtol=TOLERANCE, atol=TOLERANCE)


def test_lifting_equals_that_of_all_channels_spread_over_the_grid(settings: NetworkSettings) -> None:
    network = FNOVelocity(settings)
    u, times = draw(settings), torch.tensor([0.1, 0.5, 0.9])
    axes = torch.meshgrid(*[torch.linspace(0, 1, n) for n in settings.cells], indexing="ij")
    patches = network._patch(u).unbind(1)
    spread = [*patches, *(axis.expand_as(patches[0]) for axis in axes)]
    spread += [
        channel.view(-1, *[1] * len(axes)).expand_as(patches[0])
        for channel in embed(times, network.settings.embedding).T
    ]
    torch.testing.assert_close(
        network._lift(u, times), network.fno.lifting(torch.stack(spread, 1)), rtol=TOLERANCE, atol=TOLERANCE
    )


def test_patches_hold_the_points_of_their_cell_and_go_back(settings: NetworkSettings) -> None:
    network, u = FNOVelocity(settings), draw(settings)
    patches, step = network._patch(u), settings.patch
    assert patches.shape == (3, step ** len(settings.shape), *settings.cells)
    assert torch.equal(patches[:, 0], u[(slice(None), *[slice(None, None, step)] * len(settings.shape))])
    assert torch.equal(network._unpatch(patches), u)


def test_answers_keep_the_dtype_of_the_fields(network: FNOVelocity, fields: torch.Tensor) -> None:
    double = network(fields.double(), 0.3)
    assert double.dtype == torch.float64
    assert torch.equal(double, network(fields, 0.3).double())


def test_calling_twice_gives_the_same_bits(network: FNOVelocity, fields: torch.Tensor) -> None:
    assert torch.equal(network(fields, 0.7), network(fields, 0.7))


def test_a_bad_sample_leaves_the_others_bit_identical(network: FNOVelocity, fields: torch.Tensor) -> None:
    good = network(fields, 0.3)
    bad = fields.clone()
    bad[3, 2, 1] = float("nan")
    answer = network(bad, 0.3)
    others = [i for i in range(len(fields)) if i != 3]
    assert torch.equal(answer[others], good[others])
    assert bool(answer[3].isnan().any())


def test_a_data_predicting_network_ends_on_the_field_it_predicts(network: FNOVelocity, fields: torch.Tensor) -> None:
    plain = FNOVelocity(replace(network.settings, predicts="velocity"))
    plain.load_state_dict(network.state_dict())
    tau = 0.75
    landed = fields + (1 - tau) * network(fields, tau)
    torch.testing.assert_close(landed, plain(fields, tau), rtol=TOLERANCE, atol=TOLERANCE)
    assert bool(network(fields, 1.0).isfinite().all())


def test_weights_depend_on_the_seed_alone(network: FNOVelocity) -> None:
    state = torch.get_rng_state()
    again, other = FNOVelocity(network.settings, seed=3), FNOVelocity(network.settings, seed=4)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters()))
    assert not torch.equal(network.fno.lifting.fcs[0].weight, other.fno.lifting.fcs[0].weight)


def test_state_dict_holds_tensors_only_and_loads_back(network: FNOVelocity, fields: torch.Tensor) -> None:
    state = network.state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())
    other = FNOVelocity(network.settings, seed=9)
    other.load_state_dict(state)
    assert torch.equal(other(fields, 0.2), network(fields, 0.2))


def test_wrong_fields_are_refused(network: FNOVelocity) -> None:
    with pytest.raises(ShapeError, match=r"expects u of shape \(b, 6, 8\); got \(2, 48\)\. Reshape"):
        network(torch.zeros(2, 48), 0.5)
    with pytest.raises(ShapeError, match=r"expects tau as a number or of shape \(2,\); got \(3,\)\. Give one"):
        network(torch.zeros(2, 6, 8), torch.zeros(3))
    with pytest.raises(DtypeError, match=r"expects real floating fields; got torch\.int64\. Convert"):
        network(torch.zeros(2, 6, 8, dtype=torch.int64), 0.5)


def test_impossible_settings_are_refused(network: FNOVelocity) -> None:
    with pytest.raises(ShapeError, match=r"one count per axis of shape \(6, 8\).*got \(7, 4\)\. Keep fewer"):
        replace(network.settings, modes=(7, 4))
    with pytest.raises(ShapeError, match=r"an even embedding; got \(5, 2, 6, 7, 3\)\. Start from a preset"):
        replace(network.settings, embedding=3)


def test_a_missing_neuralop_is_named(network: FNOVelocity, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "neuralop.models", None)
    with pytest.raises(MissingDependency, match=r"neuralop is needed for the FNO.*pip install snapfm-bench"):
        FNOVelocity(network.settings)


def test_nothing_is_sent_and_neuralop_waits_until_it_is_needed() -> None:
    script = """
import socket, sys, warnings
import snapfm_bench.flow as flow
assert "neuralop" not in sys.modules and "wandb" not in sys.modules
def refuse(*args, **kwargs):
    raise AssertionError("a connection was tried")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = refuse
filters = list(warnings.filters)
import torch
network = flow.FNOVelocity(flow.NetworkSettings((6, 8), (4, 4), 5, 2, 6, 7))
assert warnings.filters == filters, "importing neuralop changed the warning filters"
network(torch.zeros(1, 6, 8), 0.5).sum().backward()
print("silent")
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert run.stdout == "silent\n", run.stderr
