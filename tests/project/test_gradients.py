"""Gradients through a projection: in the field, in params, shared or per sample, with redundant rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pytest
import torch
from torch import Tensor

from snapfm import Equality, Projector

EPS = torch.finfo(torch.float64).eps
STEP = 1e-6  # of gradcheck's differences; their rounding is that of one projection over the step
TOLERANCE = 1e-13  # differences see what a looser one leaves, divided by the step
DIFFERENCES = {"eps": STEP, "atol": 100 * EPS / STEP, "rtol": STEP, "fast_mode": True}
SENSORS = torch.randn(3, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    name: str
    shape: tuple[int, ...]
    laws: tuple[Equality, ...]
    params: dict[str, tuple[int, ...]]

    @cached_property
    def project(self) -> Projector:
        return Projector(self.laws, self.shape, self.draw(1), tolerance=TOLERANCE)

    def draw(self, count: int) -> dict[str, Tensor]:
        return {name: randn(count, *shape, seed=10 + i) for i, (name, shape) in enumerate(self.params.items())}


CASES = [
    Case(
        "initial and mass",
        (4, 3),
        (
            Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
            Equality("mass", lambda u, p: u[:-1, 1:].sum(0) - p["u0"][:-1].sum()),
        ),
        {"u0": (4,)},
    ),
    Case(
        "sensors, params inside functions of their own",
        (3, 4),
        (Equality("sensors", lambda u, p: SENSORS @ u.flatten() - p["gain"].exp() * p["seen"] ** 2),),
        {"seen": (3,), "gain": ()},
    ),
    Case(
        "redundant rows",
        (3, 4),
        (
            Equality("columns", lambda u, p: u.sum(0) - p["c"]),
            Equality("twice", lambda u, p: 2 * u.sum(0)[:2] - 2 * p["c"][:2]),
            Equality("first", lambda u, p: u[0, 0] - p["c"][0] * p["d"]),
            Equality("all", lambda u, p: u.sum() - p["c"].sum()),
        ),
        {"c": (4,), "d": ()},
    ),
]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def as_function(project: Projector, names: list[str]) -> Callable[..., Tensor]:
    return lambda u_hat, *values: project(u_hat, dict(zip(names, values))).u


def dense(case: Case, params: dict[str, Tensor]) -> Tensor:
    """Stack the laws' Jacobian (m, n) for one sample."""

    def rows(u: Tensor) -> Tensor:
        return torch.cat([law.residual(u, params).reshape(-1) for law in case.laws])

    return torch.func.jacrev(rows)(torch.zeros(case.shape, dtype=torch.float64)).flatten(1)


@pytest.mark.parametrize("leading", [1, 3])
def test_gradients_agree_with_differences(case: Case, leading: int):
    u_hat = randn(3, *case.shape, seed=2).requires_grad_()
    values = [value.requires_grad_() for value in case.draw(leading).values()]
    # Differences move one param alone, which may contradict redundant rows; the answer still obeys the kept ones.
    assert torch.autograd.gradcheck(as_function(case.project, list(case.params)), (u_hat, *values), **DIFFERENCES)


def test_gradients_in_params_alone(case: Case):
    values = [value.requires_grad_() for value in case.draw(2).values()]
    function = as_function(case.project, list(case.params))
    assert torch.autograd.gradcheck(function, (randn(2, *case.shape), *values), **DIFFERENCES)


def test_the_gradient_in_the_field_is_projected_onto_what_the_laws_leave_free(case: Case):
    u_hat, weight = randn(3, *case.shape, seed=3).requires_grad_(), randn(3, *case.shape, seed=4)
    params = case.draw(3)
    (case.project(u_hat, params).u * weight).sum().backward()
    for i in range(3):
        matrix = dense(case, {name: value[i] for name, value in params.items()})
        flat = weight[i].flatten()
        expected = flat - torch.linalg.pinv(matrix) @ (matrix @ flat)
        singular = torch.linalg.svdvals(matrix)
        cond = float(singular[0] / singular[int(torch.linalg.matrix_rank(matrix)) - 1])
        bound = sum(matrix.shape) * EPS * cond**2 * float(flat.abs().max())
        assert float((u_hat.grad[i].flatten() - expected).abs().max()) <= bound


def test_the_gradient_of_shared_params_is_the_sum_over_samples(case: Case):
    project, u_hat = case.project, randn(3, *case.shape, seed=5)
    shared = {name: value.requires_grad_() for name, value in case.draw(1).items()}
    each = {name: value.detach().repeat(3, *[1] * (value.dim() - 1)).requires_grad_() for name, value in shared.items()}
    weight = randn(3, *case.shape, seed=6)
    (project(u_hat, shared).u * weight).sum().backward()
    (project(u_hat, each).u * weight).sum().backward()
    for name, value in shared.items():
        total = each[name].grad.sum(0, keepdim=True)
        assert value.grad.shape == value.shape
        assert torch.allclose(value.grad, total, rtol=0.0, atol=100 * EPS * float(each[name].grad.abs().sum())), name


