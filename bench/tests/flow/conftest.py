"""Networks small enough that every test is quick, on asymmetric grids."""

import pytest
import torch

from snapfm.grid import Axis, Grid
from snapfm_bench.flow import Checkpoint, FNOVelocity, NetworkSettings

SMALLEST = {"width": 5, "layers": 2, "lifting": 6, "projection": 7, "embedding": 8}


@pytest.fixture(
    params=[
        ((6, 8), (4, 4), "velocity", 1),
        ((7, 9), (3, 5), "data", 1),
        ((4, 6, 5), (2, 3, 4), "data", 1),
        ((7, 8), (3, 4), "data", 2),
        ((5, 6, 7), (2, 3, 3), "velocity", 2),
    ],
    ids=["even", "odd", "2-D + t", "patched", "patched 2-D + t"],
)
def settings(request: pytest.FixtureRequest) -> NetworkSettings:
    shape, modes, predicts, patch = request.param
    return NetworkSettings(shape=shape, modes=modes, predicts=predicts, patch=patch, **SMALLEST)


@pytest.fixture
def network() -> FNOVelocity:
    return FNOVelocity(NetworkSettings(shape=(6, 8), modes=(4, 4), predicts="data", **SMALLEST), seed=3)


@pytest.fixture
def checkpoint(network: FNOVelocity) -> Checkpoint:
    grid = Grid((Axis("x", 0.0, 1.5, 6, periodic=True), Axis("t", 0.0, 2.0, 8)))
    return Checkpoint(network, grid, equation="heat", preset="tiny", record={"steps": 7, "loss_curve": []})


@pytest.fixture
def fields() -> torch.Tensor:
    return torch.randn(12, 6, 8, generator=torch.Generator().manual_seed(1))
