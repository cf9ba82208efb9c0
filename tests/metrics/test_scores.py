"""Violations, the published metric and all scores, on fields whose residuals are known."""

from __future__ import annotations

import pytest
import torch

import snapfm
from snapfm.metrics.scores import constraint_errors, residuals, scores


def test_equality_counts_both_signs_and_each_sample_reads_its_own_params() -> None:
    law = snapfm.Equality("first", lambda u, p: u[:, 0] - p["u0"])
    u = torch.zeros(2, 3, 5)
    params = {"u0": torch.tensor([[1.0, 0.0, 0.0], [0.0, -2.0, 0.0]])}
    assert residuals(law, u, params).tolist() == [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]


def test_params_of_one_row_are_shared_by_all_samples() -> None:
    law = snapfm.Equality("first", lambda u, p: u[:, 0] - p["u0"])
    judged = residuals(law, torch.zeros(2, 3, 5), {"u0": torch.ones(1, 3)})
    assert judged.tolist() == [[1.0] * 3] * 2


def test_inequality_counts_only_what_is_positive() -> None:
    law = snapfm.Inequality("below", lambda u, p: u[0])
    u = torch.tensor([[[-3.0, 2.0]]])
    assert residuals(law, u, {}).tolist() == [[0.0, 2.0]]


def test_bounds_count_the_excess_on_either_side() -> None:
    u = torch.tensor([[[-3.0, 0.5, 2.0]]])
    assert residuals(snapfm.Bounds(lower=-1.0, upper=1.0), u, {}).tolist() == [[2.0, 0.0, 1.0]]
    assert residuals(snapfm.Bounds(lower=-1.0), u, {}).tolist() == [[2.0, 0.0, 0.0]]


def test_float32_fields_are_judged_in_float64() -> None:
    law = snapfm.Equality("point", lambda u, p: u - p["u0"])
    u = torch.full((1, 1), 0.1, dtype=torch.float32)
    asked = torch.full((1, 1), 0.1, dtype=torch.float64)
    judged = residuals(law, u, {"u0": asked})
    assert judged.dtype == torch.float64
    assert 0 < judged.item() < torch.finfo(torch.float32).eps  # the rounding of 0.1, which float32 would hide


def test_the_mean_over_samples_of_the_norm_of_rows() -> None:
    law = snapfm.Equality("first", lambda u, p: u[:, 0] - p["u0"])
    below = snapfm.Inequality("below", lambda u, p: u[:, 1])
    u = torch.zeros(2, 2, 5)
    u[0, :, 0] = torch.tensor([3.0, 4.0])
    u[1, :, 1] = torch.tensor([-7.0, 2.0])
    first, second = constraint_errors([law, below], u, {"u0": torch.zeros(1, 2)})
    assert (first.law, first.rows, first.error.value, first.largest, first.worst_row) == ("first", 2, 2.5, 5.0, 4.0)
    assert (second.error.value, second.largest) == (1.0, 2.0)  # what is below zero does not count
    assert first.error.low <= first.error.value <= first.error.high


def test_one_sample_has_an_interval_without_width() -> None:
    law = snapfm.Equality("all", lambda u, p: u)
    (error,) = constraint_errors([law], torch.ones(1, 3, 5), {})
    assert (error.error.low, error.error.high) == pytest.approx((error.error.value,) * 2, rel=1e-14)


def test_targets_come_from_the_params_not_from_the_sample() -> None:
    """A field that conserves a mass nobody asked for is off by what it conserves."""
    problem = snapfm.problem("heat-ic-mass", nx=7, nt=5)
    fields, params = problem.truth(3, torch.Generator().manual_seed(0))
    _, mass = constraint_errors(problem.laws, fields + 1.0, params)
    assert mass.error.value == pytest.approx(6 * 4**0.5)  # 6 points, 4 later slices


def test_all_scores_at_once() -> None:
    problem = snapfm.problem("heat-ic-mass", nx=23, nt=11)
    generator = torch.Generator().manual_seed(0)
    truth, _ = problem.truth(64, generator)
    fields, params = problem.truth(16, generator)
    found = scores(problem.laws, fields, params, truth)
    assert [law.law for law in found.laws] == ["initial", "mass"]
    assert max(law.largest for law in found.laws) < 1e-13
    assert found.moments.mmse.value < 1e-2
    assert found.texture.alike
