"""Inputs count by value, stay the caller's, and may be empty, scalar, strided or whole numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.project.contract.cases import CASES, Run, assert_same_bits, part, randn, tensors
from torch import Tensor

from snapfm import Equality, Projector


def test_inputs_are_neither_changed_nor_handed_back(run: Run):
    u_hat, params = run.u_hat.clone(), {name: value.clone() for name, value in run.params.items()}
    result = run.project(u_hat, params)
    result.u.fill_(99.0)
    assert torch.equal(u_hat, run.u_hat)
    for name, value in params.items():
        assert torch.equal(value, run.params[name])


def by_torch(value: Tensor, new: Tensor) -> None:
    value.copy_(new)


def by_data(value: Tensor, new: Tensor) -> None:
    value.data.copy_(new)


def by_numpy(value: Tensor, new: Tensor) -> None:
    value.numpy()[:] = new.numpy()


@pytest.mark.parametrize("write", [by_torch, by_data, by_numpy])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("leading", [1, 3])
def test_params_count_by_value_however_they_were_changed(
    write: Callable[[Tensor, Tensor], None], dtype: torch.dtype, leading: int
):
    # The same tensor with other numbers in it is other params; writes through .data and numpy leave no trace in torch.
    case = CASES[0]
    project = Projector(case.laws, shape=case.shape, params=case.draw(1))
    u_hat, params = randn(3, *case.shape), {"u0": randn(leading, 6, seed=200, dtype=dtype)}
    for seed in (201, 202):
        project(u_hat, params)
        new = randn(leading, 6, seed=seed, dtype=dtype)
        write(params["u0"], new)
        result = project(u_hat, params)
        assert result.converged.all()
        assert torch.allclose(result.u[:, :, 0], new.double().expand(3, 6), rtol=0.0, atol=project.tolerance)
        assert torch.allclose(result.u, project(u_hat, {"u0": new}).u, rtol=0.0, atol=project.tolerance)


def test_a_shorter_batch_with_the_same_shared_params_is_a_shorter_batch():
    case = CASES[0]
    project = Projector(case.laws, shape=case.shape, params=case.draw(1))
    u_hat, shared = randn(5, *case.shape), case.draw(1)
    whole = project(u_hat, shared)
    assert_same_bits(project(u_hat[:2], shared), whole.select([0, 1]))
    assert_same_bits(project(u_hat, shared), whole)


def test_strided_and_broadcast_inputs_count_by_value(run: Run):
    axes = list(range(run.u_hat.dim()))[::-1]
    strided = run.u_hat.permute(axes).contiguous().permute(axes)
    assert_same_bits(run.project(strided, run.params), run.result)
    spread = run.u_hat[:1].expand(3, *run.case.shape)
    same = part(run.params, [0, 0, 0])
    assert_same_bits(run.project(spread, same), run.project(spread.contiguous(), same))


def test_no_laws_leave_the_field_as_it_is():
    u_hat = randn(2, 3, 5)
    result = Projector([], shape=(3, 5))(u_hat)
    assert torch.equal(result.u, u_hat)
    assert result.u.data_ptr() != u_hat.data_ptr()
    assert result.converged.tolist() == [True, True]
    assert result.violation.tolist() == result.distance.tolist() == [0.0, 0.0]


def test_a_scalar_field_is_a_field():
    result = Projector([Equality("value", lambda u, p: 2 * u - 4)], shape=())(torch.zeros(3, dtype=torch.float64))
    assert result.u.tolist() == [2.0, 2.0, 2.0]


def test_whole_number_params_are_read_as_they_are():
    project = Projector([Equality("first", lambda u, p: u[0] - p["k"])], shape=(3,), params={"k": torch.tensor([1])})
    result = project(torch.zeros(2, 3), {"k": torch.tensor([2, 7])})
    assert result.u.tolist() == [[2.0, 0.0, 0.0], [7.0, 0.0, 0.0]]


@pytest.mark.parametrize("leading", [0, 1])
def test_an_empty_batch_gives_empty_results(run: Run, leading: int):
    params = {name: value[:leading] for name, value in run.params.items()}
    result = run.project(run.u_hat[:0], params)
    assert result.u.shape == (0, *run.case.shape)
    for name, value in tensors(result).items():
        assert len(value) == 0, name
    assert list(result.by_law) == [law.name for law in run.case.laws]
    assert result.raise_for_status() is result
