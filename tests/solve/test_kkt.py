"""Laws that couple all unknowns: certified, and the same answer whichever linear algebra finds it."""

from __future__ import annotations

from unittest import mock

import pytest
import torch

import snapfm
from snapfm.linear import Fronts, Lanes
from snapfm.solve import kkt
from snapfm_bench.judge import measure

N = 9


def darcy(f, p):
    """−∇·(a∇u) = 1 in the interior, a and u jointly."""
    a, u = f[0], f[1]
    right = (a[1:, 1:-1] + a[:-1, 1:-1]) * (u[1:, 1:-1] - u[:-1, 1:-1])
    up = (a[1:-1, 1:] + a[1:-1, :-1]) * (u[1:-1, 1:] - u[1:-1, :-1])
    return 0.5 * (right[1:] - right[:-1] + up[:, 1:] - up[:, :-1]) * (N - 1) ** 2 + 1.0


def boundary(f, p):
    return torch.cat([f[1, 0], f[1, -1], f[1, 1:-1, 0], f[1, 1:-1, -1]])


def divergence(f, p):
    return sum(torch.roll(f[i], -1, i) - f[i] for i in range(2))


LAWS = [snapfm.Equality("darcy", darcy), snapfm.Equality("boundary", boundary)]


def fields(count: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(3)
    a = 1.0 + 0.3 * torch.randn(count, 1, N, N, generator=g, dtype=torch.float64)
    u = 0.05 * torch.rand(count, 1, N, N, generator=g, dtype=torch.float64)
    return torch.cat([a, u], dim=1)


def conjugate(laws, **more) -> snapfm.Projector:
    """Use conjugate gradients even where the augmented matrix is cheaper."""
    with mock.patch.object(kkt, "_cheaper", return_value=False):
        return snapfm.Projector(laws, (2, N, N), **more)


def forms(project: snapfm.Projector) -> list[tuple[int, int]]:
    return [(part.kkt.frame.coupled, part.kkt.frame.shared) for part in project.method.plan.systems]


@pytest.mark.parametrize("bounded", [False, True], ids=["equalities", "a ≥ 0.6"])
@pytest.mark.parametrize("solver", [None, Lanes(), Fronts()], ids=["automatic", "lanes", "fronts"])
def test_conjugate_gradients_find_the_answer_of_the_augmented_matrix(bounded: bool, solver):
    low = torch.full((2, N, N), -float("inf"), dtype=torch.float64)
    low[0] = 0.6
    laws = [*LAWS, snapfm.Bounds(lower=low)] if bounded else LAWS
    ours = conjugate(laws, linear=solver)
    with mock.patch.object(kkt, "_cheaper", return_value=True):
        direct = snapfm.Projector(laws, (2, N, N), linear=Lanes())
    assert forms(ours) == [(1, 0)]
    assert forms(direct) == [(0, 0)]
    given = fields(11)
    found, expected = ours(given), direct(given)
    assert found.converged.all()
    assert expected.converged.all()
    assert (found.second_order == 1).all()
    torch.testing.assert_close(found.u, expected.u, rtol=0.0, atol=1e-8)
    judged = measure(laws, given, found.u, found.multipliers, {})
    assert float(judged.violation.max()) <= 1e-8
    assert float(judged.stationarity.max()) <= 1e-7


def test_a_sample_has_the_same_bits_in_every_batch():
    project = conjugate(LAWS)
    given = fields(9)
    whole = project(given).u
    for i in (0, 8):
        assert torch.equal(project(given[i : i + 1]).u[0], whole[i])


@pytest.mark.parametrize("inequality", [False, True], ids=["energy given", "energy at most"])
def test_a_divergence_free_field_with_a_given_energy_shares_the_factor_of_the_divergence(inequality: bool):
    def energy(f, p):
        return (f**2).sum() - p["energy"]

    kind = snapfm.Inequality if inequality else snapfm.Equality
    laws = [snapfm.Equality("divergence", divergence), kind("energy", energy)]
    params = {"energy": torch.tensor([30.0], dtype=torch.float64)}
    with mock.patch.object(kkt, "_MANY", 20):
        ours = snapfm.Projector(laws, (2, N, N), params)
    plain = snapfm.Projector(laws, (2, N, N), params)
    assert forms(ours) == [(1, 1)]
    assert forms(plain) == [(0, 0)]
    given = torch.randn(10, 2, N, N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    given[0] *= 0.01  # already within the bound on its energy
    found, expected = ours(given, params), plain(given, params)
    assert found.converged.all()
    torch.testing.assert_close(found.u, expected.u, rtol=0.0, atol=1e-9)
    judged = measure(laws, given, found.u, found.multipliers, params)
    assert float(judged.stationarity.max()) <= 1e-7
    assert torch.equal(ours(given[:1], params).u[0], found.u[0])
