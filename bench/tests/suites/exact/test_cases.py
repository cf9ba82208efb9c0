"""Exact cases: velocities against Monte Carlo and derivatives, conditional draws against their laws and each other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from snapfm.laws import Bounds, Equality
from snapfm_bench.suites.exact import ExactCase, cases
from snapfm_bench.suites.exact.curves import ellipse
from snapfm_bench.suites.exact.gaussian import Gaussian
from snapfm_bench.suites.exact.mixture import mixture
from snapfm_bench.suites.exact.scores import ExactMoments, Shares

COUNT = 20_000
EVERY = pytest.mark.parametrize("case", cases().values(), ids=lambda case: case.name)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@EVERY
@pytest.mark.parametrize("tau", [0.2, 0.6])
def test_the_expected_field_is_the_mean_of_fields_given_the_state(case: ExactCase, tau: float):
    """E[x | u] leaves x − E[x | u] uncorrelated with functions of u: here with u itself, and with a nonlinear one."""
    count = 4000
    x = case.fields(count, seeded(0)).flatten(1)
    u = tau * x + (1.0 - tau) * torch.randn(x.shape, generator=seeded(1), dtype=torch.float64)
    error = x - case.expected(u, tau)
    for test in (torch.ones_like(u), u, torch.tanh(u)):
        products = error * test
        deviation = products.std(0) / count**0.5
        # Five standard errors: for 144 points and six tests, chance exceeds them about once in two thousand runs.
        assert (products.mean(0).abs() <= 5.0 * deviation).all()


def test_the_velocity_is_the_slope_of_the_path_to_the_expected_field():
    case = cases()["gaussian"]
    u = torch.randn(3, *case.shape, generator=seeded(2), dtype=torch.float64)
    ahead = u + 0.7 * case.velocity(u, 0.3)
    torch.testing.assert_close(ahead.flatten(1), case.expected(u.flatten(1), 0.3))


@pytest.mark.parametrize("name", ["mixture", "ellipse-surface"])
def test_expected_is_tweedies_formula(name: str):
    """E[x | u] = (u + σ²∇log p(u))/τ, with the density of states differentiated by autograd."""
    case, tau = cases()[name], 0.4
    owner = case.expected.__self__  # type: ignore[attr-defined]

    def log_density(u: Tensor) -> Tensor:
        if isinstance(owner, Gaussian):
            return owner.log_density(u, tau).sum()
        logs = torch.stack([mode.log_density(u, tau) for mode in owner.modes], dim=1)
        return torch.logsumexp(logs + owner.weights.log(), dim=1).sum()

    u = torch.randn(4, *case.shape, generator=seeded(3), dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(log_density(u), u)
    torch.testing.assert_close(case.expected(u.detach(), tau), (u.detach() + (1.0 - tau) ** 2 * slope) / tau)


@EVERY
def test_exact_draws_obey_the_laws(case: ExactCase):
    for u in case.given(8, seeded(4)):
        for law in case.laws:
            if isinstance(law, Bounds):
                assert (u >= law.lower).all()
                continue
            rest = law.residual(u, {})
            assert (rest.abs() if isinstance(law, Equality) else rest).max() <= 1e-10


@EVERY
def test_exact_draws_score_as_chance_says_and_less_with_more(case: ExactCase):
    few, many = case.chance(100, 6, 10), case.chance(1600, 6, 20)
    for name, value in many.items():
        if name != "ratio":
            assert 0.12 <= value / few[name] <= 0.6  # sixteen times the draws: a quarter of the error
    assert abs(many["ratio"] - 1.0) < 0.05 if "ratio" in many else True


def test_laws_change_the_weights_of_one_mixture_and_not_of_the_other():
    prior = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    for changed in (False, True):
        case = mixture(changed)
        off = 0.5 * (_weights(case, case.given(COUNT, seeded(5))) - prior).abs().sum()
        assert (off > 0.1) == changed


def _weights(case: ExactCase, u: Tensor) -> Tensor:
    prior = case.expected.__self__  # type: ignore[attr-defined]
    return torch.bincount(prior.shares(u).argmax(1), minlength=3) / len(u)


def test_the_two_measures_of_an_ellipse_are_limits_of_different_bands():
    """Fields within a band of equal width follow the surface measure, within one of equal residual the other."""
    x = (
        torch.tensor([0.5, 0.3], dtype=torch.float64)
        + torch.randn(2_000_000, 2, generator=seeded(6), dtype=torch.float64)
        @ torch.linalg.cholesky(torch.tensor([[1.0, 0.3], [0.3, 0.5]], dtype=torch.float64)).T
    )
    rest = (x[:, 0] / 2.0) ** 2 + x[:, 1] ** 2 - 1.0
    slope = torch.stack([x[:, 0] / 2.0, 2.0 * x[:, 1]], dim=1).norm(dim=1)
    bands = {"residual": rest.abs() < 0.01, "surface": (rest / slope).abs() < 0.01}
    for band, inside in bands.items():
        own, other = (
            ellipse(measure).score(x[inside], torch.ones(int(inside.sum()), dtype=torch.float64))["variation"]
            for measure in (band, "residual" if band == "surface" else "surface")  # type: ignore[arg-type]
        )
        assert own < 0.03 < other


def test_scores_count_weights():
    u = torch.tensor([[0.0], [1.0], [1.0]], dtype=torch.float64)
    weights = torch.tensor([2.0, 0.5, 0.5], dtype=torch.float64)
    shares = Shares("shares", torch.tensor([0.5, 0.5], dtype=torch.float64), lambda x: x[:, 0].long())
    assert shares(u, torch.ones(3, dtype=torch.float64)) == {"shares": pytest.approx(1.0 / 6.0)}
    assert shares(u, weights) == {"shares": pytest.approx(1.0 / 6.0)}
    assert ExactMoments.of(u, weights).mean == pytest.approx(1.0 / 3.0)
    plain = ExactMoments.of(u, torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(plain.spread, u.std(0))
