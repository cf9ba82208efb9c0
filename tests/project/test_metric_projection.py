"""Projection in a metric, against dense algebra and SciPy."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import snapfm
from snapfm import Bounds, Equality, Inequality, Metric, Projector
from snapfm.errors import ShapeError, UnsupportedLaw
from snapfm.project.linearized import LinearizedProjection

SHAPE = (5, 4)
SIZE = 20


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def metric(uniform=True, seed=1):
    diagonal = 0.05 if uniform else 0.02 + 0.1 * drawn(*SHAPE, seed=seed + 9).abs()
    return Metric(diagonal, drawn(3, *SHAPE, seed=seed), drawn(3, seed=seed + 1).abs())


def dense(metric):
    directions = metric.directions.flatten(1)
    diagonal = torch.as_tensor(metric.diagonal, dtype=torch.float64).expand(SHAPE).flatten()
    return (torch.diag(diagonal) + directions.T * metric.variances @ directions).numpy()


AFFINE = [
    Equality("initial", lambda u, p: u[:, 0] - p["u0"]),
    Equality("mass", lambda u, p: u.sum(0)[1:] - 1.0),
]
CURVED = [*AFFINE, Equality("energy", lambda u, p: (u[:, 1:] ** 2).sum(0)[:2] - 3.0)]


def params(count):
    return {"u0": 0.3 * drawn(count, 5, seed=5)}


@pytest.mark.parametrize("uniform", [True, False])
def test_affine_laws_equal_the_dense_formula(uniform):
    project, own = Projector(AFFINE, SHAPE, params(1)), metric(uniform)
    y, given = drawn(3, *SHAPE), params(3)
    found = project(y, given, metric=own)
    jacobian = torch.func.jacrev(lambda u: torch.cat([law.residual(u, {"u0": given["u0"][0]}) for law in AFFINE]))
    sigma = dense(own)
    for i in range(3):
        a = jacobian(y[i]).reshape(-1, SIZE).numpy()
        rest = np.concatenate([law.residual(y[i], {"u0": given["u0"][i]}).numpy() for law in AFFINE])
        reference = y[i].flatten().numpy() - sigma @ a.T @ np.linalg.solve(a @ sigma @ a.T, rest)
        np.testing.assert_allclose(found.u[i].flatten().numpy(), reference, atol=1e-9)
        away = reference - y[i].flatten().numpy()
        assert float(found.distance[i]) == pytest.approx(float(np.sqrt(away @ np.linalg.solve(sigma, away))), rel=1e-6)
    assert bool(found.converged.all())
    assert float(found.violation.max()) <= 1e-8


@pytest.mark.parametrize("uniform", [True, False])
def test_curved_laws_are_stationary_in_the_metric(uniform):
    project, own, given = Projector(CURVED, SHAPE, params(1)), metric(uniform), params(4)
    y = drawn(4, *SHAPE, seed=8)
    found = project(y, given, metric=own)
    assert bool(found.converged.all())
    sigma = dense(own)
    for i in range(4):

        def rows(u, i=i):
            return torch.cat([law.residual(u, {"u0": given["u0"][i]}) for law in CURVED])

        a = torch.func.jacrev(rows)(found.u[i]).reshape(-1, SIZE).numpy()
        force = np.linalg.solve(sigma, (found.u[i] - y[i]).flatten().numpy())
        multipliers = np.linalg.lstsq(a.T, -force, rcond=None)[0]
        rest = sigma @ (force + a.T @ multipliers)
        assert np.abs(rest).max() < 1e-6
        own_multipliers = torch.cat([found.multipliers[law.name][i] for law in CURVED]).numpy()
        np.testing.assert_allclose(a.T @ own_multipliers, -force, atol=1e-4 * np.abs(force).max())


@pytest.mark.parametrize("uniform", [True, False])
def test_inequalities_and_bounds_agree_with_scipy(uniform):
    laws = [
        Equality("mass", lambda u, p: u.sum(0) - 0.5),
        Inequality("rising", lambda u, p: u[:-1, 0] - u[1:, 0]),
        Bounds(lower=-0.4),
    ]
    project, own, y = Projector(laws, SHAPE), metric(uniform), drawn(2, *SHAPE, seed=3)
    found = project(y, metric=own)
    assert bool(found.converged.all())
    assert float(found.violation.max()) <= 1e-8
    inverse = np.linalg.inv(dense(own))
    for i in range(2):
        at = y[i].flatten().numpy()
        best = minimize(
            lambda u, at=at: 0.5 * (u - at) @ inverse @ (u - at), found.u[i].flatten().numpy(),
            jac=lambda u, at=at: inverse @ (u - at),
            bounds=[(-0.4, None)] * SIZE, method="SLSQP", options={"ftol": 1e-13, "maxiter": 500},
            constraints=[
                {"type": "eq", "fun": lambda u: u.reshape(SHAPE).sum(0) - 0.5},
                {"type": "ineq", "fun": lambda u: np.diff(u.reshape(SHAPE)[:, 0])},
            ],
        )  # fmt: skip
        ours = found.u[i].flatten().numpy() - at
        assert 0.5 * ours @ inverse @ ours <= best.fun * (1 + 1e-6) + 1e-9


def test_no_bit_depends_on_the_batch():
    project, own = Projector(CURVED, SHAPE, params(1), metric=metric()), metric(seed=4)
    y, given = drawn(5, *SHAPE, seed=8), params(5)
    y[2, 1, 1] = torch.nan
    whole = project(y, given, metric=own)
    assert whole.converged.tolist() == [True, True, False, True, True]
    for i in (0, 4):
        alone = project(y[i : i + 1], {"u0": given["u0"][i : i + 1]}, metric=own)
        assert torch.equal(alone.u[0], whole.u[i])


def test_the_projector_has_a_metric_of_its_own():
    own, y, given = metric(), drawn(2, *SHAPE), params(2)
    fixed = Projector(AFFINE, SHAPE, params(1), metric=own)
    assert torch.equal(fixed(y, given).u, fixed(y, given, metric=own).u)
    assert not torch.allclose(fixed(y, given).u, fixed.plain(y, given).u)


def test_volumes_equal_dense_determinants():
    project, own, given = Projector(CURVED, SHAPE, params(1)), metric(uniform=False), params(1)
    y = drawn(1, *SHAPE, seed=8)
    (frame,) = LinearizedProjection(project.linearized, own).frames(y.flatten(1).numpy(), given)
    a = frame.jacobian.toarray()
    assert frame.log_volume(own) == pytest.approx(np.linalg.slogdet(a @ dense(own) @ a.T)[1], abs=1e-9)
    (plain,) = LinearizedProjection(project.linearized, Metric(1.0)).frames(y.flatten(1).numpy(), given)
    assert plain.log_volume() == pytest.approx(np.linalg.slogdet(a @ a.T)[1], abs=1e-9)


def test_wrong_metrics_are_refused():
    project = Projector(AFFINE, SHAPE, params(1))
    with pytest.raises(ShapeError, match=r"expects a snapfm\.Metric; got float"):
        project(drawn(1, *SHAPE), params(1), metric=0.5)
    with pytest.raises(ShapeError, match=r"expects a metric of fields \(5, 4\); got one of \(4, 5\)"):
        project(drawn(1, *SHAPE), params(1), metric=Metric(1.0, drawn(2, 4, 5), drawn(2).abs()))
    with pytest.raises(snapfm.errors.ParamsError, match="expects positive, finite variances"):
        Metric(0.0)
    with pytest.raises(UnsupportedLaw, match="expects inputs without gradients"):
        project(drawn(1, *SHAPE).requires_grad_(), params(1), metric=metric())


def test_a_call_without_time_says_so_and_ends():
    project, own, given = Projector(CURVED, SHAPE, params(1)), metric(), params(3)
    y = drawn(3, *SHAPE, seed=8)
    assert bool(project(y, given, metric=own).converged.all())
    found = project(y, given, metric=own, seconds=1e-6)
    assert set(found.status.tolist()) == {int(snapfm.Status.ITERATION_LIMIT)}


def test_directions_that_vary_together_are_those_of_the_dense_covariance():
    """A Cholesky factor in place of variances: Σ = δI + VᵀLLᵀV."""
    random = torch.Generator().manual_seed(11)
    rows, directions = (torch.randn(k, 5, generator=random, dtype=torch.float64) for k in (2, 3))
    factor = torch.randn(3, 3, generator=random, dtype=torch.float64).tril()
    factor = factor - factor.diagonal().diag() + factor.diagonal().abs().diag()
    covariance = 0.2 * torch.eye(5, dtype=torch.float64) + directions.T @ factor @ factor.T @ directions
    u = torch.randn(3, 5, generator=random, dtype=torch.float64)
    found = Projector([Equality("rows", lambda u, p: rows @ u - 1.0)], (5,))(u, metric=Metric(0.2, directions, factor))
    gain = covariance @ rows.T @ torch.linalg.inv(rows @ covariance @ rows.T)
    torch.testing.assert_close(found.u, u - (u @ rows.T - 1.0) @ gain.T)
    assert found.converged.all()
