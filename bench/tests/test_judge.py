"""The judge against answers known in closed form, and against what is no answer."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from snapfm.errors import Status
from snapfm.laws import Bounds, Equality, Inequality, Params
from snapfm_bench.judge import Answers, claims, verdict
from snapfm_bench.judge import nearest as threshold
from snapfm_bench.peers.certificate import accepted

TOTAL = Equality("total", lambda u, params: (u.sum() - params["total"]).reshape(1))
SHAPE = (2, 3)
U_HAT = torch.arange(12, dtype=torch.float64).reshape(2, *SHAPE) / 10
PARAMS = {"total": torch.tensor([1.0, 2.0], dtype=torch.float64)}
EPS = torch.finfo(torch.float64).eps


def nearest() -> tuple[Tensor, Tensor]:
    """u = û − λ, λ the mean defect."""
    weight = (U_HAT.flatten(1).sum(1) - PARAMS["total"]) / 6
    return U_HAT - weight[:, None, None], weight[:, None]


def answers(u: Tensor, weight: Tensor, iterations: int = 3) -> Answers:
    return Answers(u, {"total": weight}, torch.ones(2, dtype=torch.bool), torch.full((2,), iterations))


def test_a_nearest_field_holds():
    u, weight = nearest()
    found = verdict([TOTAL], U_HAT, answers(u, weight), PARAMS, 1e-8)
    assert (found.samples, found.claimed, found.converged, found.lawful) == (2, 2, 2, 2)
    assert found.violation <= 10 * EPS
    assert found.stationarity <= 10 * EPS
    assert found.distances == pytest.approx([math.sqrt(6) * abs(float(one)) for one in weight])
    assert (found.iterations_median, found.iterations_worst) == (3.0, 3)
    assert [law.law for law in found.laws] == ["total"]


def test_home_is_the_judges_word_alone_and_false_claims_are_counted_apart():
    u, weight = nearest()
    modest = Answers(u, {"total": weight}, torch.tensor([True, False]), torch.full((2,), 3))
    found = verdict([TOTAL], U_HAT, modest, PARAMS, 1e-8)
    assert (found.claimed, found.accepted, found.false_claims) == (1, 2, 0)
    wrong = Answers(
        u + torch.tensor([0.0, 0.1]).reshape(2, 1, 1), {"total": weight}, torch.tensor([False, True]), torch.ones(2)
    )
    found = verdict([TOTAL], U_HAT, wrong, PARAMS, 1e-8)
    assert (found.claimed, found.accepted, found.false_claims) == (1, 1, 1)


def test_of_older_records_home_is_what_was_confirmed_of_the_claims():
    u, weight = nearest()
    found = verdict([TOTAL], U_HAT, answers(u, weight), PARAMS, 1e-8)
    assert replace(found, converged=1, exact_distances=()).accepted == 1


@pytest.mark.parametrize("tolerance", [1e-10, 1e-8, 1e-6, 1e-5, 1e-3])
def test_peers_are_asked_for_what_the_judge_accepts(tolerance: float):
    assert accepted(tolerance) == threshold(tolerance)


def test_a_field_nearer_by_what_it_breaks_its_laws_by_is_no_nearer_with_them_kept():
    u, weight = nearest()
    short = 1e-4  # of the way to the law
    near = (1 - short) * weight
    found = verdict([TOTAL], U_HAT, answers(U_HAT - near[:, None], near), PARAMS, 1e-2)
    truth = (u - U_HAT).flatten(1).norm(dim=1)
    assert found.converged == 2
    assert found.distances == pytest.approx(((1 - short) * truth).tolist(), rel=1e-12)
    assert found.exact_distances == pytest.approx(truth.tolist(), rel=short**2)
    assert found.exact_distances != pytest.approx(truth.tolist(), rel=0.1 * short**2)


def test_answers_that_do_not_hold_have_no_exact_distance():
    u, weight = nearest()
    wrong = torch.stack([weight[0], weight[1] + 0.1])
    assert verdict([TOTAL], U_HAT, answers(u, wrong), PARAMS, 1e-8).exact_distances == (
        pytest.approx(float((u[0] - U_HAT[0]).norm())),
        None,
    )


def test_a_lawful_field_that_is_not_nearest_does_not_hold():
    u, weight = nearest()
    u = u.clone()
    u[0, 0, 0] += 0.1
    u[0, 1, 2] -= 0.1
    found = verdict([TOTAL], U_HAT, answers(u, weight), PARAMS, 1e-8)
    assert (found.claimed, found.converged, found.lawful) == (2, 1, 2)
    assert found.stationarity == pytest.approx(0.1)


def test_a_false_claim_and_a_field_of_nan_are_exposed():
    u, weight = nearest()
    u = u.clone()
    u[0] += 0.5
    u[1, 0, 0] = torch.nan
    found = verdict([TOTAL], U_HAT, answers(u, weight), PARAMS, 1e-8)
    assert (found.claimed, found.converged, found.lawful) == (2, 0, 0)
    assert (found.violation, found.stationarity, found.distances) == (None, None, (None, None))
    assert found.laws[0].error is None


def test_without_multipliers_a_sample_may_be_lawful_but_not_shown_to_be_nearest():
    u, weight = nearest()
    found = verdict([TOTAL], U_HAT, answers(u, torch.full_like(weight, torch.nan), iterations=-1), PARAMS, 1e-8)
    assert (found.lawful, found.converged, found.stationarity) == (2, 0, None)
    assert (found.iterations_median, found.iterations_worst) == (None, None)


def test_a_loose_tolerance_stands_for_nearness_too():
    u, weight = nearest()
    u = u + torch.tensor([1.0, -1.0, 0.0]) * 5e-5  # lawful still, and off by 5e-5
    assert verdict([TOTAL], U_HAT, answers(u, weight), PARAMS, 1e-4).converged == 2
    assert verdict([TOTAL], U_HAT, answers(u, weight), PARAMS, 1e-8).converged == 0


def test_signs_of_inequalities_and_bounds():
    def below(u: Tensor, params: Params) -> Tensor:
        return (u.sum() - params["total"]).reshape(1)

    laws = [Inequality("total", below), Bounds(lower=0.0)]
    u_hat = torch.tensor([[[0.5, -1.0, 0.0]], [[0.5, -1.0, 0.0]]], dtype=torch.float64)
    u = u_hat.clamp(min=0.0)
    slack = torch.zeros(2, 1, dtype=torch.float64)
    right = Answers(u, {"total": slack}, torch.ones(2, dtype=torch.bool), torch.ones(2))
    assert verdict(laws, u_hat, right, PARAMS, 1e-8).converged == 2
    wrong = Answers(u, {"total": slack - 1e-3}, torch.ones(2, dtype=torch.bool), torch.ones(2))
    assert verdict(laws, u_hat, wrong, PARAMS, 1e-8).converged == 0
    outside = Answers(u_hat, {"total": slack}, torch.ones(2, dtype=torch.bool), torch.ones(2))
    found = verdict(laws, u_hat, outside, PARAMS, 1e-8)
    assert (found.lawful, found.violation) == (0, 1.0)


def test_a_method_that_says_nothing_claims_all():
    assert claims(None, 2).tolist() == [True, True]
    assert claims(torch.tensor([Status.CONVERGED, Status.STALLED]), 2).tolist() == [True, False]


def test_an_inequality_with_room_must_not_push():
    law = Inequality("small", lambda u, params: (u.sum() - 9.0).reshape(1))
    weight = torch.full((2, 1), 0.25, dtype=torch.float64)
    pushed = Answers(U_HAT - 0.25, {"small": weight}, torch.ones(2, dtype=torch.bool), torch.ones(2))
    found = verdict([law], U_HAT, pushed, {}, 1e-8)
    assert (found.lawful, found.converged) == (2, 0)
    assert found.stationarity is not None
    assert found.stationarity > 1.0
