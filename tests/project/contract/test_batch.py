"""A sample's answer never depends on who shares its batch, and one that is not finite harms only itself."""

from __future__ import annotations

import pytest
from tests.project.contract.cases import (
    BATCH,
    CASES,
    Run,
    assert_same_answer,
    assert_same_bits,
    part,
    randn,
)

from snapfm import Equality, Projector, Status


def test_calling_twice_gives_the_same_bits(run: Run):
    assert_same_bits(run.project(run.u_hat, run.params), run.result)


def test_a_second_projector_of_the_same_laws_gives_the_same_bits(run: Run):
    again = run.case.projector(run.linear, seed=55)
    assert_same_bits(again(run.u_hat, run.params), run.result)


def test_a_permuted_batch_gives_permuted_bits(run: Run):
    order = [3, 0, 6, 2, 5, 1, 4]
    assert_same_answer(run.project(run.u_hat[order], part(run.params, order)), run.result.select(order))


@pytest.mark.parametrize("sample", [0, 3, 6])
def test_a_sample_alone_has_the_bits_it_has_in_a_batch(run: Run, sample: int):
    alone = run.project(run.u_hat[[sample]], part(run.params, [sample]))
    assert_same_answer(alone, run.result.select([sample]))


def test_a_part_of_the_batch_has_the_bits_of_the_whole(run: Run):
    some = [1, 2, 4, 5]
    assert_same_answer(run.project(run.u_hat[some], part(run.params, some)), run.result.select(some))


def test_a_long_total_has_the_same_bits_alone_and_in_a_batch():
    # 200 × 200 values: from about 32 000 on torch sums a single total on several threads, but each of a batch on one.
    project = Projector([Equality("total", lambda u, p: u.sum() - 1.0)], shape=(200, 200))
    u_hat = randn(3, 200, 200, seed=5)
    assert_same_answer(project(u_hat[[1]]), project(u_hat).select([1]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_nonfinite_sample_is_marked_and_leaves_the_others_alone(run: Run, value: float):
    bad, rest = 2, [0, 1, 3, 4, 5, 6]
    u_hat = run.u_hat.clone()
    u_hat[bad].view(-1)[-1] = value
    result = run.project(u_hat, run.params)
    without = run.project(run.u_hat[rest], part(run.params, rest))
    assert Status(int(result.status[bad])) is Status.NONFINITE
    assert_same_answer(result.select(rest), without)
    assert_same_bits(result.select(rest), run.result.select(rest))


def test_a_nonfinite_unknown_that_no_law_reads_is_marked_too():
    project = Projector([Equality("first", lambda u, p: u[0] - 1.0)], shape=(3, 5))
    u_hat = randn(2, 3, 5)
    u_hat[0, 2, 4] = float("nan")
    assert project(u_hat).status.tolist() == [Status.NONFINITE, Status.CONVERGED]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nonfinite_params_mark_their_sample_only(value: float):
    case = CASES[0]
    project = Projector(case.laws, shape=case.shape, params=case.draw(1))
    u_hat, params = randn(3, *case.shape), case.draw(3)
    clean = project(u_hat, params)
    params["u0"][1, 0] = value
    result = project(u_hat, params)
    assert result.status.tolist() == [Status.CONVERGED, Status.NONFINITE, Status.CONVERGED]
    assert_same_bits(result.select([0, 2]), clean.select([0, 2]))


def test_shared_params_equal_repeated_ones(run: Run):
    shared = part(run.params, [0])
    repeated = {name: value.repeat(BATCH, *[1] * (value.dim() - 1)) for name, value in shared.items()}
    assert_same_bits(run.project(run.u_hat, shared), run.project(run.u_hat, repeated))
