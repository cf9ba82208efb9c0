"""Totals over the points of a field: the same answers, certificates and gradients as Systems give, on laws of many forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import snapfm
from snapfm import Bounds, Equality, Inequality, Status
from snapfm.project import Projection
from snapfm.reduce import totals as reduction
from snapfm.solve import totals
from snapfm.solve.newton import Newton

F64 = torch.float64
SHAPE = (3, 6, 9)
WEIGHTS = torch.linspace(0.5, 1.5, 54, dtype=F64).reshape(6, 9) / 54
DENSITY = Bounds(lower=torch.tensor([-math.inf, 0.0, -math.inf], dtype=F64)[:, None, None])


def fields(count: int, seed: int = 0, shape: tuple[int, ...] = SHAPE) -> Tensor:
    """Draw positive fields with noise that breaks bounds here and there."""
    generator = torch.Generator().manual_seed(seed)
    positive = torch.rand(count, *shape, generator=generator, dtype=F64)
    return positive + 0.2 * torch.randn(count, *shape, generator=generator, dtype=F64)


def products(u: Tensor, p: dict[str, Tensor]) -> Tensor:
    """Sum products of variables with area weights."""
    return torch.einsum("xy,xy,xy->", WEIGHTS, u[0], u[1] + u[2] ** 2) - p["energy"]


LAWS = {
    "products": [
        Equality("energy", products),
        Equality("mass", lambda u, p: (WEIGHTS * u[0] * (1 - u[1])).sum() - 0.2),
        DENSITY,
    ],
    "simplex": [Equality("one", lambda u, p: u.sum() - 20 * p["energy"]), Bounds(lower=0.0)],
    "box": [Equality("mean", lambda u, p: u.mean() - p["energy"]), Bounds(lower=0.1, upper=0.8)],
    "weights in params": [
        Equality("mass", lambda u, p: (p["weight"] * u[0] * u[1]).sum() - 0.5 * p["energy"]),
        Equality("sum", lambda u, p: (p["weight"] * u).mean() - 0.008),
        Bounds(lower=0.0),
    ],
    "budgets": [
        Inequality("cost", lambda u, p: (WEIGHTS * u**2).sum() - p["energy"]),
        Inequality("loose", lambda u, p: u.sum() - 1e3),
        Inequality("exponentials", lambda u, p: torch.exp(u[1:]).mean() - 1.5),
    ],
    "edges": [  # points of the edges are other functions of other unknowns
        Equality("inner", lambda u, p: (u[0, 1:-1] * u[1, 1:-1]).sum() + u[0, 0].sum() + (u[1, -1] ** 2).sum() - 18.0),
        Equality("all", lambda u, p: (WEIGHTS * u.sum(0)).sum() - 3 * p["energy"]),
        Bounds(lower=0.0),
    ],
    "entropy": [
        Equality("one", lambda u, p: u.sum() - 54.0),
        Inequality("entropy", lambda u, p: (u * torch.log(u)).sum() + 35.0 + p["energy"]),
        Bounds(lower=1e-3),
    ],
    "known points": [  # an initial condition determines some unknowns of every point
        Equality("first", lambda u, p: u[0] - p["weight"] * 54),
        Equality("mass", lambda u, p: (u[0] * u[1] + 0.3 * u[0] * u[2]).mean() - p["energy"]),
        Bounds(lower=-0.1),
    ],
}


def params(count: int) -> dict[str, Tensor]:
    """Make params for every set of laws."""
    energy = torch.linspace(0.45, 0.55, count, dtype=F64)
    return {"energy": energy, "weight": WEIGHTS * torch.linspace(0.9, 1.1, count, dtype=F64)[:, None, None]}


def projector(laws: list[snapfm.Law], as_totals: bool, monkeypatch: pytest.MonkeyPatch) -> snapfm.Projector:
    """Prepare laws on a small field with the stage, or with Systems."""
    monkeypatch.setattr(reduction, "_LEAST", 1 if as_totals else 10**9)
    made = snapfm.Projector(laws, SHAPE, params(1))
    assert any(isinstance(stage, totals.DualTotals) for stage in stages(made)) == as_totals
    return made


def stages(project: snapfm.Projector) -> tuple[object, ...]:
    assert isinstance(project.method, Newton)
    return project.method.plan.stages


def with_gradients(
    project: snapfm.Projector, u_hat: Tensor, given: dict[str, Tensor]
) -> tuple[Projection, list[Tensor]]:
    """Project, and differentiate a sum without symmetry by fields and params."""
    u_hat, given = (
        u_hat.clone().requires_grad_(),
        {name: value.clone().requires_grad_() for name, value in given.items()},
    )
    found = project(u_hat, given)
    factor = torch.sin(torch.arange(found.u[0].numel(), dtype=F64)).reshape(found.u[0].shape)
    (found.u * factor).sum().backward()
    gradients = [one.grad for one in (u_hat, *given.values())]
    return found, [torch.zeros(()) if one is None else one for one in gradients]


@pytest.mark.parametrize("name", LAWS)
def test_as_a_system(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields, multipliers and gradients are those of the same laws as a System."""
    u_hat, given = fields(3), params(3)
    mine, my_gradients = with_gradients(projector(LAWS[name], True, monkeypatch), u_hat, given)
    system, gradients = with_gradients(projector(LAWS[name], False, monkeypatch), u_hat, given)
    assert mine.converged.all()
    assert system.converged.all()
    torch.testing.assert_close(mine.u, system.u, rtol=0, atol=1e-8)
    for law, multipliers in mine.multipliers.items():
        torch.testing.assert_close(multipliers, system.multipliers[law], rtol=1e-6, atol=1e-7)
    for one, other in zip(my_gradients, gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


def test_simplex_by_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The projection onto the simplex is known: max(û − t, 0) with t from the sorted field."""
    project = projector(LAWS["simplex"], True, monkeypatch)
    u_hat, total = fields(2), 10.0
    found = project(u_hat, params(2) | {"energy": torch.full((2,), 0.5, dtype=F64)})
    for one, u in zip(u_hat.reshape(2, -1), found.u.reshape(2, -1), strict=True):
        ordered = one.sort(descending=True).values
        shifts = (ordered.cumsum(0) - total) / torch.arange(1, len(one) + 1)
        shift = shifts[(ordered > shifts).nonzero().max()]
        torch.testing.assert_close(u, (one - shift).clamp(min=0.0), rtol=0, atol=1e-12)


def test_alone_and_beside_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample has the same bits in any batch, and one that is not finite harms no other."""
    project = projector(LAWS["products"], True, monkeypatch)
    u_hat, given = fields(5), params(5)
    whole = project(u_hat, given)
    broken = u_hat.clone()
    broken[1, 2, 3, 4] = math.nan
    beside = project(broken, given)
    assert beside.status[1] == Status.NONFINITE
    for i in (0, 2, 3, 4):
        alone = project(u_hat[i : i + 1], {name: value[i : i + 1] for name, value in given.items()})
        assert torch.equal(alone.u[0], whole.u[i])
        assert torch.equal(beside.u[i], whole.u[i])


def test_move_and_warm_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A move ends near the projection, and a warm start at the answer needs one iteration."""
    project = projector(LAWS["products"], True, monkeypatch)
    u_hat, given = fields(3), params(3)
    found = project(u_hat, given)
    torch.testing.assert_close(project.move(u_hat, given).u, found.u, rtol=0, atol=1e-5)
    again = project(u_hat, given, warm=found)
    assert again.converged.all()
    assert (again.iterations == 1).all()


def test_contradiction_goes_to_a_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where multipliers grow without bound, the System takes over and proves what it can."""
    laws = [Equality("energy", lambda u, p: (u**2 * WEIGHTS).sum() + 1.0), Bounds(lower=-2.0)]
    found = projector(laws, True, monkeypatch)(fields(2), params(2))
    assert (found.status == Status.INFEASIBLE).all()
    monkeypatch.setattr(totals, "_LARGEST", 0)
    found = projector(laws, True, monkeypatch)(fields(2), params(2))
    assert (found.status == Status.STALLED).all()
    assert (found.u >= -2.0).all()


def test_limits_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations and seconds end a call with fields inside their bounds."""
    project = projector(LAWS["products"], True, monkeypatch)
    for budget in ({"limit": 2}, {"seconds": 1e-9}):
        found = project(fields(2), params(2), **budget)
        assert (found.status == Status.ITERATION_LIMIT).all()


@pytest.mark.parametrize(
    "law",
    [
        lambda u: (u[0, 1:] * u[0, :-1]).sum() + (u[0, :, 1:] * u[0, :, :-1]).sum() - 1.0,  # a stencil ties all points
        lambda u: u.sum() * (u**2).sum() - 1.0,  # so does a product of totals
        lambda u: torch.relu(u - 0.3).sum() - 1.0,  # kinks have a search of their own
    ],
)
def test_others_stay_systems(law: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are no totals of small smooth functions are left alone."""
    projector([Equality("law", lambda u, p: law(u)), Bounds(lower=0.0)], False, monkeypatch)
    monkeypatch.setattr(reduction, "_LEAST", 1)
    made = snapfm.Projector([Equality("law", lambda u, p: law(u)), Bounds(lower=0.0)], SHAPE, params(1))
    assert not any(isinstance(stage, totals.DualTotals) for stage in stages(made))


def test_large_fields_are_totals() -> None:
    """A field of an image's size is one without being asked; a description says so."""
    laws = [
        Equality("one", lambda u, p: u.sum() - 1.0),
        Inequality("energy", lambda u, p: (u**2).sum() - 1e-4),
        Bounds(lower=0.0),
    ]
    project = snapfm.Projector(laws, (160, 130))
    assert "totals over 20 800 points" in str(project.structure).replace(",", " ").replace("\u202f", " ").replace(
        "\u2009", " "
    )
    u_hat = fields(2, shape=(160, 130)) / 20_800
    found = project(u_hat)
    assert found.converged.all()
    assert np.allclose(found.u.sum((1, 2)).numpy(), 1.0)
