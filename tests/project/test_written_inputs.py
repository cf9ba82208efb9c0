"""What a caller writes to its own tensors after a call, or to a result, changes no later call and no gradient."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Metric, Oracle, Projector
from snapfm.adapters import Normalized
from snapfm.compile import TooDense, compile_laws

SHAPE = (3, 5)
LAWS = {
    "affine": [Equality("mass", lambda u, p: u.sum(0) - p["m"])],
    "curved": [Equality("energy", lambda u, p: u.square().sum(0) - p["m"].square() - 1.0)],
    "inequality": [Inequality("peak", lambda u, p: u.square().sum(0) - p["m"].square())],
    "on kinks": [Inequality("sizes", lambda u, p: u.abs().sum(0) - p["m"])],
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def example(count: int = 4) -> dict[str, Tensor]:
    return {"m": 0.5 + draw(count, 5, seed=3).abs()}


def write(tensor: Tensor, how: str) -> None:
    """Write by torch, or by numpy, which leaves no trace in torch's version of a tensor."""
    if how == "torch":
        with torch.no_grad():
            tensor.add_(1.0)
    else:
        tensor.detach().numpy()[...] += 1.0


both = pytest.mark.parametrize("how", ["torch", "numpy"])


@both
@pytest.mark.parametrize("name", LAWS)
def test_params_that_are_written_to_are_not_mistaken_for_their_old_values(name: str, how: str):
    project, u_hat, params = Projector(LAWS[name], SHAPE, example(1)), draw(4, *SHAPE), example()
    first = project(u_hat, params)
    write(params["m"], how)
    again = project(u_hat, example())
    assert again.converged.all()
    for one in ("u", "violation", "status"):
        assert torch.equal(getattr(again, one), getattr(first, one))
    assert torch.equal(project.check(first.u, example()).violation, first.violation)
    other = project(u_hat, params)
    assert other.converged.all()
    assert not torch.equal(other.u, first.u)


@both
@pytest.mark.parametrize("leading", [1, 4])
@pytest.mark.parametrize("name", LAWS)
def test_gradients_are_those_of_the_call_whatever_is_written_later(name: str, leading: int, how: str):
    project = Projector(LAWS[name], SHAPE, example(1))

    def gradients(written: bool) -> list[Tensor]:
        u_hat, m = draw(4, *SHAPE), example(leading)["m"]
        given, asked = u_hat.clone().requires_grad_(), m.clone().requires_grad_()
        found = project(given, {"m": asked})
        loss = (found.u * draw(4, *SHAPE, seed=9)).sum()
        if written:
            for tensor in (given, asked, *found.multipliers.values()):
                write(tensor, how)
            found.generalized[:] = False
        return list(torch.autograd.grad(loss, [given, asked]))

    for found, expected in zip(gradients(True), gradients(False)):
        assert torch.equal(found, expected)


