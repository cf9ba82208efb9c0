"""MMSE and SMSE against known answers, and what their intervals mean."""

from __future__ import annotations

import math

import pytest
import torch

from snapfm.errors import ShapeError
from snapfm.metrics.bootstrap import ROUNDS, interval, resample
from snapfm.metrics.moments import mmse, moment_errors, moments, roughness, smse


def noise(count: int, seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(count, *(shape or (3, 5)), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_scores_of_known_batches() -> None:
    true = moments(torch.tensor([[[0.0, 1.0]], [[2.0, 1.0]]]))
    found = moments(torch.tensor([[[1.0, 0.0]], [[1.0, 4.0]]]))
    assert mmse(found, true) == pytest.approx((0.0 + 1.0) / 2)
    assert smse(found, true) == pytest.approx((2.0 + 8.0) / 2)  # spreads √2 and 0 against 0 and √8


def test_the_bootstrap_recomputes_the_same_scores() -> None:
    """Each resampled score is that of the batch it stands for."""
    fields, truth = noise(6, 0), noise(50, 1)
    picks = torch.randint(6, (ROUNDS, 6), generator=torch.Generator().manual_seed(4))
    slow = torch.stack(
        [torch.tensor([f(moments(fields[pick]), moments(truth)) for f in (mmse, smse)]) for pick in picks]
    ).double()
    expected = [interval(f(moments(fields), moments(truth)), slow[:, i]) for i, f in enumerate((mmse, smse))]
    found = moment_errors(fields, truth, seed=4)
    for fast, direct in zip((found.mmse, found.smse), expected):
        assert (fast.value, fast.low, fast.high) == pytest.approx((direct.value, direct.low, direct.high), rel=1e-6)


def test_a_sample_of_twice_the_weight_counts_twice_and_equal_weights_change_nothing() -> None:
    fields, truth = noise(6, 0), noise(50, 1)
    twice = moments(fields, torch.tensor([2.0, 1.0, 1.0, 0.0, 0.0, 0.0]))
    repeated = fields[[0, 0, 1, 2]]
    torch.testing.assert_close(twice.mean, repeated.mean(0))
    # The variance around the mean, without the bias of as many samples as the weights are worth: 1/(1 − Σw²) = 8/5.
    torch.testing.assert_close(twice.spread, (repeated.var(0, correction=0) * 8 / 5).sqrt())
    equal, plain = moment_errors(fields, truth, weights=torch.full((6,), 3.0)), moment_errors(fields, truth)
    assert (equal.mmse.value, equal.smse.value) == pytest.approx((plain.mmse.value, plain.smse.value))
    assert (equal.mmse.low, equal.mmse.high) == pytest.approx((plain.mmse.low, plain.mmse.high))
    with pytest.raises(ShapeError, match=r"one finite number >= 0 per sample, \(6,\)"):
        moment_errors(fields, truth, weights=torch.ones(5))


def test_intervals_shrink_with_samples_and_hold_the_score() -> None:
    truth = noise(4000, 1)
    few, many = (moment_errors(noise(count, 2) + 0.5, truth).mmse for count in (16, 256))
    assert few.low < few.value < few.high
    assert many.low <= 0.25 <= many.high
    assert 2.5 < (few.high - few.low) / (many.high - many.low) < 6.0  # a factor √16 = 4, and scatter


def test_the_same_seed_gives_the_same_interval() -> None:
    fields, truth = noise(8, 0), noise(20, 1)
    assert moment_errors(fields, truth, 3) == moment_errors(fields, truth, 3)
    assert moment_errors(fields, truth, 3) != moment_errors(fields, truth, 4)


def test_the_interval_of_a_mean_has_the_width_of_the_normal_law() -> None:
    values = noise(400, 0, 1).flatten() + 10.0
    found = interval(float(values.mean()), resample(400, 1) @ values)
    expected = 2 * 1.96 * float(values.std()) / math.sqrt(400)
    assert found.high - found.low == pytest.approx(expected, rel=0.1)


def test_resamplings_are_weights() -> None:
    weights = resample(7, 0)
    assert weights.shape == (ROUNDS, 7)
    torch.testing.assert_close(weights.sum(1), torch.ones(ROUNDS, dtype=torch.float64))


def test_noise_is_rough_and_straight_lines_are_not() -> None:
    line = torch.arange(5.0).expand(2, 3, 5)
    assert roughness(line) == 0.0
    assert roughness(line + noise(2, 0)) > 1.0


def test_one_sample_and_other_grids_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"moments\(fields\) expects at least 2 samples; got 1\. One has no spread"):
        moment_errors(noise(1, 0), noise(2, 0))
    with pytest.raises(ShapeError, match=r"expects fields of one shape; got \(3, 4\) and \(3, 5\)\. Simulate"):
        moment_errors(noise(2, 0, 3, 4), noise(2, 0))
