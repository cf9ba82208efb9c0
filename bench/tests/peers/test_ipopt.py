"""Ipopt: the same nearest field as ours, multipliers in our convention, statuses told as they are."""

from __future__ import annotations

import pytest
import torch

from snapfm import Equality, Status
from snapfm.compile import compile_laws
from snapfm.errors import ShapeError
from snapfm.project.judge import judge, verdict
from snapfm.solve.base import limits_of
from snapfm.solve.budget import STATIONARITY
from snapfm_bench.peers import Ipopt

SETS = ("affine", "square", "mixed", "redundant", "inequality", "bounds")
TOLERANCE = 1e-10


@pytest.mark.parametrize("tuned", [True, False], ids=["tuned", "defaults"])
@pytest.mark.parametrize("name", SETS)
def test_it_finds_our_answer(ask, name, tuned):
    question = ask(name)
    structure, limits = question.project.structure, question.project.limits
    solved = Ipopt(structure, limits, tuned).solve(question.u_hat, question.params, TOLERANCE)
    judged = judge(structure, solved.residual, limits, solved.u)
    assert solved.status.tolist() == [Status.CONVERGED] * 3
    assert float(judged.violation.max()) <= TOLERANCE
    assert float(solved.stationarity.max()) <= STATIONARITY
    implied = structure.presolve.dropped
    status = verdict(structure, implied, solved, judged, TOLERANCE, question.u_hat, question.params)
    assert (status == Status.CONVERGED).all()
    torch.testing.assert_close(solved.distance**2, question.ours.distance**2, rtol=1e-8, atol=0)
    assert (solved.iterations > 0).all() or name == "affine"


@pytest.mark.parametrize("name", ["affine", "square", "mixed", "inequality"])
def test_multipliers_follow_our_convention(ask, name):
    question = ask(name)
    structure, limits = question.project.structure, question.project.limits
    for tuned in (True, False):
        solved = Ipopt(structure, limits, tuned).solve(question.u_hat, question.params, TOLERANCE)
        # An interior point leaves complementarity at the tolerance: multipliers are right to its root at worst.
        torch.testing.assert_close(solved.multipliers, question.multipliers(), rtol=1e-5, atol=1e-5)


def test_every_start_leads_to_a_convex_answer(ask):
    question = ask("bounds")
    peer = Ipopt(question.project.structure, question.project.limits)
    for begin in ("input", "zeros", question.u_hat + 1.0):
        solved = peer.solve(question.u_hat, question.params, TOLERANCE, begin)
        torch.testing.assert_close(solved.distance**2, question.ours.distance**2, rtol=1e-8, atol=0)


def test_a_broken_sample_is_told_and_leaves_the_others_alone(ask):
    question = ask("square")
    peer = Ipopt(question.project.structure, question.project.limits)
    whole = peer.solve(question.u_hat, question.params, TOLERANCE)
    damaged = question.u_hat.clone()
    damaged[1, 0, 0] = torch.nan
    solved = peer.solve(damaged, question.params, TOLERANCE)
    assert solved.status.tolist() == [Status.CONVERGED, Status.NONFINITE, Status.CONVERGED]
    assert torch.equal(solved.u[[0, 2]], whole.u[[0, 2]])


def test_laws_nothing_obeys_are_infeasible():
    laws = [Equality("impossible", lambda u, p: (u**2).sum() + 1.0)]
    peer = Ipopt(compile_laws(laws, (3, 5)), limits_of(laws, (3, 5)))
    solved = peer.solve(torch.ones(1, 3, 5, dtype=torch.float64), {}, TOLERANCE)
    assert solved.status.tolist() == [Status.INFEASIBLE]


def test_running_out_of_iterations_is_told(ask):
    question = ask("mixed")
    peer = Ipopt(question.project.structure, question.project.limits, iterations=1)
    solved = peer.solve(question.u_hat, question.params, TOLERANCE)
    assert solved.status.tolist() == [Status.ITERATION_LIMIT] * 3
    assert solved.iterations.tolist() == [1] * 3


def test_an_empty_batch_is_no_work(ask):
    question = ask("square")
    peer = Ipopt(question.project.structure, question.project.limits)
    solved = peer.solve(question.u_hat[:0], {"start": question.params["start"][:0]}, TOLERANCE)
    assert solved.u.shape == (0, 15)


def test_output_stays_silent(ask, capfd):
    question = ask("inequality")
    Ipopt(question.project.structure, question.project.limits).solve(question.u_hat, question.params, TOLERANCE)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_wrong_starts_are_refused(ask):
    question = ask("square")
    peer = Ipopt(question.project.structure, question.project.limits)
    with pytest.raises(ShapeError, match=r"begin=…\) expects one field per sample, \(3, 3, 5\); got \(3, 15\)\. Give"):
        peer.solve(question.u_hat, question.params, TOLERANCE, question.u_hat.flatten(1))
    with pytest.raises(
        ShapeError, match=r"begin=…\) expects 'input', 'zeros' or a tensor like start; got 'truth'\. Ch"
    ):
        peer.solve(question.u_hat, question.params, TOLERANCE, "truth")
