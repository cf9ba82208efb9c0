"""A law on batches: recorded or not, params in any order, with samples for which it raises: the same values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import snapfm
from snapfm.compile import CompiledLaws, compile_laws
from snapfm.compile.trace.batched import each, isolated
from snapfm.compile.trace.recording import Unrecordable, record

pytestmark = pytest.mark.filterwarnings("ignore::snapfm.errors.StructureWarning")
EYE = torch.eye(3, dtype=torch.float64)


def fields(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_params_may_come_in_any_order():
    law = snapfm.Equality("mixed", lambda u, p: p["b"] * u[0] - p["a"])
    first = {"a": torch.tensor([[1.0], [2.0]]).double(), "b": torch.tensor([[3.0], [5.0]]).double()}
    structure = compile_laws([law], (2, 1), first)
    u = torch.ones(2, 2, 1, dtype=torch.float64)
    expected = torch.tensor([[2.0], [3.0]], dtype=torch.float64)
    rotated = {"b": first["b"], "a": first["a"]}
    with torch.no_grad():  # the second call of a batch size records it, the third uses the record
        for params in (first, rotated, rotated, first):
            assert torch.equal(structure.residual(u, params), expected)


def test_many_batch_sizes_in_any_order_are_as_good_as_one():
    structure = compile_laws([snapfm.Equality("law", lambda u, p: torch.softmax(u, 0).cumsum(0)[:2] - 0.5)], (5,))
    u = fields(9, 5)
    expected = torch.stack([torch.softmax(one, 0).cumsum(0)[:2] - 0.5 for one in u])
    with torch.no_grad():
        for count in [*range(1, 10), *range(9, 0, -1), 3, 3, 7, 3]:
            assert torch.allclose(structure.residual(u[:count], {}), expected[:count], rtol=0, atol=1e-15)


# Records.


def test_a_record_does_the_same_with_other_values():
    constant = fields(3)

    def function(x: Tensor, y: Tensor) -> Tensor:
        parts = torch.split((x * constant).sin(), 1)
        parts[0].add_(1.0)  # in place, on a result of its own
        return torch.stack([parts[0], parts[2]]).sum(0) + torch.sort(y, 0)[0][:1]

    made = record(function, fields(3, seed=1), fields(3, seed=2))
    x, y = fields(3, seed=3), fields(3, seed=4)
    assert torch.equal(made(x, y), function(x, y))


def test_a_function_that_reads_a_value_is_not_recorded():
    with pytest.raises(Unrecordable, match="_local_scalar_dense"):
        record(lambda x: x * float(x.sum()), fields(3))


# Samples for which a law raises.


def inverse(field: Tensor) -> Tensor:
    return torch.linalg.inv(field)[0] - 0.3


@pytest.fixture
def structure() -> CompiledLaws:
    return compile_laws([snapfm.Equality("inverse", lambda u, p: inverse(u))], (3, 3))


def test_a_sample_that_raises_is_nan_and_harms_no_other(structure: CompiledLaws):
    u = fields(4, 3, 3) + 3 * EYE
    spoilt, others = u.clone(), [0, 2, 3]
    spoilt[1] = 1.0  # singular
    weight = fields(4, structure.rows, seed=1)
    with torch.no_grad():
        for _ in range(4):  # before, while and after the batch size is learnt
            clean, value = structure.residual(u, {}), structure.residual(spoilt, {})
            assert torch.allclose(value[others], clean[others], rtol=1e-14)
            assert value[1].isnan().all()
        clean, value = structure.jacobian(u, {}), structure.jacobian(spoilt, {})
        assert torch.allclose(value[others], clean[others], rtol=1e-13)
        assert value[1].isnan().all()
        clean, value = structure.hessian(u, {}, weight), structure.hessian(spoilt, {}, weight)
        assert np.allclose(clean[others], value[others], rtol=1e-13)
        assert np.isnan(value[1]).all()


def test_where_every_sample_raises_all_rows_are_nan(structure: CompiledLaws):
    u = torch.ones(3, 3, 3, dtype=torch.float64)
    with torch.no_grad():
        for _ in range(3):
            assert structure.residual(u, {}).isnan().all()
    assert structure.jacobian(u, {}).isnan().all()


def test_gradients_through_rows_pass_by_a_sample_that_raises(structure: CompiledLaws):
    u = fields(3, 3, 3) + 3 * EYE
    spoilt = u.clone()
    spoilt[1] = 1.0
    found = []
    for field in (u, spoilt):
        field.requires_grad_()
        structure.residual(field, {})[[0, 2]].square().sum().backward()
        found.append(field.grad[[0, 2]])
    assert torch.equal(found[0], found[1])


def test_a_function_that_raises_for_some_has_nan_in_their_place():
    numbers = torch.tensor([1, 0, 2])

    def over(i: int) -> Tensor:
        return torch.tensor([6 // int(numbers[i])])

    assert torch.allclose(each(over, 3), torch.tensor([[6.0], [torch.nan], [3.0]]).double(), equal_nan=True)
    with pytest.raises(ZeroDivisionError):
        each(lambda i: over(1), 2)
    assert each(over, 0).numel() == 0


def test_a_batch_that_cannot_be_worked_on_as_one_is_worked_on_one_by_one():
    numbers = torch.arange(4.0)

    def run(some: slice) -> Tensor:
        if some.stop - some.start > 1:
            raise RuntimeError("one at a time")
        if some.start == 2:
            raise ZeroDivisionError
        return numbers[some, None]

    assert torch.allclose(isolated(run, 4), torch.tensor([[0.0], [1.0], [torch.nan], [3.0]]), equal_nan=True)


def test_what_no_sample_survives_is_raised_and_what_is_no_arithmetic_too():
    def raising(kind: type[BaseException]):
        def run(some: slice) -> Tensor:
            raise kind

        return run

    for kind in (OverflowError, FloatingPointError, torch.linalg.LinAlgError, KeyboardInterrupt, TypeError):
        with pytest.raises(kind):
            isolated(raising(kind), 3)


# Derivatives that torch gets wrong in batches.


OPERATORS = {
    "solve": lambda a: torch.linalg.solve(a, a[0] + 1.0),
    "det": lambda a: torch.linalg.det(a)[None],
    "slogdet": lambda a: torch.linalg.slogdet(a)[1][None],
    "inv": lambda a: torch.linalg.inv(a),
    "eigvalsh": lambda a: torch.linalg.eigvalsh(a @ a.T),
    "cholesky": lambda a: torch.linalg.cholesky(a @ a.T + EYE),
    "cdist": lambda a: torch.cdist(a, torch.full((1, 3), 5.0, dtype=a.dtype)),
}


def slopes(function: Callable[[Tensor], Tensor], u: Tensor, step: float = 1e-6) -> Tensor:
    """Differences, one sample and one unknown at a time: (b, m, n)."""
    moves = step * torch.eye(u[0].numel(), dtype=u.dtype).reshape(-1, *u.shape[1:])
    rows = [[(function(one + move) - function(one - move)).flatten() / (2 * step) for move in moves] for one in u]
    return torch.stack([torch.stack(row, dim=1) for row in rows])


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("graded", [False, True])
def test_derivatives_of_a_batch_are_those_of_its_samples(name: str, graded: bool):
    structure = compile_laws([snapfm.Equality(name, lambda u, p: OPERATORS[name](u))], (3, 3))
    u = fields(4, 3, 3) + 2 * EYE
    with torch.set_grad_enabled(graded):
        dense = [structure.pattern.csr(values.numpy()).toarray() for values in structure.jacobian(u, {})]
        assert torch.allclose(torch.from_numpy(np.stack(dense)), slopes(OPERATORS[name], u), rtol=1e-6, atol=1e-6)
        if name == "cdist":
            return  # it has no second derivative
        weight = fields(4, structure.rows, seed=1)
        curvature = structure.hessian(u, {}, weight)
        alone = [structure.hessian(u[i : i + 1], {}, weight[i : i + 1])[0] for i in range(4)]
        assert np.allclose(curvature, np.stack(alone), rtol=1e-12, atol=1e-12)
