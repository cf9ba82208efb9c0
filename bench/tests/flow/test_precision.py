from collections.abc import Callable

import pytest
import torch

from snapfm_bench.flow import FNOVelocity, NetworkSettings


@torch.no_grad()
@pytest.mark.parametrize(
    "convert", [FNOVelocity.double, lambda network: network.to(torch.float64)], ids=["double", "to"]
)
def test_a_network_converts_to_double_precision_and_back(
    settings: NetworkSettings, convert: Callable[[FNOVelocity], FNOVelocity]
) -> None:
    network = FNOVelocity(settings, seed=1)
    u = torch.randn(3, *settings.shape, generator=torch.Generator().manual_seed(0))
    single = network(u, 0.3)
    convert(network)
    assert {weight.dtype for weight in network.parameters()} == {torch.float64, torch.complex128}
    double = network(u.double(), 0.3)
    assert double.dtype == torch.float64
    size = float(double.abs().max())
    assert 0 < float((double - single).abs().max()) <= 1e-5 * size
    network.float()
    assert torch.equal(network(u, 0.3), single)
