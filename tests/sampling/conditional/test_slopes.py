"""Spread.refined: the covariance from the slopes of a model's predictions."""

from __future__ import annotations

import torch
from tests.sampling.toys import seeded
from torch import Tensor

from snapfm.adapters import Normalized
from snapfm.sampling import Spread
from snapfm_bench.suites.exact.gaussian import Gaussian, gaussian_field
from snapfm_bench.suites.exact.mixture import mixture

SHAPE = (3, 5)
LEFT = 0.01  # variance in all directions but a few


def prior() -> Gaussian:
    axes = torch.linalg.qr(torch.randn(15, 4, generator=seeded(0), dtype=torch.float64))[0]
    variances = torch.tensor([4.0, 2.0, 1.0, 0.3], dtype=torch.float64)
    covariance = (axes * variances) @ axes.T + LEFT * torch.eye(15, dtype=torch.float64)
    return Gaussian(torch.linspace(-1.0, 2.0, 15, dtype=torch.float64), covariance)


def velocity(u: Tensor, tau: float) -> Tensor:
    flat = u.double().flatten(1)
    return ((prior().expected(flat, float(tau)) - flat) / (1.0 - float(tau))).view(u.shape).to(u.dtype)


def covariance(spread: Spread) -> Tensor:
    metric = spread.metric(spread.rest, (spread.variances - spread.rest).clamp(min=0.0))
    flat = spread.axes.flatten(1)
    own = torch.as_tensor(metric.diagonal, dtype=torch.float64).expand(SHAPE).flatten()
    return torch.diag(own) + flat.T @ ((spread.variances - spread.rest)[:, None] * flat)


def off(spread: Spread, true: Tensor) -> float:
    return float((covariance(spread) - true).abs().max())


def test_slopes_give_the_covariance_of_gaussian_fields_exactly():
    fields = prior().draw(64, seeded(1)).view(-1, *SHAPE)
    rough = Spread.of_fields(fields, rank=4, pieces=False)
    assert off(rough, prior().covariance) > 0.1
    # Subspace iteration leaves the directions beyond the fourth a share of (0.01/0.31)³ and less.
    assert off(rough.refined(velocity), prior().covariance) < 1e-4


def test_all_directions_need_no_rest():
    fields = prior().draw(64, seeded(1)).view(-1, *SHAPE)
    found = Spread.of_fields(fields, rank=15, pieces=False).refined(velocity)
    assert off(found, prior().covariance) < 1e-9


def test_the_covariance_is_in_units_of_the_noise():
    std = 3.0
    model = Normalized(velocity, mean=0.5, std=std)
    fields = 0.5 + std * prior().draw(64, seeded(1)).view(-1, *SHAPE)
    found = Spread.of_fields(fields, rank=4, scale=std, pieces=False).refined(model)
    assert off(found, std**2 * prior().covariance) < 1e-3


def test_a_single_precision_model_is_good_for_three_digits():
    fields = prior().draw(64, seeded(1)).view(-1, *SHAPE)

    def single(u: Tensor, tau: float) -> Tensor:
        return velocity(u.float(), tau).float().to(u.dtype)

    found = Spread.of_fields(fields, rank=4, pieces=False).refined(single)
    assert off(found, prior().covariance) < 4e-3


def test_few_fields_then_do_for_the_gaussian_case():
    case = gaussian_field()
    rough = Spread.of_fields(case.fields(128, seeded(2)), pieces=False)
    fine = rough.refined(case.velocity)
    exact = Spread.of_fields(case.fields(128, seeded(3)), pieces=False).refined(case.velocity)
    torch.testing.assert_close(fine.variances[:20], exact.variances[:20], rtol=1e-6, atol=0.0)
    assert float((rough.variances[:20] / exact.variances[:20] - 1.0).abs().max()) > 0.05


def test_a_mixture_stays_as_it_is():
    case = mixture(changed=False)
    spread = Spread.of_fields(case.fields(2048, seeded(4)))
    assert spread.pieces is not None
    assert spread.refined(case.velocity).pieces is spread.pieces