def test_float32_gradients_are_the_float64_ones_rounded(case: Case):
    project, weight = case.project, randn(2, *case.shape, seed=7).float()
    single = randn(2, *case.shape, seed=8).float().requires_grad_()
    params = {name: value.float().requires_grad_() for name, value in case.draw(2).items()}
    (project(single, params).u * weight).sum().backward()
    wide = single.detach().double().requires_grad_()
    wide_params = {name: value.detach().double().requires_grad_() for name, value in params.items()}
    (project(wide, wide_params).u * weight.double()).sum().backward()
    assert single.grad.dtype == torch.float32
    assert torch.equal(single.grad, wide.grad.float())
    for name, value in params.items():
        assert value.grad.dtype == torch.float32
        assert torch.equal(value.grad, wide_params[name].grad.float()), name


def test_the_value_is_the_same_with_and_without_a_graph(case: Case):
    project, u_hat, params = case.project, randn(2, *case.shape), case.draw(2)
    plain = project(u_hat, params).u
    assert torch.equal(project(u_hat.clone().requires_grad_(), params).u.detach(), plain)


def test_there_is_no_graph_where_none_is_wanted(case: Case):
    project, u_hat, params = case.project, randn(2, *case.shape).requires_grad_(), case.draw(2)
    assert project(u_hat, params).u.requires_grad
    assert not project(u_hat.detach(), params).u.requires_grad
    with torch.no_grad():
        assert not project(u_hat, params).u.requires_grad
    with torch.inference_mode():
        assert not project(u_hat, params).u.requires_grad


def test_evidence_carries_no_graph():
    result = CASES[0].project(randn(2, 4, 3).requires_grad_(), CASES[0].draw(2))
    evidence = [result.violation, result.stationarity, result.distance, *result.multipliers.values()]
    assert not any(value.requires_grad for value in [*evidence, *result.by_law.values()])


@pytest.mark.parametrize("leading", [1, 3])
def test_a_nonfinite_sample_leaves_the_gradients_of_the_others_alone(leading: int):
    case = CASES[0]
    project, rest = case.project, [0, 2]
    u_hat = randn(3, *case.shape, seed=9)
    params = case.draw(leading)
    u_hat[1, 2, 1] = float("nan")
    u_hat.requires_grad_()
    params["u0"].requires_grad_()
    (project(u_hat, params).u[rest] ** 2).sum().backward()

    clean = u_hat.detach()[rest].requires_grad_()
    mine = {"u0": params["u0"].detach()[rest if leading == 3 else [0]].requires_grad_()}
    (project(clean, mine).u ** 2).sum().backward()
    assert torch.equal(u_hat.grad[rest], clean.grad)
    assert torch.equal(params["u0"].grad[rest if leading == 3 else [0]], mine["u0"].grad)


def test_a_second_derivative_is_refused_rather_than_left_out():
    # A gradient penalty needs ∂/∂û of the gradient. A backward without its own graph would silently drop that term.
    u_hat = randn(2, 4, 3).requires_grad_()
    loss = (CASES[0].project(u_hat, CASES[0].draw(2)).u ** 2).sum()
    (slope,) = torch.autograd.grad(loss, u_hat, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (slope**2).sum().backward()


def test_the_answer_may_be_written_to_like_any_other_tensor():
    u_hat = randn(2, 4, 3).requires_grad_()
    project, params = CASES[0].project, CASES[0].draw(2)
    (expected,) = torch.autograd.grad((project(u_hat, params).u * 2).sum(), u_hat)
    u = project(u_hat, params).u
    u *= 2
    (found,) = torch.autograd.grad(u.sum(), u_hat)
    assert torch.equal(found, expected)


def test_a_projection_is_a_layer_that_trains():
    # A linear network learns to draw sine waves; the projection in front of the loss keeps every one of them lawful.
    case = CASES[0]
    project, params = case.project, case.draw(8)
    torch.manual_seed(0)
    network = torch.nn.Linear(4, 12, dtype=torch.float64)
    target = project(randn(8, 4, 3, seed=12), params).u
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        result = project(network(params["u0"]).reshape(8, 4, 3), params)
        loss = ((result.u - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        assert result.converged.all()
    assert losses[-1] < 0.5 * losses[0]
    assert all(later <= earlier for earlier, later in itertools.pairwise(losses))  # a convex loss and a small step
