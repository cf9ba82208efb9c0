"""A few quadratic rows beside many affine ones: in the null space of the latter, against the iterations of the whole system."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

import snapfm
from snapfm import Equality, Inequality, Status
from snapfm.solve import kkt
from snapfm_bench.judge import measure

N = 10
SHAPE = (2, N, N)
WEIGHTS = torch.ones(N, dtype=torch.float64)
WEIGHTS[[0, -1]] = 0.5
SOURCE = torch.randn(1, N, N, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
SOURCE -= SOURCE.mean()
PARAMS = {"energy": torch.tensor([60.0], dtype=torch.float64), "source": SOURCE, "weights": 0.5 + SOURCE**2}


def divergence(u, p):
    return u[0] - u[0].roll(1, 0) + u[1] - u[1].roll(1, 1)


def curl(u):
    return u[1] - u[1].roll(1, 0) - u[0] + u[0].roll(1, 1)


def energy(u, p):
    return (u**2).sum() - p["energy"]


def outside(u, p):
    return torch.cat([u[0, 0], u[0, -1], u[1, :, 0], u[1, :, -1]])


FREE = Equality("divergence", divergence)
INSIDE = Equality("divergence", lambda u, p: (u[0, 1:] - u[0, :-1])[:, :-1] + (u[1, :, 1:] - u[1, :, :-1])[:-1])
LAWS = {
    "energy": [FREE, Equality("energy", energy)],
    "energy at most": [FREE, Inequality("energy", energy)],
    "more energy": [FREE, Equality("energy", lambda u, p: energy(u / 4.0, p))],
    "momentum": [FREE, Equality("momentum", lambda u, p: u.sum((1, 2)) - 3.0), Equality("energy", energy)],
    "source": [
        Equality("divergence", lambda u, p: divergence(u, p) - p["source"]),
        Equality("energy", lambda u, p: energy(u, p) - 60.0),
    ],
    "walls": [INSIDE, Equality("walls", outside), Equality("energy", energy)],
    "trapezoid": [FREE, Equality("energy", lambda u, p: (WEIGHTS * WEIGHTS[:, None] * u**2).sum() - 0.7 * p["energy"])],
    "weights of params": [FREE, Equality("energy", lambda u, p: (p["weights"] * u**2).sum() - 2.0 * p["energy"])],
    "channels": [FREE, Equality("energies", lambda u, p: (u**2).sum((1, 2)) - 0.5 * p["energy"])],
    "enstrophy": [FREE, Equality("enstrophy", lambda u, p: (curl(u) ** 2).sum() - 4.0 * p["energy"])],
    "two rows, one of them idle": [
        FREE, Equality("energy", energy), Inequality("enstrophy", lambda u, p: (curl(u) ** 2).sum() - 1e4),
    ],
    "not all in the energy": [
        Equality("divergence", lambda u, p: divergence(u, p) + u[0] @ WEIGHTS),
        Equality("energy", lambda u, p: (u[1] ** 2).sum() + u[0].sum() - p["energy"]),
    ],
}  # fmt: skip


def projectors(laws, shape=SHAPE, **more):
    """Return one projector that uses the null space and one that does not."""
    with mock.patch.object(kkt, "_MANY", 20):
        ours = snapfm.Projector(laws, shape, PARAMS, **more)
    plain = snapfm.Projector(laws, shape, PARAMS, **more)
    assert all(part.nullspace is not None for part in ours.method.plan.systems)
    assert all(part.nullspace is None for part in plain.method.plan.systems)
    return ours, plain


def fields(count: int, shape=SHAPE):
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("name", LAWS)
def test_answers_are_those_of_the_iterations(name: str):
    laws = LAWS[name]
    ours, plain = projectors(laws)
    given = fields(9)
    given[0] *= 0.05
    found, expected = ours(given, PARAMS), plain(given, PARAMS)
    assert found.converged.all()
    near = expected.converged & (expected.distance <= found.distance + 1e-9)  # a local minimum is no reference
    assert near.sum() >= 8
    torch.testing.assert_close(found.u[near], expected.u[near], rtol=0.0, atol=1e-8)
    judged = measure(laws, given, found.u, found.multipliers, PARAMS)
    assert float(judged.stationarity.max()) <= 1e-7
    assert (found.distance <= expected.distance + 1e-8).all()
    for i in (0, 5, 8):
        assert torch.equal(ours(given[i : i + 1], PARAMS).u[0], found.u[i])


@pytest.mark.parametrize("name", ["energy", "energy at most", "momentum", "source", "walls"])
def test_energies_take_one_round(name: str):
    ours, _ = projectors(LAWS[name])
    assert (ours(fields(3), PARAMS).iterations == 1).all()


def test_slices_are_solved_side_by_side():
    laws = [
        Equality("divergence", divergence),
        Equality("energies", lambda u, p: (u**2).sum((0, 1, 2)) - p["energy"]),
    ]
    ours, plain = projectors(laws, (2, N, N, 3))
    given = fields(4, (2, N, N, 3))
    found = ours(given, PARAMS)
    assert found.converged.all()
    torch.testing.assert_close(found.u, plain(given, PARAMS).u, rtol=0.0, atol=1e-8)


def test_samples_that_cannot_be_solved_are_told_from_the_others():
    ours, _ = projectors(LAWS["source"])
    given = fields(3)
    given[1, 0, 0, 0] = torch.nan
    params = {**PARAMS, "energy": torch.tensor([60.0, 60.0, -59.9], dtype=torch.float64)}
    params = {name: value.expand(3, *value.shape[1:]) for name, value in params.items()}
    found = ours(given, params, limit=60)
    assert found.status[:2].tolist() == [Status.CONVERGED, Status.NONFINITE]
    assert int(found.status[2]) in (Status.INFEASIBLE, Status.STALLED, Status.ITERATION_LIMIT)
    assert torch.equal(found.u[0], ours(given[:1], PARAMS).u[0])


def test_gradients_are_those_of_differences():
    ours, _ = projectors(LAWS["energy"])
    given = fields(1).requires_grad_()
    weight = fields(2)[1]
    (ours(given, PARAMS).u[0] * weight).sum().backward()
    along, step = fields(3)[2:], 1e-5
    with torch.no_grad():
        ahead, behind = (ours(given + sign * step * along, PARAMS).u[0] for sign in (1.0, -1.0))
    expected = ((ahead - behind) * weight).sum() / (2.0 * step)
    torch.testing.assert_close((given.grad * along).sum(), expected, rtol=1e-6, atol=1e-8)


def test_more_energy_than_zero_can_be_scaled_to_needs_the_iterations():
    ours, _ = projectors(LAWS["energy"])
    found = ours(torch.zeros(1, *SHAPE, dtype=torch.float64), PARAMS)
    assert found.converged.all()
    assert int(found.iterations) > 1


def test_a_field_without_energy_that_is_asked_for_none_is_no_error():
    """The gradient of the energy is zero there: the small system is singular."""
    ours, _ = projectors(LAWS["energy"])
    params = {**PARAMS, "energy": torch.zeros(1, dtype=torch.float64)}
    assert (ours(torch.zeros(1, *SHAPE, dtype=torch.float64), params).u == 0.0).all()
