"""What CONVERGED and INFEASIBLE promise: lawful to the tolerance, nearest to second order, proven contradictions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from snapfm import Bounds, Equality, Inequality, Projector, Status
from snapfm.laws import Law


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# Violations just above the tolerance.


def spread(excess: float, points: int = 1000, filled: int = 300, samples: int = 3) -> Tensor:
    """Fields of a total of 1 + excess, on some of their points; the others are at their bound."""
    out = torch.zeros(samples, points, dtype=torch.float64)
    for k in range(samples):
        chosen = torch.randperm(points, generator=torch.Generator().manual_seed(k))[:filled]
        out[k, chosen] = (1.0 + excess) / filled
    return out


@pytest.mark.parametrize("excess", [1e-4, 5e-8, 1.1e-8, -5e-8, -1.1e-8])
@pytest.mark.parametrize("lower", [0.0, -1e-3])
def test_a_violation_just_above_the_tolerance_is_projected_away(excess: float, lower: float):
    laws = [Equality("mass", lambda u, p: u.sum() - 1.0), Bounds(lower=lower)]
    u_hat = spread(excess)
    result = Projector(laws, (1000,))(u_hat).raise_for_status()
    assert float((result.u.sum(1) - 1.0).abs().max()) <= 1e-8
    # The nearest point: the same shift for all that can move, clipped at the bound.
    shift = (result.u - u_hat)[u_hat > 0].reshape(len(u_hat), -1)
    assert float((shift - shift[:, :1]).abs().max()) <= 1e-15
    assert bool((result.u >= lower).all())


# Second order.


def least_curvature(laws: list[Law], u: Tensor, multipliers: dict[str, Tensor], active: Tensor) -> float:
    """Find the smallest eigenvalue of I + Σλ∇²h along the null space of equalities, dense; `active` unknowns are held."""

    def rows(flat: Tensor) -> Tensor:
        return torch.cat([law.residual(flat.view_as(u), {}).reshape(-1) for law in laws if not isinstance(law, Bounds)])

    weight = torch.cat([value.reshape(-1) for value in multipliers.values()])
    flat = u.reshape(-1)
    hessian = torch.eye(len(flat), dtype=u.dtype) + torch.func.hessian(lambda x: weight @ rows(x))(flat)
    normals = torch.cat([torch.func.jacrev(rows)(flat), torch.eye(len(flat), dtype=u.dtype)[active]])
    _, sizes, basis = torch.linalg.svd(normals)
    null = basis[int((sizes > 1e-10).sum()) :]
    return float(torch.linalg.eigvalsh(null @ hessian @ null.T).min()) if len(null) else 0.0


SADDLES: dict[str, list[Law]] = {
    # From the axis, the nearest point of these sets along it is a saddle or a maximum of the distance along the set.
    "ellipse": [Equality("ellipse", lambda u, p: (u**2 * torch.tensor([1.0, 9.0, 4.0])).sum() - 1.0)],
    "quartic": [Equality("quartic", lambda u, p: ((u**2 - 1.0) ** 2 * torch.tensor([1.0, 2.0, 3.0])).sum() - 0.5)],
    "log": [Equality("log", lambda u, p: (torch.log(1.0 + u**2) * torch.tensor([1.0, 3.0, 5.0])).sum() - 1.0)],
    "coupled": [Equality("coupled", lambda u, p: u[0] * u[1] + u[1] * u[2] + (u**2).sum() - 2.0)],
}


@pytest.mark.parametrize("name", SADDLES)
def test_answers_are_minima_where_symmetry_leads_to_saddles(name: str):
    laws = SADDLES[name]
    u_hat = torch.cat([torch.diag(torch.tensor([0.9, 2.0, 0.4])), torch.zeros(1, 3), -2.0 * torch.eye(3)]).double()
    result = Projector(laws, (3,))(u_hat)
    assert bool(result.converged.all()), result.status
    assert result.second_order.tolist() == [1] * len(u_hat)
    none = torch.zeros(3, dtype=torch.bool)
    for k in range(len(u_hat)):
        weights = {key: value[k] for key, value in result.multipliers.items()}
        assert least_curvature(laws, result.u[k], weights, none) >= -1e-6
    # No point of the set, walked over densely from the answer, is nearer.
    for k, u in enumerate(result.u):
        around = Projector(laws, (3,))(u + 0.05 * randn(64, 3, seed=k))
        near = around.u[around.converged]
        assert float((near - u_hat[k]).norm(dim=1).min()) >= float(result.distance[k]) - 1e-6


def test_a_warm_start_at_a_saddle_leaves_it():
    laws: list[Law] = [Equality("ellipse", lambda u, p: u[0] ** 2 + 9.0 * u[1] ** 2 - 1.0)]
    project = Projector(laws, (2,))
    at = project(torch.tensor([[1.5, 0.0]], dtype=torch.float64))  # (1, 0): nearest from outside
    inside = torch.tensor(
        [[0.5, 0.0]], dtype=torch.float64
    )  # from here it is a maximum of the distance along the ellipse
    warm = project(inside, warm=at)
    assert bool(warm.converged.all())
    assert float(warm.u[0, 1].abs()) > 0.1
    assert abs(float(warm.distance) - float(project(inside).distance)) <= 1e-9


# Units.


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_the_units_of_a_field_do_not_matter(unit: float):
    laws: list[Law] = [
        Equality("mass", lambda u, p: u.sum() / unit - 64.0),
        Equality("energy", lambda u, p: ((u / unit) ** 2).sum() - 100.0),
        Bounds(lower=0.0),
    ]
    u_hat = 1.0 + 0.1 * randn(16, 64)
    result = Projector(laws, (64,))(unit * u_hat)
    assert bool(result.converged.all()), result.status
    plain = Projector(
        [Equality("mass", lambda u, p: u.sum() - 64.0), Equality("energy", lambda u, p: (u**2).sum() - 100.0), Bounds(lower=0.0)],
        (64,),
    )(u_hat)  # fmt: skip
    assert torch.allclose(result.distance / unit, plain.distance, rtol=0.05)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3])
def test_the_units_of_a_law_do_not_matter(scale: float):
    laws: list[Law] = [
        Equality("mass", lambda u, p: u.sum() - 1.0),
        Equality("energy", lambda u, p: scale * ((u**2).sum() - 0.05)),
        Bounds(lower=0.0),
    ]
    u_hat = (1.0 + 0.1 * randn(16, 64)) / 64
    result = Projector(laws, (64,), tolerance=1e-8 * min(1.0, scale))(u_hat)
    assert bool(result.converged.all()), result.status


def test_small_fields_are_asked_for_a_nearness_of_their_size():
    # At a size of 1e-9 a stationarity of 1e-6 would certify anything.
    laws: list[Law] = [Equality("sphere", lambda u, p: ((1e9 * u) ** 2).sum() - 1.0)]
    u_hat = 1e-9 * randn(5, 4)
    result = Projector(laws, (4,))(u_hat).raise_for_status()
    exact = u_hat / u_hat.norm(dim=1, keepdim=True) * 1e-9
    assert float((result.u - exact).abs().max()) <= 1e-15
    assert float(result.stationarity.max()) <= 1e-15


# What cannot be obeyed.

CONTRADICTIONS: dict[str, list[Law]] = {
    "total against bounds": [Equality("total", lambda u, p: u.sum() - 10.0), Bounds(lower=0.0, upper=1.0)],
    "half spaces": [Inequality("below", lambda u, p: u.sum() + 1.0), Inequality("above", lambda u, p: 1.0 - u.sum())],
    "negative squares": [Equality("energy", lambda u, p: (u**2).sum() + 1.0)],
    "two energies": [Equality("one", lambda u, p: (u**2).sum() - 1.0), Equality("two", lambda u, p: (u**2).sum() - 2.0)],
    "mass beyond energy": [Equality("mass", lambda u, p: u.sum() - 9.0), Equality("energy", lambda u, p: (u**2).sum() - 1.0)],
    "sine": [Equality("wave", lambda u, p: torch.sin(u[:3]) - 2.0)],
    "exponential": [Equality("growth", lambda u, p: torch.exp(u).sum() + 1.0)],
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_proven(name: str):
    result = Projector(CONTRADICTIONS[name], (5,))(randn(4, 5))
    assert result.status.tolist() == [Status.INFEASIBLE] * 4


def test_a_feasible_linear_program_far_away_is_not_called_infeasible():
    # Unknowns of the order of 1e5 and more, rows of very different sizes: the like of AGG and CORE1 of the Netlib set.
    generator = torch.Generator().manual_seed(3)
    for k in range(20):
        matrix = torch.randn(6, 12, generator=generator, dtype=torch.float64)
        matrix *= 10.0 ** torch.randint(-3, 4, (6, 1), generator=generator)
        feasible = 1e5 * torch.rand(12, generator=generator, dtype=torch.float64)
        right = matrix @ feasible
        laws: list[Law] = [
            Equality("rows", lambda u, p, matrix=matrix, right=right: matrix[:3] @ u - right[:3]),
            Inequality("room", lambda u, p, matrix=matrix, right=right: matrix[3:] @ u - right[3:]),
            Bounds(lower=0.0),
        ]
        result = Projector(laws, (12,), tolerance=1e-4)(torch.zeros(2, 12, dtype=torch.float64))
        assert Status.INFEASIBLE not in result.status.tolist(), k


def test_local_minima_of_the_violation_are_not_called_infeasible():
    # Restoration from 1 ends at the local minimum of |h| at 0.82; the root is at -1.65.
    for cubic in (lambda u, p: u**3 - 2.0 * u + 1.2, lambda u, p: 0.0 * torch.erf(u) + u**3 - 2.0 * u + 1.2):
        result = Projector([Equality("cubic", cubic)], (1,))(torch.full((3, 1), 1.0, dtype=torch.float64))
        assert Status.INFEASIBLE not in result.status.tolist()
