"""The nearest of several answers: closed forms for quadratic equations, and further starts for other laws."""

from __future__ import annotations

import pytest
import torch

import snapfm
from snapfm import Bounds, Equality, Inequality, Projector, Status
from snapfm.errors import SettingError, UnsupportedLaw
from snapfm.solve.nearest import Nearest

WEIGHTS = torch.tensor([1.0, 4.0, 0.25], dtype=torch.float64)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthogonal(u, p):
    return u.mT @ u - torch.eye(u.shape[-1], dtype=u.dtype)


def upper(u, p):
    i, j = torch.triu_indices(u.shape[-1], u.shape[-1])
    return orthogonal(u, p)[..., i, j]


def polar(u):
    left, _, right = torch.linalg.svd(u, full_matrices=False)
    return left @ right


def distances(u, u_hat):
    return (u - u_hat).flatten(1).norm(dim=1)


def prepared(law, shape, params=None, **settings):
    return Projector([Equality("law", law)], shape, params, **settings)


def nearest_on_hyperbola(u_hat, a):
    """Try every root of the quartic of the points of u v = a where (u, v) − û is along (v, u)."""
    best = []
    for x, y in u_hat.reshape(-1, 2).tolist():
        companion = torch.zeros(4, 4, dtype=torch.float64)
        companion[1:, :3] = torch.eye(3)
        companion[:, 3] = -torch.tensor([-a * a, a * y, 0.0, -x])  # u⁴ − x u³ + a y u − a² = 0
        roots = torch.linalg.eigvals(companion)
        real = roots.real[roots.imag.abs() < 1e-6]
        best.append(((real - x) ** 2 + (a / real - y) ** 2).min())
    return torch.stack(best).reshape(u_hat.shape[:-1])


CLOSED_FORMS = {
    "frames": (upper, (16, 3, 3), polar),
    "frames, rows that repeat each other": (orthogonal, (2, 3, 3), polar),
    "two columns": (upper, (5, 3, 2), polar),
    "rotations of five channels": (upper, (5, 5), polar),
    "signs": (lambda u, p: u**2 - 2.0, (20,), lambda u: 2.0**0.5 * u.sign()),
    "circles": (
        lambda u, p: ((u - 0.5) ** 2).sum(1) - 1.0, (7, 2), lambda u: 0.5 + (u - 0.5) / (u - 0.5).norm(dim=-1)[..., None],
    ),
    "moduli": (lambda u, p: (u**2).sum(0) - 1.0, (2, 9), lambda u: u / u.norm(dim=1, keepdim=True)),
    "a squared total": (
        lambda u, p: u.sum(1) ** 2 - 1.0, (3, 6), lambda u: u + (u.sum(-1).sign() - u.sum(-1))[..., None] / 6,
    ),
}  # fmt: skip


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_is_the_closed_form(name, scale):
    law, shape, form = CLOSED_FORMS[name]
    u_hat = scale * randn(12, *shape, seed=len(name))
    project = prepared(law, shape)
    result = project(u_hat).raise_for_status()
    assert result.u.allclose(form(u_hat), rtol=0.0, atol=1e-6)
    assert project.move(u_hat).u.allclose(result.u, atol=1e-5)  # flow steps get the nearest branch too


@pytest.mark.parametrize("a", [1.0, -0.3])
def test_takes_the_nearer_branch_of_a_hyperbola(a):
    u_hat = randn(40, 8, 2)
    result = prepared(lambda u, p: u[:, 0] * u[:, 1] - a, (8, 2))(u_hat).raise_for_status()
    apart = ((result.u - u_hat) ** 2).sum(-1)
    assert apart.allclose(nearest_on_hyperbola(u_hat, a), rtol=1e-7)


@pytest.mark.parametrize("weights", ["in the law", "params"])
def test_quadratic_forms_are_proven_by_a_convex_lagrangian(weights):
    """An ellipsoid whose û is inside its evolute: with W ⪰ 0 no lawful field is nearer, whatever else is tried."""
    params = {"w": WEIGHTS[None]} if weights == "params" else None
    project = prepared(lambda u, p: ((p["w"] if p else WEIGHTS) * u**2).sum(-1) - 1.0, (5, 3), params)
    u_hat = 0.1 * randn(40, 5, 3)
    result = project(u_hat, params).raise_for_status()
    curvature = 1.0 + 2.0 * WEIGHTS * result.multipliers["law"][..., None]
    assert (curvature > -1e-6).all()
    assert (result.u - u_hat + result.multipliers["law"][..., None] * 2.0 * WEIGHTS * result.u).abs().max() < 1e-8


def test_the_dual_leaves_a_tie_to_any_of_its_answers():
    result = prepared(lambda u, p: u**2 - 3.0, (4,))(torch.zeros(2, 4, dtype=torch.float64)).raise_for_status()
    assert result.u.abs().allclose(torch.tensor(3.0**0.5, dtype=torch.float64))


def test_units_of_fields_change_nothing():
    u_hat = randn(6, 4, 3, 3)
    one = prepared(upper, (4, 3, 3))(u_hat).u
    for size in (2.0**20, 2.0**-20):
        square = size * size
        project = prepared(lambda u, p, s=square: upper(u / s**0.5, p) * s, (4, 3, 3), tolerance=1e-8 * square)
        assert (project(size * u_hat).u / size).allclose(one, atol=1e-6)


