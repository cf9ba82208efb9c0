"""casadi's root-finder: our answer near one, the truth where it does not arrive, and equalities only."""

from __future__ import annotations

import pytest
import torch

from snapfm import Bounds, Equality, Status
from snapfm.compile import compile_laws
from snapfm.errors import UnsupportedLaw
from snapfm.project.judge import judge
from snapfm.solve.base import limits_of
from snapfm.solve.budget import STATIONARITY
from snapfm_bench.peers import Rootfinder
from snapfm_bench.peers.rootfinder import UNKNOWN

TOLERANCE = 1e-8


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["affine", "square", "mixed", "redundant"])
def test_it_finds_our_answer(ask, name, threads):
    question = ask(name)
    structure, limits = question.project.structure, question.project.limits
    near = question.ours.u + 0.1 * (question.u_hat - question.ours.u)  # without globalisation it has to begin near
    ours = question.project(near, question.params).raise_for_status()
    solved = Rootfinder(structure, limits, threads).solve(near, question.params, TOLERANCE)
    judged = judge(structure, solved.residual, limits, solved.u)
    assert solved.status.tolist() == [Status.CONVERGED] * 3
    assert float(judged.violation.max()) <= TOLERANCE
    assert float(solved.stationarity.max()) <= STATIONARITY
    torch.testing.assert_close(solved.distance**2, ours.distance**2, rtol=1e-8, atol=0)
    ours_weight = torch.cat(list(ours.multipliers.values()), dim=1)
    torch.testing.assert_close(solved.multipliers, ours_weight, rtol=1e-6, atol=1e-6)
    assert (solved.iterations == UNKNOWN).all() if threads > 1 else (solved.iterations > 0).all()


def test_threads_change_nothing_but_time(ask):
    question = ask("square", count=5)
    structure, limits = question.project.structure, question.project.limits
    one, two = (
        Rootfinder(structure, limits, threads).solve(question.u_hat, question.params, TOLERANCE) for threads in (1, 2)
    )
    assert torch.equal(one.u, two.u)
    assert torch.equal(one.status, two.status)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_broken_sample_is_told_and_leaves_the_others_alone(ask, threads):
    question = ask("square")
    peer = Rootfinder(question.project.structure, question.project.limits, threads)
    near = question.ours.u + 0.1 * (question.u_hat - question.ours.u)
    whole = peer.solve(near, question.params, TOLERANCE)
    near[1, 2, 3] = torch.inf
    solved = peer.solve(near, question.params, TOLERANCE)
    assert solved.status.tolist() == [Status.CONVERGED, Status.NONFINITE, Status.CONVERGED]
    assert torch.equal(solved.u[[0, 2]], whole.u[[0, 2]])


def test_laws_nothing_obeys_do_not_count_as_solved():
    laws = [Equality("impossible", lambda u, p: (u**2).sum() + 1.0)]
    peer = Rootfinder(compile_laws(laws, (3, 5)), limits_of(laws, (3, 5)))
    solved = peer.solve(torch.ones(1, 3, 5, dtype=torch.float64), {}, TOLERANCE)
    assert solved.status.tolist()[0] in (Status.ITERATION_LIMIT, Status.NONFINITE)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_singular_system_is_told_in_the_status_alone(capfd, threads):
    laws = [Equality("square", lambda u, p: (u**2).sum() - 1.0)]
    peer = Rootfinder(compile_laws(laws, (3, 5)), limits_of(laws, (3, 5)), threads, shift=0.0)
    solved = peer.solve(torch.zeros(2, 3, 5, dtype=torch.float64), {}, TOLERANCE)
    assert (solved.status != Status.CONVERGED).all()
    assert capfd.readouterr() == ("", "")


def test_inequalities_and_bounds_are_refused(ask):
    question = ask("inequality")
    with pytest.raises(
        UnsupportedLaw, match=r"Rootfinder expects laws that are all Equality; got Inequality 'decay'\. Use"
    ):
        Rootfinder(question.project.structure, question.project.limits)
    laws = [Equality("total", lambda u, p: u.sum()), Bounds(lower=0.0)]
    with pytest.raises(UnsupportedLaw, match=r"got Bounds 'bounds'\. Use the Ipopt peer, or leave them out"):
        Rootfinder(compile_laws(laws, (3, 5)), limits_of(laws, (3, 5)))
