"""The fields of a projection, for every shape of field and law: shapes, dtypes, and figures measured by hand."""

from __future__ import annotations

import pytest
import torch
from tests.project.contract.cases import (
    BATCH,
    CASES,
    EPS,
    SOLVERS,
    Case,
    Run,
    part,
    randn,
    sizes_by_hand,
    tensors,
)
from torch import Tensor

import snapfm
from snapfm import Equality, Inequality, Status
from snapfm.solve.budget import certified

Law = Equality | Inequality


def dense(law: Law, u: Tensor, params: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Give the Jacobian (m, n) of a law at a field, and its residual of the zero field (m,), for one sample."""
    jacobian = torch.func.jacrev(lambda u: law.residual(u, params).reshape(-1))(u)
    return jacobian.reshape(jacobian.shape[0], -1), law.residual(torch.zeros_like(u), params).reshape(-1)


def rounding(run: Run) -> float:
    """Bound what two orders of the sums behind a residual can differ by: terms × eps × size of the largest sum."""
    worst = 0.0
    for i in range(BATCH):
        for law in run.case.laws:
            params = {name: value[i] for name, value in run.params.items()}
            for u in (run.u_hat[i], run.result.u[i]):
                matrix, offset = dense(law, u, params)
                size = torch.maximum(run.u_hat[i].abs(), run.result.u[i].abs()).flatten()
                worst = max(worst, float((matrix.abs() @ size + offset.abs()).max()))
    terms = run.u_hat[0].numel() + max(1, *(value[0].numel() for value in run.params.values()), 1)
    return terms * EPS * worst


# What a newcomer writes first, word for word.


def test_the_example_of_the_contract_works_as_printed():
    u0 = randn(4, 100, seed=3)
    u_hat = randn(4, 100, 100, seed=4, dtype=torch.float32)
    laws = [
        snapfm.Equality("initial", lambda u, p: u[:, 0] - p["u0"]),  # u: ONE field, here (nx, nt)
        snapfm.Equality("mass", lambda u, p: u[:-1, 1:].sum(0) - p["u0"][:-1].sum()),
    ]
    project = snapfm.Projector(laws, shape=(100, 100), params={"u0": u0[:1]}, tolerance=1e-8)
    told = str(project.structure)
    for word in ("10 000 unknowns", "199 rows", "initial", "mass", "non-zeros", "affine", "redundant"):
        assert word in told.replace(" ", " ").replace(",", " "), told
    result = project(u_hat, {"u0": u0})
    assert result.u.shape == (4, 100, 100)
    assert result.u.dtype == torch.float32
    assert result.status.dtype == torch.int8
    assert result.status.tolist() == [snapfm.Status.CONVERGED] * 4
    assert result.converged.dtype == torch.bool
    assert result.converged.tolist() == [True] * 4
    assert set(result.by_law) == set(result.multipliers) == {"initial", "mass"}
    assert bool((result.violation <= 1e-8 + result.rounding).all())
    assert bool((result.rounding < 1e-5).all())
    assert result.raise_for_status() is result


# Fields of the result, for every case.


@pytest.mark.parametrize("count", [1, 3])
def test_every_field_has_its_shape_dtype_and_device(run: Run, count: int):
    result = run.project(run.u_hat[:count], part(run.params, list(range(count))))
    assert result.u.shape == (count, *run.case.shape)
    assert result.u.dtype == torch.float64
    expected = {"status": torch.int8, "iterations": torch.int64, "converged": torch.bool}
    for name in ("status", "iterations", "converged", "violation", "stationarity", "distance"):
        value = getattr(result, name)
        assert value.shape == (count,), name
        assert value.dtype == expected.get(name, torch.float64), name
    assert list(result.by_law) == list(result.multipliers) == [law.name for law in run.case.laws]
    for law in run.case.laws:
        rows = law.residual(run.u_hat[0], {name: value[0] for name, value in run.params.items()}).numel()
        assert result.multipliers[law.name].shape == (count, rows)
        assert result.by_law[law.name].shape == (count,)
    assert {value.device for value in tensors(result).values()} == {run.u_hat.device}


def test_every_sample_converges_and_moves(run: Run):
    assert run.result.status.tolist() == [Status.CONVERGED] * BATCH
    assert bool((run.result.distance > 0.01).all())  # noise does not obey by chance: the tests below see real steps


def test_distance_is_that_of_the_fields(run: Run):
    by_hand = (run.result.u - run.u_hat).flatten(1).norm(dim=1)
    assert torch.allclose(run.result.distance, by_hand, rtol=run.u_hat[0].numel() * EPS, atol=0.0)


def test_violation_is_that_of_the_laws_measured_by_hand(run: Run):
    by_hand = sizes_by_hand(run.case.laws, run.result.u, run.params)
    for name, value in by_hand.items():
        assert torch.allclose(run.result.by_law[name], value, rtol=0.0, atol=rounding(run)), name
        assert bool((value <= run.project.tolerance).all()), name
    worst = torch.stack(list(run.result.by_law.values())).amax(0)
    assert torch.equal(run.result.violation, worst)


def test_check_measures_fields_that_break_their_laws(run: Run):
    judged = run.project.check(run.u_hat, run.params)
    by_hand = sizes_by_hand(run.case.laws, run.u_hat, run.params)
    assert judged.by_law.keys() == by_hand.keys()
    for name, value in by_hand.items():
        assert torch.allclose(judged.by_law[name], value, rtol=0.0, atol=rounding(run)), name
    assert torch.equal(judged.violation, torch.stack(list(judged.by_law.values())).amax(0))
    assert bool((judged.violation > 1e-3).all())


def test_stationarity_is_the_dense_certificate_of_nearness(run: Run):
    for i in range(BATCH):
        params = {name: value[i] for name, value in run.params.items()}
        gradient = (run.result.u[i] - run.u_hat[i]).flatten()
        for law in run.case.laws:
            matrix, _ = dense(law, run.result.u[i], params)
            gradient = gradient + matrix.T @ run.result.multipliers[law.name][i]
        by_hand = float(gradient.abs().max())
        asked = 0.0 if run.project.structure.affine else certified(run.project.tolerance).stationarity
        assert by_hand <= asked + rounding(run)  # so no lawful field beside the answer is nearer
        # Unknowns that all rows see alike are condensed: what is reported is the norm over them, not the largest.
        condensed = 1.0 if run.project.structure.affine else run.u_hat[i].numel() ** 0.5
        reported = float(run.result.stationarity[i])
        assert by_hand - rounding(run) <= reported <= condensed * by_hand + rounding(run)


def test_float32_is_the_float64_answer_rounded(run: Run):
    single = run.u_hat.float()
    result, wide = run.project(single, run.params), run.project(single.double(), run.params)
    assert result.u.dtype == torch.float32
    assert torch.equal(result.u, wide.u.float())
    assert torch.equal(result.stationarity, wide.stationarity)
    assert torch.equal(result.status, wide.status)


def test_what_is_returned_is_what_is_certified(run: Run):
    for dtype in (torch.float32, torch.float64):
        result = run.project(run.u_hat.to(dtype), run.params)
        seen = run.project.check(result.u, run.params)
        assert torch.equal(result.violation, seen.violation)
        assert all(torch.equal(result.by_law[name], seen.by_law[name]) for name in seen.by_law)
        assert bool((result.violation <= run.project.tolerance + result.rounding).all())
        if dtype == torch.float64:
            assert not result.rounding.any()
        else:
            size = float(result.u.abs().max()) * 100 * result.u[0].numel()
            assert bool((result.rounding <= size * torch.finfo(dtype).eps).all())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_linear_solvers_give_the_same_answer(case: Case):
    u_hat, params = randn(BATCH, *case.shape, seed=2), case.draw(BATCH)
    first, *others = (case.projector(linear)(u_hat, params) for linear in SOLVERS)
    assert first.status.tolist() == [Status.CONVERGED] * BATCH
    for other in others:
        assert torch.equal(first.status, other.status)
        assert torch.allclose(first.u, other.u, rtol=0.0, atol=1e-9)
        for name, multipliers in first.multipliers.items():
            assert torch.allclose(multipliers, other.multipliers[name], rtol=1e-9, atol=1e-9), name
