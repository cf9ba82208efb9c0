"""Dense Gauss–Newton: our answer, each sample stopping for itself, and equalities only."""

from __future__ import annotations

import pytest
import torch

from snapfm import Equality, Status
from snapfm.compile import compile_laws
from snapfm.errors import UnsupportedLaw
from snapfm.project.judge import judge
from snapfm.solve.base import limits_of
from snapfm.solve.budget import STATIONARITY
from snapfm_bench.peers import GaussNewton

TOLERANCE = 1e-8


@pytest.mark.parametrize("name", ["affine", "square", "mixed", "redundant"])
def test_it_finds_our_answer(ask, name):
    question = ask(name)
    structure, limits = question.project.structure, question.project.limits
    near = question.ours.u + 0.1 * (question.u_hat - question.ours.u)  # W = I contracts only where curvature is small
    ours = question.project(near, question.params).raise_for_status()
    solved = GaussNewton(structure, limits).solve(near, question.params, TOLERANCE)
    assert solved.status.tolist() == [Status.CONVERGED] * 3
    assert float(judge(structure, solved.residual, limits, solved.u).violation.max()) <= TOLERANCE
    assert float(solved.stationarity.max()) <= STATIONARITY  # what the judge accepts, and no better
    torch.testing.assert_close(solved.distance**2, ours.distance**2, rtol=STATIONARITY, atol=0)
    ours_weight = torch.cat(list(ours.multipliers.values()), dim=1)
    torch.testing.assert_close(solved.multipliers, ours_weight, rtol=0, atol=10 * STATIONARITY)


def test_affine_laws_take_one_step(ask):
    question = ask("affine")
    solved = GaussNewton(question.project.structure, question.project.limits).solve(
        question.u_hat, question.params, TOLERANCE
    )
    assert solved.iterations.tolist() == [1, 1, 1]


def test_samples_stop_for_themselves(ask):
    question = ask("square")
    peer = GaussNewton(question.project.structure, question.project.limits)
    mixed = question.u_hat.clone()
    mixed[0] = question.ours.u[0]  # lawful already
    mixed[2, 1, 1] = torch.nan
    solved = peer.solve(mixed, question.params, TOLERANCE)
    assert solved.iterations[0] < solved.iterations[1]
    assert solved.status.tolist()[2] == Status.NONFINITE
    alone = peer.solve(mixed[1:2], {"start": question.params["start"][1:2]}, TOLERANCE)
    torch.testing.assert_close(solved.u[1], alone.u[0], rtol=0, atol=1e-12)


def test_running_out_of_iterations_is_told(ask):
    question = ask("mixed")
    peer = GaussNewton(question.project.structure, question.project.limits, iterations=1)
    solved = peer.solve(question.u_hat, question.params, TOLERANCE)
    assert solved.status.tolist() == [Status.ITERATION_LIMIT] * 3
    assert solved.iterations.tolist() == [1] * 3


def test_rows_that_lose_their_rank_stall():
    laws = [Equality("square", lambda u, p: (u**2).sum() - 1.0)]
    peer = GaussNewton(compile_laws(laws, (3, 5)), limits_of(laws, (3, 5)))
    solved = peer.solve(torch.zeros(2, 3, 5, dtype=torch.float64), {}, TOLERANCE)
    assert solved.status.tolist() == [Status.STALLED] * 2


def test_inequalities_are_refused(ask):
    question = ask("inequality")
    with pytest.raises(
        UnsupportedLaw, match=r"GaussNewton expects laws that are all Equality; got Inequality 'decay'\. Use"
    ):
        GaussNewton(question.project.structure, question.project.limits)
