"""Projections under torch.func and forward-mode differentiation, against the plain batched call and reverse mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from snapfm import Bounds, Equality, Inequality, Metric, Projector
from snapfm.adapters import Normalized
from snapfm.errors import SnapfmError, UnsupportedLaw

SHAPE = (3, 4)
SLACK = 1e-9  # of derivatives of order one, each from a linear system solved to 1e-13
LAWS = {
    "affine": [
        Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
        Equality("mass", lambda u, p: u[:, 1:].sum(0) - p["u0"].sum()),
    ],
    "curved": [
        Equality("energy", lambda u, p: (u**2).sum(0) - 1.0 - (p["u0"] ** 2).sum()),
        Inequality("decay", lambda u, p: u[0, 1:] - u[0, :-1]),
        Bounds(lower=-2.0, upper=2.0),
    ],
}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(params=LAWS, scope="module")
def project(request: pytest.FixtureRequest) -> Projector:
    return Projector(LAWS[request.param], SHAPE, {"u0": torch.ones(1, 3, dtype=torch.float64)})


@pytest.fixture
def u() -> Tensor:
    return torch.randn(5, *SHAPE, generator=seeded(0), dtype=torch.float64)


@pytest.fixture
def u0() -> Tensor:
    return 1.0 + 0.1 * torch.randn(5, 3, generator=seeded(1), dtype=torch.float64)


WEIGHT = torch.linspace(-1.0, 2.0, 12, dtype=torch.float64).reshape(SHAPE)


def loss(project: Projector, u: Tensor, u0: Tensor) -> Tensor:
    """Give a number that depends on every point of the answer, and not linearly."""
    answer = project(u, {"u0": u0}).u
    return (WEIGHT * answer + 0.5 * answer**2).sum()


def reverse(project: Projector, u: Tensor, u0: Tensor) -> tuple[Tensor, Tensor]:
    """Differentiate in the ordinary way."""
    a, b = u.clone().requires_grad_(), u0.clone().requires_grad_()
    found = torch.autograd.grad(loss(project, a, b), (a, b))
    return found[0], found[1]


def close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(torch.allclose(a, b, rtol=SLACK, atol=SLACK))


def test_vmap_gives_what_a_batch_gives(project: Projector, u: Tensor, u0: Tensor):
    plain = project(u, {"u0": u0})

    def one(field: Tensor, first: Tensor) -> tuple[Tensor, ...]:
        found = project(field[None], {"u0": first[None]})
        return found.u[0], found.status[0], found.violation[0], found.multipliers[project.laws[0].name][0]

    fields, status, violation, multipliers = vmap(one)(u, u0)
    assert torch.equal(fields, plain.u)
    assert torch.equal(status, plain.status)
    assert torch.equal(violation <= 1e-8, plain.violation <= 1e-8)
    assert torch.equal(multipliers, plain.multipliers[project.laws[0].name])


def test_vmap_over_params_alone_and_over_another_axis(project: Projector, u: Tensor, u0: Tensor):
    shared = vmap(lambda first: project(u[:1], {"u0": first[None]}).u[0])(u0)
    assert torch.equal(shared, project(u[:1].expand(5, *SHAPE), {"u0": u0}).u)
    last = vmap(lambda field: project(field[None], {"u0": u0[:1]}).u[0], in_dims=2, out_dims=1)(u.movedim(0, 2))
    assert torch.equal(last.movedim(1, 0), project(u, {"u0": u0[:1]}).u)


def test_vmap_of_batches_and_of_vmap(project: Projector, u: Tensor, u0: Tensor):
    plain = project(u[:4], {"u0": u0[:4]}).u.reshape(2, 2, *SHAPE)
    pairs, firsts = u[:4].reshape(2, 2, *SHAPE), u0[:4].reshape(2, 2, 3)
    assert torch.equal(vmap(lambda a, b: project(a, {"u0": b}).u)(pairs, firsts), plain)
    twice = vmap(vmap(lambda a, b: project(a[None], {"u0": b[None]}).u[0]))(pairs, firsts)
    assert torch.equal(twice, plain)


def test_grad_and_vjp_are_those_of_backward(project: Projector, u: Tensor, u0: Tensor):
    in_u, in_params = reverse(project, u, u0)
    found = grad(lambda a, b: loss(project, a, b), argnums=(0, 1))(u, u0)
    assert close(found[0], in_u)
    assert close(found[1], in_params)
    value, pull = vjp(lambda a: loss(project, a, u0), u)
    assert close(value, loss(project, u, u0))
    assert close(pull(torch.ones_like(value))[0], in_u)


def test_the_gradient_in_shared_params_is_a_sum(project: Projector, u: Tensor, u0: Tensor):
    shared = u0[:1].clone().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(project, u, shared), shared)
    assert close(grad(lambda b: loss(project, u, b))(u0[:1]), wanted)


def test_per_sample_gradients_by_vmap_of_grad(project: Projector, u: Tensor, u0: Tensor):
    in_u, in_params = reverse(project, u, u0)
    each = vmap(grad(lambda a, b: loss(project, a[None], b[None]), argnums=(0, 1)))(u, u0)
    assert close(each[0], in_u)
    assert close(each[1], in_params)


def test_forward_and_reverse_jacobians_agree_and_are_projections(project: Projector, u: Tensor, u0: Tensor):
    def answer(field: Tensor) -> Tensor:
        return project(field[None], {"u0": u0[:1]}).u[0]

    forward, backward = (jacobian(answer)(u[0]).reshape(12, 12) for jacobian in (jacfwd, jacrev))
    assert close(forward, backward)
    assert close(forward, forward.T)  # u is the nearest field: du = P dû with a symmetric P
    in_params = jacrev(lambda first: project(u[:1], {"u0": first[None]}).u[0])(u0[0])
    step = 1e-6
    for place in range(3):
        shift = step * torch.eye(3, dtype=torch.float64)[place]
        there, back = (project(u[:1], {"u0": (u0[0] + sign * shift)[None]}).u[0] for sign in (1, -1))
        assert torch.allclose(in_params[..., place], (there - back) / (2 * step), atol=1e-5)


def test_a_jacobian_of_each_sample_is_told_from_one_of_all(project: Projector, u: Tensor, u0: Tensor):
    """Twelve gradients of each of twelve vmapped samples: equal sizes, and both folded into one batch."""
    many = torch.randn(12, *SHAPE, generator=seeded(2), dtype=torch.float64)

    def jacobian(field: Tensor) -> Tensor:
        return jacrev(lambda one: project(one[None], {"u0": u0[:1]}).u[0])(field)

    together = vmap(jacobian)(many)
    for i in (0, 7):
        assert close(together[i], jacobian(many[i]))


def test_jvp_is_a_difference_quotient(project: Projector, u: Tensor, u0: Tensor):
    along = torch.randn(u.shape, generator=seeded(3), dtype=torch.float64)
    value, moved = jvp(lambda a: project(a, {"u0": u0}).u, (u,), (along,))
    assert torch.equal(value, project(u, {"u0": u0}).u)
    step = 1e-6
    there, back = (project(u + sign * step * along, {"u0": u0}).u for sign in (1, -1))
    assert torch.allclose(moved, (there - back) / (2 * step), atol=1e-5)
    with forward_ad.dual_level():
        dual = project(forward_ad.make_dual(u, along), {"u0": u0}).u
        assert close(forward_ad.unpack_dual(dual).tangent, moved)


def test_fields_in_single_precision_stay_so(project: Projector, u: Tensor, u0: Tensor):
    found = grad(lambda a: loss(project, a, u0.float()))(u.float())
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), reverse(project, u.float().double(), u0.float().double())[0], atol=1e-4)


def test_a_sample_that_fails_fails_alone(project: Projector, u: Tensor, u0: Tensor):
    u[1] = torch.nan
    fields, good = vmap(
        lambda a, b: (lambda found: (found.u[0], found.converged[0]))(project(a[None], {"u0": b[None]}))
    )(u, u0)
    assert good.tolist() == [True, False, True, True, True]
    assert torch.equal(fields[[0, 2, 3, 4]], project(u[[0, 2, 3, 4]], {"u0": u0[[0, 2, 3, 4]]}).u)


def test_projectors_in_a_models_units_too(u: Tensor, u0: Tensor):
    units = Normalized(lambda u, tau: u, 0.5, torch.tensor([[1.0], [2.0], [3.0]]))
    project = units.projector(LAWS["affine"], SHAPE, {"u0": u0[:1]})
    found = vmap(lambda a, b: project(a[None], {"u0": b[None]}).u[0])(u, u0)
    assert torch.allclose(found, project(u, {"u0": u0}).u, atol=1e-12)
    assert close(grad(lambda a: loss(project, a, u0))(u), reverse(project, u, u0)[0])


# What is refused, and what to use instead.


def refused(act: Any) -> str:
    with pytest.raises(UnsupportedLaw) as caught:
        act()
    assert isinstance(caught.value, SnapfmError)
    return str(caught.value)


def test_second_derivatives_are_refused(project: Projector, u: Tensor, u0: Tensor):
    assert "expects to be differentiated once" in refused(lambda: hessian(lambda a: loss(project, a, u0))(u))


def test_forward_derivatives_in_params_are_refused(project: Projector, u: Tensor, u0: Tensor):
    told = refused(lambda: jvp(lambda b: project(u, {"u0": b}).u, (u0,), (torch.ones_like(u0),)))
    assert "expects tangents in u_hat alone; got one in params. Use reverse mode" in told


def test_a_warm_start_inside_is_refused(project: Projector, u: Tensor, u0: Tensor):
    warm = project(u, {"u0": u0})
    told = refused(lambda: grad(lambda a: project(a, {"u0": u0}, warm=warm).u.sum())(u))
    assert "expects no warm start; got one. Leave warm out" in told


def test_check_and_move_inside_say_what_to_use(project: Projector, u: Tensor, u0: Tensor):
    for name, method in (("check(u)", project.check), ("move(u_hat)", project.move)):
        told = refused(lambda method=method: vmap(lambda a: method(a[None], {"u0": u0[:1]}))(u))
        assert told.startswith(f"project.{name} expects plain tensors; got one inside torch.func")


def test_a_metric_with_directions_can_be_vmapped_and_is_not_differentiated(u: Tensor, u0: Tensor):
    metric = Metric(
        torch.linspace(0.5, 2.0, 12, dtype=torch.float64).reshape(SHAPE), torch.ones(1, *SHAPE), torch.ones(1)
    )
    project = Projector(LAWS["affine"], SHAPE, {"u0": u0[:1]}, metric=metric)
    found = vmap(lambda a, b: project(a[None], {"u0": b[None]}).u[0])(u, u0)
    assert torch.allclose(found, project(u, {"u0": u0}).u, atol=1e-12)
    assert "expects not to be differentiated" in refused(lambda: grad(lambda a: loss(project, a, u0))(u))


def test_a_field_without_its_batch_axis_is_told_so(project: Projector, u: Tensor, u0: Tensor):
    with pytest.raises(SnapfmError, match=r"expects \(b, 3, 4\); got \(3, 4\)\. Add the batch axis: u_hat\[None\]"):
        vmap(lambda a: project(a, {"u0": u0[:1]}).u)(u)
