import pytest
import torch

from snapfm.sampling.conditional.spread import Spread, own_spread
from snapfm_bench.flow import shipped, shipped_names


@pytest.mark.parametrize("name", [name for name in shipped_names() if name.endswith("-plain")])
def test_ordinary_models_know_their_spread(name: str) -> None:
    network = shipped(name)
    found = own_spread(network)
    assert found is not None
    assert tuple(found.directions.shape[1:]) == network.settings.shape
    flat = found.directions.flatten(1)
    off = flat @ flat.T - torch.eye(len(flat), dtype=flat.dtype)
    assert float(off.abs().max()) < 1e-3  # stored in float16
    assert 0.0 < found.rest < float(found.variances[0])


def test_a_spread_is_passed_on_and_other_velocities_have_none() -> None:
    class Informed:
        spread = Spread(torch.zeros(0, 2), torch.zeros(0), 1.0)

    assert own_spread(Informed()) is Informed.spread
    assert own_spread(lambda u, tau: -u) is None