@both
def test_matrix_free_gradients_too(how: str, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise TooDense("law expects fewer entries", 10**9)

    monkeypatch.setattr("snapfm.project.projector.compile_laws", refuse)
    test_gradients_are_those_of_the_call_whatever_is_written_later("curved", 4, how)


def test_a_gradient_of_no_samples_is_zero():
    m = example(1)["m"].requires_grad_()
    Projector(LAWS["affine"], SHAPE, example(1))(draw(0, *SHAPE), {"m": m}).u.sum().backward()
    assert m.grad is not None
    assert not m.grad.any()


@both
def test_a_field_may_be_written_to_while_its_projection_is_kept(how: str):
    project, u_hat = Projector(LAWS["curved"], SHAPE, example(1)), draw(4, *SHAPE)
    first = project(u_hat, example())
    u, moved = first.u.clone(), project.move(u_hat, example())
    write(u_hat, how)
    assert torch.equal(first.u, u)
    write(moved.u, how)
    again = project(draw(4, *SHAPE), example(), warm=moved)
    assert again.converged.all()
    torch.testing.assert_close(again.u, u, rtol=0.0, atol=1e-8)


@both
def test_without_laws_the_answer_is_a_tensor_of_its_own(how: str):
    u_hat = draw(4, *SHAPE)
    project = Projector([], SHAPE)
    for found in (project(u_hat).u, project.move(u_hat).u):
        write(found, how)
    assert torch.equal(u_hat, draw(4, *SHAPE))


@both
def test_the_example_is_copied(how: str):
    params = example(2)
    project = Projector(LAWS["curved"], SHAPE, params)
    compiled = compile_laws(LAWS["curved"], SHAPE, params)
    write(params["m"], how)
    assert torch.equal(project.example["m"], example(2)["m"][:1].expand(2, 5))
    assert torch.equal(compiled.example[1]["m"], example(2)["m"][0])


@both
def test_bounds_stay_as_they_were_made(how: str):
    upper = torch.full(SHAPE, 0.5, dtype=torch.float64)
    bounds = Bounds(upper=upper)
    project = Projector([Equality("mass", lambda u, p: u.sum() - 1.0), bounds], SHAPE)
    write(upper, how)
    given = Metric(0.1 + draw(*SHAPE).abs())  # its projector is prepared at the first call
    for found in (project(draw(4, *SHAPE)), project(draw(4, *SHAPE), metric=given)):
        assert float(found.u.max()) <= 0.5 + 1e-8
    assert float(torch.as_tensor(bounds.upper).max()) == 0.5


def test_an_oracle_stays_as_it_was_made():
    limit, rows, columns = np.array([1.0, 2.0]), [0, 1], [0, 1]
    law = Oracle("first two", lambda u, p: u[:2], lambda u, p: np.ones(2), upper=limit, lower=None,
                 pattern=(rows, columns), hessian_pattern=([], []))  # fmt: skip
    limit += 1.0
    rows[0] = 1
    assert np.asarray(law.upper).tolist() == [1.0, 2.0]
    assert law.pattern == ([0, 1], [0, 1])
    found = Projector([law], (3,))(torch.full((1, 3), 5.0, dtype=torch.float64))
    torch.testing.assert_close(found.u, torch.tensor([[1.0, 2.0, 5.0]], dtype=torch.float64))


@both
def test_a_metric_keeps_its_variances(how: str):
    def made() -> tuple[Tensor, Tensor, Metric]:
        diagonal, variances = 0.1 + draw(*SHAPE).abs(), torch.eye(2, dtype=torch.float64)
        return diagonal, variances, Metric(diagonal, draw(2, *SHAPE, seed=4), variances)

    project, u_hat = Projector(LAWS["affine"], SHAPE, example(1)), draw(4, *SHAPE)
    expected = project(u_hat, example(), metric=made()[2]).u
    *tensors, metric = made()
    assert metric.level > 0.0  # computed once, and kept
    for tensor in tensors:
        write(tensor, how)
    assert torch.equal(project(u_hat, example(), metric=metric).u, expected)


@both
def test_a_projector_in_units_keeps_mean_and_std(how: str):
    mean, std = draw(*SHAPE), 1.0 + draw(*SHAPE, seed=1).abs()
    project = Normalized(lambda u, tau: u, mean, std).projector(LAWS["affine"], SHAPE, example(1))
    u_hat = draw(4, *SHAPE, seed=2)
    expected = project(u_hat, example()).u
    write(mean, how)
    write(std, how)
    assert torch.equal(project(u_hat, example()).u, expected)


def test_what_travels_is_what_was_given():
    params = example(2)
    project = Projector(TRAVELS, SHAPE, params)
    write(params["m"], "torch")
    assert torch.equal(pickle.loads(pickle.dumps(project)).example["m"], example(2)["m"][:1])


def _mass(u: Tensor, p: dict[str, Tensor]) -> Tensor:
    return u.sum(0) - p["m"]


TRAVELS = [Equality("mass", _mass)]