def test_with_eliminated_unknowns_and_other_rows():
    """Signs whose sum is given with two free unknowns: all combinations are enumerated."""
    project = prepared(lambda u, p: torch.cat([u[:5] ** 2 - 1.0, u.sum()[None] - 2.0]), (7,))
    u_hat = randn(30, 7)
    result = project(u_hat).raise_for_status()
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 5)
    rest = (2.0 - signs.sum(1) - u_hat[:, None, 5:].sum(-1)) ** 2 / 2.0
    best = (((signs - u_hat[:, None, :5]) ** 2).sum(-1) + rest).min(dim=1).values.sqrt()
    assert (result.distance / best).max() < 1.25
    assert ((result.distance / best) < 1.0 + 1e-7).float().mean() > 0.8
    assert (project(u_hat, starts=24).distance <= result.distance * (1.0 + 1e-9)).all()


def test_same_bits_in_any_batch_and_a_broken_neighbor_does_no_harm():
    project = prepared(upper, (6, 3, 3))
    u_hat = randn(11, 6, 3, 3)
    for starts in (1, 3):
        whole = project(u_hat, starts=starts)
        some = project(u_hat[[2, 7]], starts=starts)
        assert torch.equal(some.u, whole.u[[2, 7]])
        assert torch.equal(some.iterations, whole.iterations[[2, 7]])
        broken = u_hat.clone()
        broken[3], broken[4] = torch.nan, 1e200
        beside = project(broken, starts=starts)
        others = [0, 1, 2, *range(5, 11)]
        assert torch.equal(beside.u[others], whole.u[others])
        assert beside.status[3] == Status.NONFINITE


def test_gradients_are_those_of_the_branch():
    u_hat = randn(3, 2, 3, 3).requires_grad_()
    project = prepared(upper, (2, 3, 3))
    weight = randn(3, 2, 3, 3, seed=5)
    (mine,) = torch.autograd.grad((project(u_hat).u * weight).sum(), u_hat)
    (form,) = torch.autograd.grad((polar(u_hat) * weight).sum(), u_hat)
    assert mine.allclose(form, atol=1e-6)


def test_is_prepared_only_where_it_proves_something():
    def nearest(laws, shape):
        return [part.nearest for part in Projector(laws, shape).method.plan.systems]

    square = Equality("square", lambda u, p: u**2 - 1.0)
    assert isinstance(nearest([square], (3,))[0], Nearest)
    assert nearest([Equality("cubic", lambda u, p: u**3 - u)], (3,)) == [None]
    assert nearest([Inequality("disk", lambda u, p: u[0] * u[1] - 1.0)], (2,)) == [None]
    assert nearest([square, Bounds(lower=-3.0)], (3,)) == [None]
    large = Equality(
        "large", lambda u, p: (u.mT @ u - torch.eye(20, dtype=u.dtype))[torch.triu_indices(20, 20).unbind()]
    )
    assert nearest([large], (20, 20)) == [None]


def test_a_small_limit_is_kept():
    result = prepared(upper, (4, 3, 3), limit=60)(0.05 * randn(8, 4, 3, 3))
    assert result.iterations.max() <= 60


def test_starts_find_the_nearest_root():
    """Roots of u³ = 2u: each unknown has three answers of its own, and parts are chosen one by one."""
    project = prepared(lambda u, p: u**3 - 2.0 * u, (10,))
    u_hat = randn(20, 10)
    roots = torch.tensor([-(2.0**0.5), 0.0, 2.0**0.5], dtype=torch.float64)
    best = (u_hat[..., None] - roots).abs().min(dim=-1).values.norm(dim=1)
    once, several = project(u_hat), project(u_hat, starts=8)
    assert (once.distance > best * (1.0 + 1e-6)).any()
    assert several.raise_for_status().distance.allclose(best, rtol=1e-6)
    assert (several.iterations > once.iterations).all()
    assert torch.equal(several.u, project(u_hat, starts=8).u)


@pytest.mark.parametrize("law", ["sine", "kink", "inequality"])
def test_starts_never_lead_farther(law):
    laws = {
        "sine": Equality("law", lambda u, p: torch.sin(3.0 * u[1:]) + u[:-1] - 0.5),
        "kink": Equality("law", lambda u, p: (u[1:].abs() + u[:-1] ** 2) - 1.0),
        "inequality": Inequality("law", lambda u, p: 1.0 - u[1:] * u[:-1] + 0.1 * u[1:] ** 4),
    }
    project, u_hat = Projector([laws[law]], (6,)), randn(16, 6, seed=4)
    once, several = project(u_hat), project(u_hat, starts=6)
    assert (several.converged >= once.converged).all()
    kept = once.converged
    assert (several.distance <= once.distance * (1.0 + 1e-9))[kept].all()
    assert several.distance[kept].sum() < once.distance[kept].sum()
    again = project(several.u, warm=several)
    assert again.converged[several.converged].all()
    assert (again.distance[several.converged] < 1e-6).all()


def test_starts_are_checked():
    project = prepared(lambda u, p: u**2 - 1.0, (3,))
    u_hat = randn(2, 3)
    with pytest.raises(
        SettingError, match=r"starts=… expects a whole number of starts, at least 1; got 0\. The default is 1"
    ):
        project(u_hat, starts=0)
    with pytest.raises(SettingError, match=r"starts=… expects 1 beside a metric with directions; got 2\. Leave starts"):
        project(u_hat, starts=2, metric=snapfm.Metric(1.0, torch.ones(1, 3), torch.ones(1)))


def test_starts_need_a_pattern(monkeypatch):
    monkeypatch.setattr("snapfm.project.projector.LARGEST", 1.0)
    project = prepared(lambda u, p: u[1:] * u[:-1] - 1.0, (16,))
    with pytest.raises(UnsupportedLaw, match=r"starts=… expects laws with a sparse Jacobian"):
        project(randn(2, 16), starts=2)
