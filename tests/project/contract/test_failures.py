"""Laws that contradict each other, tolerances below rounding, and what a failed projection says."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from tests.project.contract.cases import BATCH, EPS, assert_same_bits, randn

from snapfm import Equality, Projector, Status
from snapfm.errors import ProjectionFailed


def two_totals() -> list[Equality]:
    return [
        Equality("energy", lambda u, p: u.sum() - p["a"]),
        Equality("mass", lambda u, p: u.sum() - p["b"]),
    ]


def two_initials() -> list[Equality]:
    return [
        Equality("energy", lambda u, p: u[:, 0] - p["a"]),
        Equality("mass", lambda u, p: 2.0 * u[:, 0] - 2.0 * p["b"]),
    ]


def sum_of_parts() -> list[Equality]:
    return [
        Equality("energy", lambda u, p: u.sum(0) - p["a"] / 5),
        Equality("mass", lambda u, p: u.sum() - p["b"]),
    ]


@pytest.mark.parametrize("laws", [two_totals, two_initials, sum_of_parts])
def test_contradicting_params_are_infeasible_for_exactly_their_samples(laws: Callable[[], list[Equality]]):
    asked = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    also = torch.tensor([1.0, 5.0, 3.0, 0.0], dtype=torch.float64)
    project = Projector(laws(), shape=(3, 5), params={"a": asked[:1], "b": also[:1]})
    u_hat = randn(4, 3, 5, seed=6)
    result = project(u_hat, {"a": asked, "b": also})
    assert result.status.tolist() == [Status.CONVERGED, Status.INFEASIBLE, Status.CONVERGED, Status.INFEASIBLE]
    consistent = project(u_hat, {"a": asked, "b": asked})
    assert_same_bits(result.select([0, 2]), consistent.select([0, 2]))


def test_the_violation_of_a_contradiction_is_the_gap_between_the_laws():
    a, b = torch.tensor([2.0, 4.0], dtype=torch.float64), torch.tensor([5.0, 0.0], dtype=torch.float64)
    project = Projector(two_totals(), shape=(3, 5), params={"a": a[:1], "b": b[:1]})
    result = project(randn(2, 3, 5), {"a": a, "b": b})
    assert torch.allclose(result.violation, (a - b).abs(), rtol=15 * EPS, atol=0.0)


def test_raise_for_status_names_sample_law_size_and_advice():
    a, b = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 5.0, 3.0])
    project = Projector(two_totals(), shape=(3, 5), params={"a": a[:1], "b": b[:1]}, tolerance=1e-9)
    with pytest.raises(ProjectionFailed) as caught:
        project(randn(3, 3, 5), {"a": a, "b": b}).raise_for_status()
    said = str(caught.value)
    assert "expected 3 converged samples; 1 failed" in said
    # Either of the two may be the one that is kept; the other is off by the whole gap.
    assert re.search(r"sample 1: INFEASIBLE, law '(energy|mass)' is off by 3\.0e\+00 \(tolerance 1e-09\)", said)
    assert Status.INFEASIBLE.advice in said
    assert "on_failure='keep'" in said
    assert "sample 0" not in said
    assert "sample 2" not in said
    assert isinstance(caught.value, RuntimeError)


def test_raise_for_status_names_the_input_of_a_nonfinite_sample():
    project = Projector([Equality("total", lambda u, p: u.sum())], shape=(3, 5))
    u_hat = randn(2, 3, 5)
    u_hat[1, 0, 0] = float("nan")
    with pytest.raises(ProjectionFailed, match="sample 1: NONFINITE, law 'total'") as caught:
        project(u_hat).raise_for_status()
    assert Status.NONFINITE.advice in str(caught.value)


def test_raise_for_status_counts_what_it_does_not_list():
    project = Projector([Equality("total", lambda u, p: u.sum())], shape=(3, 5))
    with pytest.raises(ProjectionFailed) as caught:
        project(torch.full((11, 3, 5), float("nan"))).raise_for_status()
    said = str(caught.value)
    assert "11 failed" in said
    assert said.count(": NONFINITE, ") == 8
    assert "and 3 more" in said


def test_a_tolerance_below_rounding_stalls_instead_of_lying():
    # Rows of size 1e9 round near 1e-7; nothing can meet 1e-12, so whoever misses it must not be called converged.
    project = Projector([Equality("big", lambda u, p: 1e9 * u.sum(0) - 1e9 / 3)], shape=(3, 5), tolerance=1e-12)
    result = project(randn(BATCH, 3, 5, seed=7))
    missed = result.violation > 1e-12
    assert bool(missed.any())
    assert result.status[missed].unique().tolist() == [Status.STALLED]
    with pytest.raises(ProjectionFailed, match=r"STALLED.*larger tolerance"):
        result.raise_for_status()


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_rounding_is_never_called_a_contradiction(scale: float):
    # The second law adds the first one's rows up: no params can contradict, so a miss is rounding, not INFEASIBLE.
    laws = [
        Equality("columns", lambda u, p: u.sum(0) - p["c"]),
        Equality("all", lambda u, p: scale * (u.sum() - p["c"].sum())),
    ]
    tolerance = 8 * EPS * scale  # sums of 40 values of order one mostly round to less, the sum of all 200 to more
    project = Projector(laws, shape=(40, 5), params={"c": randn(1, 5)}, tolerance=tolerance)
    result = project(randn(63, 40, 5, seed=8), {"c": randn(63, 5, seed=9)})
    assert bool((result.violation > tolerance).any())
    assert Status.INFEASIBLE not in result.status.tolist()


def test_the_advice_of_a_status_is_given_once_for_all_its_samples():
    a, b = torch.zeros(12), torch.ones(12)
    project = Projector(two_totals(), shape=(3, 5), params={"a": a[:1], "b": b[:1]})
    u_hat = randn(12, 3, 5)
    u_hat[0] = torch.nan
    with pytest.raises(ProjectionFailed) as caught:
        project(u_hat, {"a": a, "b": b}).raise_for_status()
    said = str(caught.value)
    assert said.count(Status.INFEASIBLE.advice) == said.count(Status.NONFINITE.advice) == 1
    assert "… and 4 more" in said
