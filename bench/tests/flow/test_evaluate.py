"""The evaluator against the network it evaluates, and the cases it leaves to the network."""

import copy
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import snapfm_bench.flow.evaluate
from snapfm.errors import DtypeError, ShapeError
from snapfm_bench.flow import (
    FNOVelocity,
    FrameVelocity,
    NetworkEvaluator,
    NetworkSettings,
    evaluator,
    preset,
    shipped,
    shipped_names,
)

PRECISION = {torch.float32: 1e-5, torch.float64: 1e-10}  # promised, relative to the largest number of the answer

plain = FNOVelocity.forward


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Count the samples of calls to the network itself, which the quick way must not make."""
    calls: list[int] = []

    def forward(self: FNOVelocity, u: Tensor, tau: float | Tensor) -> Tensor:
        calls.append(len(u))
        return plain(self, u, tau)

    monkeypatch.setattr(FNOVelocity, "forward", forward)
    return calls


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def draw(network: FNOVelocity, count: int = 3, seed: int = 0) -> Tensor:
    shape = network.settings.shape
    return torch.randn(count, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rough(settings: NetworkSettings) -> FNOVelocity:
    """Build a network with biases that count and answers of order one."""
    network = FNOVelocity(settings, seed=1).eval()
    random = torch.Generator().manual_seed(2)
    for name, weight in network.named_parameters():
        weight += 0.3 * torch.randn(weight.shape, dtype=weight.dtype, generator=random)
        if "fcs" in name:
            weight *= 1.5
    return network


def assert_equal(found: Tensor, expected: Tensor, dtype: torch.dtype = torch.float32) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    worst = float((found - expected).abs().max() / expected.abs().max())
    assert worst <= PRECISION[dtype]


@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("channel_mlp", [True, False])
def test_it_gives_what_the_network_gives(
    settings: NetworkSettings, channel_mlp: bool, dtype: torch.dtype, asked: list[int]
) -> None:
    network = rough(replace(settings, channel_mlp=channel_mlp)).to(dtype)
    quick = evaluator(network)
    for count in (1, 3, 7):
        u = draw(network, count)
        for tau in (0.3, torch.tensor(0.3), torch.linspace(0, 1, count, dtype=torch.float64)):
            for fields in (u, u.float()):
                assert_equal(quick(fields, tau), plain(network, fields, tau), dtype)
    assert asked == []


@pytest.mark.parametrize("name", ["small", "paper"])
@pytest.mark.parametrize("shape", [(21, 18), (6, 5, 9)])
def test_presets_on_smaller_grids(name: str, shape: tuple[int, ...], asked: list[int]) -> None:
    network = FNOVelocity(preset(name, shape)).eval()
    u = draw(network, 5).float()
    assert_equal(evaluator(network)(u, 0.4), plain(network, u, 0.4))
    assert asked == []


def test_a_grid_of_one_axis_and_a_network_of_one_layer(asked: list[int]) -> None:
    network = rough(NetworkSettings((9,), (4,), width=5, layers=1, lifting=6, projection=7, embedding=8))
    u = draw(network)
    assert_equal(evaluator(network)(u, 0.4), plain(network, u, 0.4))
    assert asked == []


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_models(name: str, asked: list[int]) -> None:
    network = shipped(name)
    if isinstance(network, FrameVelocity):  # quick as it is
        assert evaluator(network) is network
        return
    quick, u = evaluator(network), draw(network, 2).float()
    for tau in (0.0, 0.5, 0.99):
        # A velocity that leads to predicted data divides by 1 − τ, and so multiplies what rounding leaves.
        assert float(((quick(u, tau) - plain(network, u, tau)) * (1 - tau)).abs().max()) <= 1e-5
    assert asked == []


def test_batches_are_cut_into_pieces_and_tiles_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    network = rough(NetworkSettings((6, 8), (4, 4), width=5, layers=2, lifting=6, projection=7, embedding=8))
    u = draw(network, 23)
    expected = plain(network, u, 0.4)
    sample = 6 * 8 * 5 * 4
    for batch, tile in ((100, 4), (7, 3), (5, 5), (1, 1)):
        monkeypatch.setattr(snapfm_bench.flow.evaluate, "_BATCH_BYTES", batch * sample)
        monkeypatch.setattr(snapfm_bench.flow.evaluate, "_TILE_BYTES", tile * sample)
        quick = evaluator(network)
        assert_equal(quick(u, 0.4), expected)
        assert_equal(quick(u, 0.4), expected)


def test_calling_twice_gives_the_same_bits_in_memory_of_its_own(network: FNOVelocity) -> None:
    quick, u = evaluator(network.eval()), draw(network)
    first = quick(u, 0.7)
    kept = first.clone()
    quick(u + 1, 0.2)
    assert torch.equal(first, kept)
    assert torch.equal(quick(u, 0.7), kept)


def test_a_bad_sample_leaves_the_others_bit_identical(settings: NetworkSettings) -> None:
    network = rough(settings)
    quick, u = evaluator(network), draw(network, 6)
    good = quick(u, 0.3)
    bad = u.clone()
    bad[3].view(-1)[4] = float("nan")
    answer = quick(bad, 0.3)
    others = [0, 1, 2, 4, 5]
    assert torch.equal(answer[others], good[others])
    assert bool(answer[3].isnan().any())
    assert torch.equal(quick(u, 0.3), good)  # nothing of it stays in the memory


def set_everything(network: FNOVelocity) -> None:
    network.load_state_dict(FNOVelocity(network.settings, seed=8).state_dict())


def assign_everything(network: FNOVelocity) -> None:
    network.load_state_dict(FNOVelocity(network.settings, seed=8).state_dict(), assign=True)


def write_in_place(network: FNOVelocity) -> None:
    network.fno.projection.fcs[1].weight[0, 0, 0] += 1


def write_through_data(network: FNOVelocity) -> None:
    network.fno.fno_blocks.convs[1].weight.tensor.data.mul_(1.5)


def write_through_numpy(network: FNOVelocity) -> None:
    network.fno.lifting.fcs[0].bias.numpy()[:] += 1


def point_elsewhere(network: FNOVelocity) -> None:
    network.fno.projection.fcs[0].bias.data = torch.ones(7)


def put_another_weight(network: FNOVelocity) -> None:
    network.fno.projection.fcs[0].bias = nn.Parameter(torch.ones(7))


def put_another_layer(network: FNOVelocity) -> None:
    network.fno.fno_blocks.convs[0] = FNOVelocity(network.settings, seed=8).fno.fno_blocks.convs[0]


def convert(network: FNOVelocity) -> None:
    network.double()


def move_a_cell(network: FNOVelocity) -> None:
    network.coordinates[0, 0] = 0.5


CHANGES = [
    set_everything,
    assign_everything,
    write_in_place,
    write_through_data,
    write_through_numpy,
    point_elsewhere,
    put_another_weight,
    put_another_layer,
    convert,
    move_a_cell,
]


@pytest.mark.parametrize("change", CHANGES)
def test_answers_follow_the_weights(
    network: FNOVelocity, change: Callable[[FNOVelocity], None], asked: list[int]
) -> None:
    quick, u = evaluator(network.eval()), draw(network)
    before = quick(u, 0.3)
    change(network)
    after = quick(u, 0.3)
    assert not torch.equal(after, before)
    assert_equal(after, plain(network, u, 0.3))
    assert asked == []


def test_other_velocities_come_back_as_they_are() -> None:
    module, function = nn.Identity(), torch.add
    assert evaluator(module) is module
    assert evaluator(function) is function


class Loud(FNOVelocity):
    def forward(self, u: Tensor, tau: float | Tensor) -> Tensor:
        return 10 * super().forward(u, tau)


def train(network: FNOVelocity) -> None:
    network.train()


def listen(network: FNOVelocity) -> None:
    network.fno.fno_blocks.convs[0].register_forward_hook(lambda module, given, answer: 2 * answer)


def activate_otherwise(network: FNOVelocity) -> None:
    network.fno.lifting.non_linearity = F.relu


def wrap_a_layer(network: FNOVelocity) -> None:
    network.fno.fno_blocks.fno_skips[0] = nn.Sequential(network.fno.fno_blocks.fno_skips[0], nn.Tanh())


@pytest.mark.parametrize("change", [train, listen, activate_otherwise, wrap_a_layer])
def test_networks_it_does_not_know_answer_themselves(
    network: FNOVelocity, change: Callable[[FNOVelocity], None], asked: list[int]
) -> None:
    u = draw(network)
    network.eval()
    change(network)
    assert torch.equal(evaluator(network)(u, 0.3), plain(network, u, 0.3))
    assert asked == [3]


@pytest.mark.parametrize("change", [train, listen, wrap_a_layer])
def test_so_do_networks_changed_later(
    network: FNOVelocity, change: Callable[[FNOVelocity], None], asked: list[int]
) -> None:
    quick, u = evaluator(network.eval()), draw(network)
    quick(u, 0.3)
    change(network)
    assert torch.equal(quick(u, 0.3), plain(network, u, 0.3))
    assert asked == [3]


def test_a_network_of_another_kind_answers_itself(network: FNOVelocity) -> None:
    loud = Loud(network.settings).eval()
    u = draw(loud)
    assert torch.equal(evaluator(loud)(u, 0.3), loud(u, 0.3))


def test_gradients_are_those_of_the_network(network: FNOVelocity, asked: list[int]) -> None:
    quick, u = evaluator(network.eval()), draw(network)
    with torch.enable_grad():
        x = u.clone().requires_grad_()
        tau = torch.tensor(0.3, requires_grad=True)
        weight = network.fno.projection.fcs[0].weight
        found = torch.autograd.grad(quick(x, tau).square().sum(), (x, tau, weight))
        expected = torch.autograd.grad(plain(network, x, tau).square().sum(), (x, tau, weight))
        assert all(torch.equal(a, b) for a, b in zip(found, expected))
        assert asked == [3]
        quick(u, 0.3)  # the weights still ask for gradients
        assert asked == [3, 3]
        network.requires_grad_(False)
        quick(u, 0.3)
        assert asked == [3, 3]
        quick(x, 0.3)
        assert asked == [3, 3, 3]


def test_functional_transforms_see_the_network(network: FNOVelocity, asked: list[int]) -> None:
    quick, u = evaluator(network.eval()), draw(network).float()
    network.requires_grad_(False)
    assert_equal(torch.func.vmap(lambda x: quick(x[None], 0.3)[0])(u), plain(network, u, 0.3))
    _, found = torch.func.jvp(lambda x: quick(x, 0.3), (u,), (u,))
    _, expected = torch.func.jvp(lambda x: plain(network, x, 0.3), (u,), (u,))
    assert torch.equal(found, expected)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(u, u)
        assert torch.equal(torch.autograd.forward_ad.unpack_dual(quick(dual, 0.3)).tangent, expected)
    assert len(asked) == 3


def test_answers_serve_in_a_loss(network: FNOVelocity, asked: list[int]) -> None:
    quick, u = evaluator(network.eval()), draw(network)
    with torch.inference_mode():
        inside = quick(u, 0.3)
    outside = quick(u, 0.3)  # memory made inside is written outside
    assert torch.equal(inside, outside)
    with torch.enable_grad():
        scale = torch.ones((), requires_grad=True)
        (outside * scale).square().sum().backward()
    assert scale.grad is not None
    assert asked == []


def test_a_network_made_in_inference_mode_answers_itself(network: FNOVelocity, asked: list[int]) -> None:
    with torch.inference_mode():
        inner = FNOVelocity(network.settings).eval()
        u = draw(inner)
        assert torch.equal(evaluator(inner)(u, 0.3), plain(inner, u, 0.3))
    assert asked == [3]


def test_threads_work_in_memory_of_their_own(network: FNOVelocity) -> None:
    quick = evaluator(network.eval())
    fields = [draw(network, count, seed=count) for count in (1, 3, 3, 3, 5, 5, 7, 7)] * 5
    expected = [quick(u, 0.3) for u in fields]

    def answer(u: Tensor) -> Tensor:
        with torch.no_grad():
            return quick(u, 0.3)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(answer, fields))
    assert all(torch.equal(a, b) for a, b in zip(found, expected))


def test_copies_evaluate_copies_of_the_network(network: FNOVelocity) -> None:
    quick, u = evaluator(network.eval()), draw(network)
    expected = quick(u, 0.3)
    for again in (copy.deepcopy(quick), pickle.loads(pickle.dumps(quick))):
        assert isinstance(again, NetworkEvaluator)
        assert again.network is not network
        assert torch.equal(again(u, 0.3), expected)


def test_shape_and_mistakes(network: FNOVelocity) -> None:
    quick = evaluator(network.eval())
    assert isinstance(quick, NetworkEvaluator)
    assert quick.shape == (6, 8)
    with pytest.raises(ShapeError, match=r"expects u of shape \(b, 6, 8\); got \(2, 48\)\. Reshape"):
        quick(torch.zeros(2, 48), 0.5)
    with pytest.raises(ShapeError, match=r"expects tau as a number or of shape \(2,\); got \(3,\)\. Give one"):
        quick(torch.zeros(2, 6, 8), torch.zeros(3))
    with pytest.raises(DtypeError, match=r"expects real floating fields; got torch\.int64\. Convert"):
        quick(torch.zeros(2, 6, 8, dtype=torch.int64), 0.5)
