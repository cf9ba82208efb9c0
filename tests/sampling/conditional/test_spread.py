"""Spread: covariances from fields, models and runs, and the covariance of data given a state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.sampling.toys import EPS, MEAN, SHAPE, Gaussian, seeded
from torch import Tensor

from snapfm.errors import ParamsError, ShapeError
from snapfm.sampling import COSINE, STRAIGHT, Flow, Path, Spread, sample

FIELDS = torch.randn(40, *SHAPE, generator=seeded(0), dtype=torch.float64) * torch.linspace(0.2, 3.0, 5)


def dense(diagonal: float, directions: Tensor, variances: Tensor) -> Tensor:
    flat = directions.flatten(1)
    return diagonal * torch.eye(flat.shape[1], dtype=torch.float64) + flat.T @ (variances[:, None] * flat)


def test_all_directions_give_the_covariance_of_the_fields():
    spread = Spread.of_fields(FIELDS)
    assert spread.directions.shape == (15, *SHAPE)
    torch.testing.assert_close(dense(0.0, spread.directions, spread.variances), torch.cov(FIELDS.flatten(1).T))
    assert spread.rest <= 100 * EPS * float(spread.variances.max())


def test_what_is_left_keeps_the_total_variance():
    spread = Spread.of_fields(FIELDS, rank=4)
    flat = spread.directions.flatten(1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(4, dtype=torch.float64))
    total = float(spread.variances.sum()) + 11 * spread.rest
    assert total == pytest.approx(float(FIELDS.flatten(1).var(0).sum()))
    torch.testing.assert_close(spread.variances, Spread.of_fields(FIELDS).variances[:4])


def test_large_fields_get_the_same_directions_from_a_randomized_range(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "snapfm.sampling.conditional.spread._EXACT", 100
    )  # so that fields need not be large to count as such
    roots = 0.5 ** torch.arange(12, dtype=torch.float64)
    basis = torch.linalg.qr(torch.randn(110, 12, generator=seeded(1), dtype=torch.float64))[0]
    fields = torch.randn(120, 12, generator=seeded(2), dtype=torch.float64) * roots @ basis.T
    spread = Spread.of_fields(fields, rank=5)
    exact = torch.linalg.svdvals(fields - fields.mean(0)).square()[:5] / 119
    torch.testing.assert_close(spread.variances, exact)
    assert torch.equal(spread.directions, Spread.of_fields(fields, rank=5).directions)


@pytest.mark.parametrize("path", [STRAIGHT, COSINE], ids=["straight", "cosine"])
@pytest.mark.parametrize("tau", [0.0, 0.4, 0.9])
def test_the_covariance_given_a_state_is_that_of_gaussian_fields(path: Path, tau: float):
    """(Σ⁻¹ + α²/σ²)⁻¹: the covariance of x given αx + σ·noise."""
    spread = Spread.of_fields(FIELDS, rank=6)
    covariance = dense(spread.rest, spread.directions, spread.variances - spread.rest)
    precise = (
        torch.linalg.inv(covariance) + torch.eye(15, dtype=torch.float64) * path.data(tau) ** 2 / path.noise(tau) ** 2
    )
    metric = spread.at(path, tau)
    assert metric.directions is not None
    assert metric.variances is not None
    torch.testing.assert_close(dense(metric.level, metric.directions, metric.variances), torch.linalg.inv(precise))
    assert metric.directions is spread.directions  # so that what is computed from them is kept


@pytest.mark.parametrize("scale", [torch.tensor(3.0), torch.linspace(0.5, 2.0, 5)[None]], ids=["one", "each"])
def test_in_units_of_other_noise_the_covariance_is_that_of_fields_in_these_units(scale: Tensor):
    moved, again = Spread.of_fields(FIELDS).in_units(scale.double()), Spread.of_fields(FIELDS, scale=scale)
    for one, two in ((moved, again), (moved.at(STRAIGHT, 0.4), again.at(STRAIGHT, 0.4))):
        assert one.directions is not None
        assert two.directions is not None
        torch.testing.assert_close(
            dense(0.0, one.directions, one.variances), dense(0.0, two.directions, two.variances), rtol=1e-6, atol=1e-8
        )
    again = Spread.of_fields(FIELDS)
    assert again.in_units(torch.tensor(1.0)) is again


def test_a_scale_that_is_none_is_refused():
    with pytest.raises(
        ShapeError, match=r"Spread.of_fields\(scale\) expects a number, or the axes of a field \(3, 5\)"
    ):
        Spread.of_fields(FIELDS, scale=torch.ones(4))
    with pytest.raises(ParamsError, match="expects positive, finite numbers"):
        Spread.of_fields(FIELDS, scale=0.0)


def test_fields_without_any_variance_have_a_metric():
    metric = Spread.of_fields(torch.ones(3, *SHAPE)).at(STRAIGHT, 0.5)
    assert metric.level > 0.0


def test_a_model_is_as_spread_as_its_samples():
    velocity = Gaussian(MEAN, 0.5)
    spread = Spread.of_model(velocity, SHAPE, count=400, steps=10, generator=seeded(3), rank=3, rest=0.0)
    run = sample(velocity, None, count=400, steps=10, generator=seeded(3), shape=SHAPE, sampler=Flow())
    assert torch.equal(spread.variances, Spread.of_samples(run, rank=3).variances)
    # Euler steps of this flow end at the mean plus a fixed multiple of the noise.
    factor = float((run.u - MEAN).std())
    assert spread.rest == pytest.approx(factor**2, rel=0.15)


@pytest.mark.parametrize(
    ("fields", "rank", "words"),
    [
        ([1.0], 3, "Spread.of_fields expects at least two fields, (count, *shape); got list."),
        (torch.ones(1, 4), 3, "got (1, 4). Stack fields along a first axis."),
        (torch.ones(4), 3, "got (4,)."),
        (torch.ones(4, 4), 0, "Spread.of_fields(rank) expects a whole number >= 1; got 0. The default is 64."),
    ],
)
def test_what_is_no_stack_of_fields_is_refused(fields: Any, rank: int, words: str):
    with pytest.raises(ShapeError) as refused:
        Spread.of_fields(fields, rank)
    assert words in str(refused.value)
