"""What a model's predictions are off by becomes the least variance of its spread; exact predictions add nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from snapfm.adapters import Normalized
from snapfm.errors import ParamsError
from snapfm.sampling import COSINE, Spread
from snapfm_bench.flow import shipped

SIZE, RANK = 12, 3


def family(count: int) -> torch.Tensor:
    """Gaussian fields along three directions of twelve."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.linalg.qr(torch.randn(SIZE, RANK, generator=generator, dtype=torch.float64))[0]
    drawn = torch.randn(count, RANK, generator=generator, dtype=torch.float64)
    return drawn * torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64) @ directions.T


class Exact:
    """The exact velocity of the family on a path, its predictions off by a constant."""

    def __init__(self, off: float, path=None) -> None:
        fields = family(200_000)
        self.covariance, self.off = fields.T @ fields / len(fields), off
        if path is not None:
            self.path = path

    def __call__(self, u: torch.Tensor, tau: float) -> torch.Tensor:
        from snapfm.sampling import STRAIGHT

        path = getattr(self, "path", STRAIGHT)
        data, noise = path.data(tau), path.noise(tau)
        whole = data**2 * self.covariance + noise**2 * torch.eye(SIZE, dtype=torch.float64)
        x = data * torch.linalg.solve(whole, u.double().T).T @ self.covariance + self.off
        return path.velocity((u.double() - data * x) / noise, x, tau).to(u.dtype)


def test_an_exact_model_adds_nothing_to_speak_of():
    for path in (None, COSINE):
        plain, asked = Spread.of_fields(family(2000)), Spread.of_fields(family(2000), velocity=Exact(0.0, path))
        assert plain.rest < 1e-20
        assert asked.rest < 0.2 * 0.25**2 * RANK / SIZE  # chance of 64 fields: a part of what noise leaves open
        assert torch.equal(plain.variances, asked.variances)


def test_an_error_becomes_the_least_variance():
    for off in (0.1, 0.3):
        found = Spread.of_fields(family(2000), velocity=Exact(off)).rest
        assert abs(found - off**2) < 0.2 * off**2


def test_the_error_is_in_units_of_the_noise():
    model = Normalized(Exact(0.3), mean=1.0, std=5.0)
    found = Spread.of_fields(1.0 + 5.0 * family(2000), velocity=model)
    assert torch.as_tensor(found.scale).unique().tolist() == [5.0]
    assert abs(found.rest - 0.3**2) < 0.2 * 0.3**2


def test_samples_of_a_model_are_judged_by_its_own_predictions():
    model = Exact(0.0)
    plain = Spread.of_model(model, (SIZE,), count=200, rest=0.0)
    assert plain.rest < 0.2 * 0.25**2 * RANK / SIZE
    assert plain.variances[0] > 1.0


def test_the_spread_of_a_shipped_model_contains_its_error():
    network = shipped("heat-plain")
    asked = {"shape": network.settings.shape, "count": 24, "steps": 5}
    assert Spread.of_model(network, **asked).rest == network.error
    assert Spread.of_model(network, rest=0.0, **asked).rest < 0.1 * network.error  # what its own samples show of it


def test_an_error_that_is_known_is_the_least_variance_of_a_models_spread():
    model, asked = Exact(0.0), {"shape": (SIZE,), "count": 60, "steps": 10}
    assert Spread.of_model(model, rest=0.3, **asked).rest == 0.3
    model.error = 0.04
    assert Spread.of_model(model, **asked).rest == 0.04
    assert Spread.of_model(model, rest=0.3, **asked).rest == 0.3  # as asked for
    known = Exact(0.0)
    known.spread = Spread(torch.zeros(0, SIZE), torch.zeros(0), 0.2)
    assert Spread.of_model(known, **asked).rest == 0.2
    # Of the three directions two are left out: their variance is more than the error.
    assert Spread.of_model(model, rank=1, **asked).rest > 0.05


def test_a_velocity_whose_error_nobody_knows_is_refused():
    words = r"expects a velocity that knows the error .*; got one that does not.*\. Give rest=….*Spread\.of_fields\(fields, vel"
    with pytest.raises(ParamsError, match=words):
        Spread.of_model(Exact(0.0), (SIZE,))


@pytest.mark.parametrize("rest", [-1.0, float("nan"), float("inf"), "small", True])
def test_a_rest_that_is_no_variance_is_refused(rest: Any):
    with pytest.raises(ParamsError, match=r"Spread\.of_model\(rest\) expects a number >= 0, and a finite one; got"):
        Spread.of_model(Exact(0.0), (SIZE,), rest=rest)
