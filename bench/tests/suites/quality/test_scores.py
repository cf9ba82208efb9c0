"""Scores of cells are those of metrics, with as many rounds as asked for."""

from __future__ import annotations

import pytest
import torch

from snapfm.metrics.bootstrap import ROUNDS
from snapfm.metrics.moments import moment_errors
from snapfm.metrics.scores import constraint_errors
from snapfm_bench.problems import problem
from snapfm_bench.suites.quality.cell import Truth, score


def test_scores_and_intervals_are_those_of_metrics():
    chosen = problem("heat-ic-mass", nx=12, nt=9)
    truth, params = chosen.draw_truth(0, 0, 40)
    u = truth[:7] + 0.1 * torch.randn(7, 12, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    asked = {name: value[:7] for name, value in params.items()}
    found = score(chosen.laws, u, asked, Truth.of(truth), ROUNDS, seed=3)
    expected = moment_errors(u, truth, seed=3)
    for name in ("mmse", "smse"):
        ours, theirs = found[name], getattr(expected, name)
        assert (ours.value, ours.low, ours.high) == pytest.approx((theirs.value, theirs.low, theirs.high), rel=1e-9)
    for ours, theirs in zip(found["laws"], constraint_errors(chosen.laws, u, asked, seed=3), strict=True):
        assert (ours.law, ours.rows, ours.largest, ours.worst_row) == (
            theirs.law,
            theirs.rows,
            theirs.largest,
            theirs.worst_row,
        )
        assert (ours.error.value, ours.error.low, ours.error.high) == (
            theirs.error.value,
            theirs.error.low,
            theirs.error.high,
        )


def test_more_rounds_are_used_when_asked_for():
    chosen = problem("heat-ic-mass", nx=12, nt=9)
    truth, params = chosen.draw_truth(0, 0, 20)
    asked = {name: value[:5] for name, value in params.items()}
    few, many = (score(chosen.laws, truth[:5], asked, Truth.of(truth), rounds)["mmse"] for rounds in (2, 500))
    assert few.value == many.value
    assert few.high - few.low < many.high - many.low


def test_weights_count_in_the_distribution_and_not_in_the_laws():
    chosen = problem("heat-ic-mass", nx=12, nt=9)
    truth, params = chosen.draw_truth(0, 0, 20)
    u, asked = truth[:5].clone(), {name: value[:5] for name, value in params.items()}
    u[4] += 3.0
    plain, weighted = (
        score(chosen.laws, u, asked, Truth.of(truth), 20, weights=weights)
        for weights in (None, torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0]))
    )
    alone = score(chosen.laws, u[:4], {name: value[:4] for name, value in asked.items()}, Truth.of(truth), 20)
    for name in ("mmse", "smse", "crps", "energy_distance", "spread_skill"):
        assert weighted[name].value == pytest.approx(alone[name].value, abs=1e-7)
        assert weighted[name].value != pytest.approx(plain[name].value, rel=1e-3)
    assert weighted["laws"] == plain["laws"]
