"""What a model's predictions are off by becomes the least variance of its spread; exact predictions add nothing."""

from __future__ import annotations

import torch

from snapfm.adapters import Normalized
from snapfm.sampling import COSINE, Spread

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
    plain = Spread.of_model(model, (SIZE,), count=200)
    assert plain.rest < 0.2 * 0.25**2 * RANK / SIZE
    assert plain.variances[0] > 1.0
