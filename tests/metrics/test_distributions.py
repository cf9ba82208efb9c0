"""CRPS, energy distance, coverage and spread–skill: against brute force, closed forms, and what they say of right samples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from snapfm.errors import ShapeError
from snapfm.metrics.bootstrap import interval, resample
from snapfm.metrics.coverage import LEVELS, coverage
from snapfm.metrics.crps import crps
from snapfm.metrics.energy_distance import TrueFields, energy_distance
from snapfm.metrics.moments import moments
from snapfm.metrics.spread_skill import spread_skill

ROUNDING = 1e-12


def noise(count: int, seed: int, *shape: int) -> Tensor:
    return torch.randn(count, *(shape or (3, 5)), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights_of(count: int, seed: int = 7) -> Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def brute_crps(u: Tensor, y: Tensor, w: Tensor) -> float:
    """Sum over all pairs, as the definition says."""
    w = w / w.sum()
    cross = sum(w[i] * (u[i] - one).abs().mean() / len(y) for i in range(len(u)) for one in y)
    pairs = sum(w[i] * w[j] * (u[i] - u[j]).abs().mean() for i in range(len(u)) for j in range(len(u)) if i != j)
    return float(cross - 0.5 * pairs / (1 - w.square().sum()))


@pytest.mark.parametrize("equal", [True, False])
def test_crps_is_the_sum_over_all_pairs(equal: bool) -> None:
    u, y = noise(7, 0), 0.3 + noise(11, 1)
    w = torch.ones(7, dtype=torch.float64) if equal else weights_of(7)
    given = None if equal else w
    expected = brute_crps(u, y, w)
    assert crps(u, y, given).value == pytest.approx(expected, abs=ROUNDING)


def test_crps_is_the_same_in_pieces_of_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    u, y = noise(7, 0), noise(11, 1)
    whole = crps(u, y, weights_of(7))
    monkeypatch.setattr("snapfm.metrics.crps._NUMBERS_AT_ONCE", 22)  # two points at once
    cut = crps(u, y, weights_of(7))
    assert (cut.value, cut.low, cut.high) == pytest.approx((whole.value, whole.low, whole.high), abs=ROUNDING)
    assert crps(u, y).value == pytest.approx(brute_crps(u, y, torch.ones(7).double()), abs=ROUNDING)


def test_the_interval_of_crps_recomputes_the_score_of_every_resampling() -> None:
    """Each resampled score is that of the weights it stands for."""
    u, y = noise(6, 0), 0.5 + noise(9, 1)
    again = torch.tensor([brute_crps(u, y, one) for one in resample(6, 4, 40)], dtype=torch.float64)
    found, expected = crps(u, y, seed=4, rounds=40), interval(crps(u, y).value, again)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-10)


def test_crps_of_ties_and_of_one_value() -> None:
    u, y = torch.zeros(4, 1, 2), torch.tensor([[[1.0, 0.0]], [[2.0, 0.0]]])
    assert crps(u, y).value == pytest.approx(0.75)  # the mean distance: samples without spread


def gaussian_crps(y: Tensor) -> Tensor:
    """CRPS of the standard normal distribution against y, in closed form (Gneiting and Raftery 2007, eq. 21 with σ = 1)."""
    density = torch.exp(-0.5 * y**2) / math.sqrt(2 * math.pi)
    return y * torch.erf(y / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi)


@pytest.mark.parametrize("count", [2, 5, 40])
def test_crps_of_few_gaussian_samples_has_the_mean_of_the_closed_form(count: int) -> None:
    """Fair: with two samples as with forty. Points are repetitions; the biased estimator is off by 1/(b√π)."""
    points = 40_000
    y = torch.tensor([[0.7], [-1.5]], dtype=torch.float64).expand(2, points)
    found = crps(noise(count, 3, points), y, rounds=2).value
    assert found == pytest.approx(float(gaussian_crps(y).mean()), abs=0.015)


def test_right_samples_have_the_least_crps_and_the_interval_says_which() -> None:
    y = noise(400, 0, 40)
    right, wide, late = (
        crps(noise(100, 1, 40), y),
        crps(1.8 * noise(100, 1, 40), y),
        crps(noise(100, 1, 40) + 0.6, y),
    )
    assert right.value == pytest.approx(1 / math.sqrt(math.pi), abs=0.02)  # half the mean distance of two draws
    assert right.high < min(wide.low, late.low)
    assert right.low <= right.value <= right.high


def brute_energy(u: Tensor, y: Tensor, w: Tensor) -> float:
    def norm(a: Tensor) -> float:
        return float(a.square().mean().sqrt())

    w = (w / w.sum()).tolist()
    n, m = range(len(u)), range(len(y))
    cross = sum(w[i] * norm(u[i] - y[j]) / len(y) for i in n for j in m)
    own = sum(w[i] * w[j] * norm(u[i] - u[j]) for i in n for j in n if i != j) / (1 - sum(one**2 for one in w))
    true = sum(norm(y[i] - y[j]) for i in m for j in m if i != j) / (len(y) * (len(y) - 1))
    return 2 * cross - own - true


@pytest.mark.parametrize("equal", [True, False])
def test_energy_distance_is_the_sum_over_all_pairs(equal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapfm.metrics.energy_distance._DISTANCES_AT_ONCE", 22)
    u, y = 5.0 + noise(7, 0), 5.0 + 2 * noise(11, 1)
    w = torch.ones(7, dtype=torch.float64) if equal else weights_of(7)
    found = energy_distance(u, TrueFields.of(y), None if equal else w)
    assert found.value == pytest.approx(brute_energy(u, y, w), abs=1e-7)


def test_energy_distance_of_two_normal_distributions_in_closed_form() -> None:
    """One point, N(0, 1) against N(1, 1): 2E|Z√2 + 1| − 2E|Z√2|."""
    folded = 2 * math.sqrt(1 / math.pi) * math.exp(-0.25) + math.erf(0.5)  # E|N(1, 2)|
    expected = 2 * folded - 4 / math.sqrt(math.pi)
    found = energy_distance(noise(1500, 0, 1) + 1.0, noise(1500, 1, 1))
    assert found.value == pytest.approx(expected, abs=0.06)
    assert found.low < expected < found.high


def test_energy_distance_of_right_samples_is_zero_on_average_and_sees_correlations() -> None:
    scores = [energy_distance(noise(8, seed, 4), noise(8, 100 + seed, 4), rounds=2).value for seed in range(300)]
    mean, error = sum(scores) / 300, torch.tensor(scores).std().item() / math.sqrt(300)
    assert abs(mean) < 3 * error
    assert min(scores) < 0 < max(scores)  # no bias means that some are negative
    one = noise(300, 0, 1)
    together = one.expand(300, 4)  # every point as it should be, but all points alike
    expected = crps(noise(300, 2, 4), noise(300, 1, 4)).value
    assert crps(together, noise(300, 1, 4)).value == pytest.approx(expected, abs=0.05)
    assert energy_distance(together, noise(300, 1, 4)).low > 0.05


@pytest.mark.parametrize("count", [9, 19, 64])
def test_coverage_of_exact_draws_is_the_exact_share(count: int) -> None:
    points = 4000
    found = coverage(noise(count, 0, points), noise(50, 1, points), rounds=20)
    assert [one.level for one in found] == list(LEVELS)
    for one in found:
        rank = max(1, round((count + 1) * 0.5 * (1 - one.level)))
        assert one.expected == pytest.approx((count + 1 - 2 * rank) / (count + 1))
        assert one.found.value == pytest.approx(one.expected, abs=0.006)


def test_coverage_by_hand_with_ties_and_weights() -> None:
    u = torch.arange(1.0, 10.0).double()[
        :, None
    ]  # nine samples: half of the values lie between the 2nd and the 8th, or 3rd and 7th
    y = torch.tensor([[1.5], [3.0], [7.0], [9.5]], dtype=torch.float64)
    half, most = coverage(u, y, rounds=5)
    assert half.expected == pytest.approx(0.6)  # ranks 2 and 8 of 10: round(2.5) is 2
    assert half.found.value == pytest.approx(0.5)
    assert most.expected == pytest.approx(0.8)
    assert most.found.value == pytest.approx(0.75)
    # Doubled weight is a sample twice, samples without weight are none.
    w = torch.tensor([1.0, 1.0, 1.0, 0.0])
    x = torch.tensor([[0.0], [1.0], [2.0], [50.0]])
    (weighted,) = coverage(x, y, w, rounds=5, levels=(0.5,))
    (alone,) = coverage(x[:3], y, rounds=5, levels=(0.5,))
    assert (weighted.expected, weighted.found.value) == pytest.approx((alone.expected, alone.found.value))


def test_coverage_leaves_out_points_that_a_law_fixes_and_shows_narrow_samples() -> None:
    u, y = noise(50, 0, 6), noise(200, 1, 6)
    u[:, :2] = y[:, :2] = 0.3
    u[:, 0] += 1e-17
    narrow, full = coverage(0.3 * u, y), coverage(u, y)
    assert full == coverage(u[:, 2:], y[:, 2:])
    for one, other in zip(narrow, full):
        assert one.found.high < one.expected
        assert other.found.low <= other.found.value <= other.found.high
    assert coverage(u[:, :2], y[:, :2]) == ()


@pytest.mark.parametrize("count", [2, 5, 40])
def test_spread_over_skill_is_one_for_right_samples_of_any_number(count: int) -> None:
    truth = noise(60, 0, 20_000)
    assert spread_skill(noise(count, 1, 20_000), truth, rounds=5).value == pytest.approx(1.0, abs=0.02)
    known = spread_skill(noise(count, 1, 20_000), (moments(truth), 60), rounds=5)
    assert known == spread_skill(noise(count, 1, 20_000), truth, rounds=5)


def test_spread_skill_is_the_ratio_of_its_definition() -> None:
    u, y, w = 0.4 + 2 * noise(6, 0), noise(9, 1), weights_of(6)
    w = w / w.sum()
    mean = torch.einsum("b,bxt->xt", w, u)
    worth = 1 / float(w.square().sum())
    variance = (torch.einsum("b,bxt->xt", w, (u - mean) ** 2) / (1 - 1 / worth)).mean()
    skill = ((y - mean) ** 2).mean()
    expected = math.sqrt((worth + 1) / worth * float(variance / skill))
    found = spread_skill(u, y, w)
    assert found.value == pytest.approx(expected, abs=ROUNDING)
    assert found.low < found.value < found.high
    assert spread_skill(0.5 * noise(60, 2), noise(60, 3)).high < 1.0


def test_a_sample_drawn_twice_is_one_of_twice_the_weight() -> None:
    """Pairs apart: weights that repeat a sample give the same cross terms and the same mean."""
    u, y, w = noise(5, 0), noise(9, 1), torch.tensor([2.0, 1.0, 0.0, 0.0, 0.0])
    one, other = energy_distance(u, y, w), energy_distance(u[:2], y, w[:2])
    assert one.value == pytest.approx(other.value, abs=1e-7)
    assert crps(u, y, w).value == pytest.approx(crps(u[:2], y, w[:2]).value, abs=ROUNDING)


@pytest.mark.parametrize("score", [crps, energy_distance, coverage, spread_skill])
def test_wrong_shapes_and_weights_are_refused(score) -> None:
    with pytest.raises(ShapeError, match=r"expects at least 2 fields of .*; got \(1, 3, 5\).*Simulate"):
        score(noise(1, 0), noise(4, 1))
    with pytest.raises(ShapeError, match="Simulate the truth on the grid of the samples"):
        score(noise(3, 0, 2, 5), noise(4, 1))
    for wrong in (torch.ones(2), torch.tensor([1.0, -1.0, 1.0]), torch.zeros(3)):
        with pytest.raises(ShapeError, match=r"one finite number >= 0 per sample, \(3,\).*Leave them out"):
            score(noise(3, 0), noise(4, 1), wrong)
