"""Gradients through every stage of a plan, in û and in params, against the dense KKT system of the laws as written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tests.solve.hidden import opaque
from torch import Tensor

import snapfm
from snapfm.laws import Law
from snapfm.linear import Fronts, Lanes
from snapfm.reduce import march
from snapfm.solve import linearized
from snapfm.solve.budget import LIMIT, SECONDS, Budget

SHAPE = (3, 5)
Params = dict[str, Tensor]
STEP = 0.1


def _explicit(u: Tensor, p: Params) -> Tensor:
    return u[:, 1:3] - u[:, :2] - STEP * p["m"][:2] * u[:, :2].square()


def _implicit(u: Tensor, p: Params) -> Tensor:
    new = u[:, 1:]
    return new - u[:, :-1] - STEP * (torch.roll(new, 1, 0) - 2.0 * new + torch.roll(new, -1, 0) - p["m"][1:] * new**3)


LAWS: dict[str, list[Law]] = {
    "pinned": [
        snapfm.Equality("first", lambda u, p: 2.0 * u[:, 0] - p["a"]),
        snapfm.Equality("energy", lambda u, p: u.square().sum(0)[1:] - p["e"]),
    ],
    "redundant": [
        snapfm.Equality("mass", lambda u, p: u.sum(0) - p["m"]),
        snapfm.Equality("total", lambda u, p: u.sum() - p["m"].sum()),
        snapfm.Equality("cubes", lambda u, p: (u**3).sum(1) - p["c"]),
    ],
    "inequalities": [
        snapfm.Equality("first", lambda u, p: u[:, 0] - p["a"]),
        snapfm.Inequality("decay", lambda u, p: u.square().sum(0)[1:] - u.square().sum(0)[:-1]),
        snapfm.Bounds(lower=-0.7, upper=0.9),
    ],
    "substituted, then curved": [
        snapfm.Equality("first", lambda u, p: u[:, 0] - p["a"]),
        snapfm.Equality("explicit", _explicit),
        snapfm.Equality("product", lambda u, p: (u[:, 2] * u[:, 3] * u[:, 4]).sum() + (u[0, 3] ** 3) * p["e"][0] - p["e"][1]),
    ],
    "marched": [
        snapfm.Equality("first", lambda u, p: u[:, 0] - p["a"]),
        snapfm.Equality("implicit", _implicit),
    ],
    "affine": [
        snapfm.Equality("first", lambda u, p: u[:, 0] - p["a"].square()),
        snapfm.Equality("mass", lambda u, p: u[:2, 1:].sum(0) + u[:2, 0].sum() - p["a"].sum() - p["e"]),
        snapfm.Equality("differences", lambda u, p: u[0, 2:] - u[1, 1:-1] - p["e"][0] * p["c"]),
        snapfm.Bounds(lower=torch.where(torch.arange(15).reshape(SHAPE) > 11, 1.0, -torch.inf)),
    ],
    "aggregated": [
        snapfm.Equality("mass", lambda u, p: u.sum(0) - p["m"]),
        snapfm.Equality("energy", lambda u, p: u.square().sum(0) - p["m"].square() - p["e"].sum()),
    ],
    "rotated, eliminated": [
        snapfm.Equality("edge", lambda u, p: u[:, -1] - u[:, -2]),
        snapfm.Equality("flux", lambda u, p: u[:, 0].sum() + 0.5 * u[:, -1].square().sum() - p["e"].sum()),
    ],
    "coupled": [
        snapfm.Equality("products", lambda u, p: (u[1:] * u[:-1]).sum(0) - p["m"] / 3.0),
        snapfm.Equality("mass", lambda u, p: p["e"][0] * u.sum() - p["c"].sum()),
    ],
}  # fmt: skip


PLANS = {
    "pinned": "substitute 3 unknowns in 1 level",
    "redundant": "iterate on 8 rows and 15 unknowns (Schur complement",
    "inequalities": "iterate on 4 rows and 12 unknowns",
    "substituted, then curved": "substitute 9 unknowns in 3 levels",
    "marched": "march: 12 unknowns determined in 4 steps, one after the other: 4 blocks of at most 3 rows",
    "affine": "clip 3 unknowns that no row reads | solve 7 affine rows in closed form",
    "aggregated": "aggregate 15 unknowns into 10 | iterate on 5 systems of 2 rows and 2 unknowns",
    "rotated, eliminated": "rotate 3 pairs",
    "coupled": "augmented matrix",
}


@pytest.fixture(autouse=True)
def _march_through_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(march, "_FEWEST_ROWS", 1)
    monkeypatch.setattr(march, "_FEWEST_EACH", 1)


@pytest.mark.parametrize("name", LAWS)
def test_plans_have_the_stages_that_are_tested_here(name: str):
    project = snapfm.Projector(LAWS[name], SHAPE, draws()[2])
    assert PLANS[name] in " | ".join(project.method.plan.describe())
    printed = " ".join(str(project.structure).split())
    assert all(line in printed for line in project.method.plan.describe())


def draws() -> tuple[Tensor, Tensor, Params]:
    """Return û, a gradient, and params, of four samples."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.rand(4, *shape, generator=generator, dtype=torch.float64)

    true = 0.5 + draw(*SHAPE)
    params = {"a": 0.2 + 0.5 * draw(3), "e": 0.5 + draw(4), "m": true.sum(1), "c": (true**3).sum(2)}
    return true + 0.1 * draw(*SHAPE), torch.randn(4, *SHAPE, generator=generator, dtype=torch.float64), params


def dense(
    laws: Sequence[Law], u: Tensor, lam: Tensor, params: Params, g: Tensor, limits: object
) -> tuple[Tensor, Params]:
    """Solve the KKT system of one answer over all rows and unknowns; return the gradients in û and in params."""
    written = [law for law in laws if not isinstance(law, snapfm.Bounds)]
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}

    def rows(flat: Tensor, values: Params) -> Tensor:
        return torch.cat([law.residual(flat.reshape(SHAPE), values).flatten() for law in written])

    point = u.detach().flatten()
    jacobian = torch.autograd.functional.jacobian(lambda x: rows(x, params), point).numpy()
    hessian = torch.autograd.functional.hessian(lambda x: lam @ rows(x, params), point).numpy()
    free = (limits.lower < point.numpy()) & (point.numpy() < limits.upper)
    equality = np.concatenate(
        [np.full(law.residual(u, params).numel(), isinstance(law, snapfm.Equality)) for law in written]
    )
    active = equality | (lam.numpy() > 1e-9)
    matrix, curved = jacobian[active][:, free], (np.eye(len(point)) + hessian)[free][:, free]
    whole = np.block([[curved, matrix.T], [matrix, np.zeros((len(matrix), len(matrix)))]])
    right = np.concatenate([g.flatten().numpy()[free], np.zeros(len(matrix))])
    solved = np.linalg.lstsq(whole, right, rcond=1e-12)[0]
    w, nu = np.zeros(len(point)), np.zeros(len(lam))
    w[free], nu[active] = solved[: free.sum()], solved[free.sum() :]
    moving = point.clone().requires_grad_()
    value = rows(moving, leaves)
    (pull,) = torch.autograd.grad(lam @ value, moving, create_graph=True)
    total = -(pull @ torch.from_numpy(w) + torch.from_numpy(nu) @ value)
    found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    return torch.from_numpy(w), {
        name: torch.zeros_like(leaf) if one is None else one for (name, leaf), one in zip(leaves.items(), found)
    }


def compare(project: snapfm.Projector, laws: Sequence[Law]) -> None:
    start, g, params = draws()
    leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
    u_hat = start.clone().requires_grad_()
    result = project(u_hat, leaves).raise_for_status()
    result.u.backward(g)
    for i in range(4):
        lam = torch.cat([result.multipliers[law.name][i] for law in laws if not isinstance(law, snapfm.Bounds)])
        own = {name: value[i] for name, value in params.items()}
        w, expected = dense(laws, result.u[i].detach(), lam, own, g[i], project.limits)
        assert torch.allclose(u_hat.grad[i].flatten(), w, rtol=1e-8, atol=1e-8)
        for name, leaf in leaves.items():
            mine = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            assert torch.allclose(mine[i], expected[name], rtol=1e-7, atol=1e-7), name


@pytest.mark.parametrize("solver", [Lanes(), Fronts()], ids=["Lanes", "Fronts"])
@pytest.mark.parametrize("name", LAWS)
def test_gradients_are_those_of_the_dense_system(name: str, solver: object):
    compare(snapfm.Projector(LAWS[name], SHAPE, draws()[2], linear=solver), LAWS[name])


@pytest.mark.filterwarnings("ignore::snapfm.errors.StructureWarning")
@pytest.mark.parametrize("name", ["pinned", "inequalities", "coupled"])
def test_so_are_those_of_laws_that_torch_evaluates(name: str):
    laws = [opaque(law) for law in LAWS[name]]
    compare(snapfm.Projector(laws, SHAPE, draws()[2]), laws)


@pytest.mark.parametrize("name", ["redundant", "inequalities", "rotated, eliminated", "coupled"])
def test_samples_that_are_solved_with_pivoting_have_the_same_gradients(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(linearized, "_ACCURATE", -1.0)
    compare(snapfm.Projector(LAWS[name], SHAPE, draws()[2]), LAWS[name])


@pytest.mark.parametrize("name", LAWS)
def test_a_projection_after_a_gradient_has_the_bits_of_the_one_before(name: str):
    """Both use the same memory."""
    project, (start, g, params) = snapfm.Projector(LAWS[name], SHAPE, draws()[2]), draws()
    before = project(start, params)
    u_hat = start.clone().requires_grad_()
    project(u_hat, params).u.backward(g)
    after = project(start, params)
    assert torch.equal(before.u, after.u)
    assert all(torch.equal(before.multipliers[law], after.multipliers[law]) for law in before.multipliers)


def test_multipliers_of_the_linearized_problem_pull_as_those_of_the_dense_one():
    """ν itself is not unique where rows repeat each other; its pull on the field is."""
    start, g, params = draws()
    for name in ("pinned", "redundant", "substituted, then curved"):
        project = snapfm.Projector(LAWS[name], SHAPE, params)
        with torch.no_grad():
            solved = project.method.solve(start, params, 1e-8, None, Budget.of(LIMIT, SECONDS))
            found = project.method.adjoint(solved, params, g, in_params=True)
        laws = project.structure
        hessian = laws.hessian(solved.u.reshape(start.shape), params, solved.multipliers)
        jacobian = laws.jacobian(solved.u.reshape(start.shape), params).numpy()
        for i in range(4):
            curved = np.eye(15) + laws.hessian_pattern.csr(hessian[i]).toarray()
            left = curved @ found.w[i].numpy() + laws.pattern.csr(jacobian[i]).T @ found.nu[i].numpy()
            assert np.abs(left - g[i].flatten().numpy()).max() <= 1e-9


def test_a_nan_gradient_stays_with_its_sample():
    params = {"a": torch.full((3, 3), 0.4, dtype=torch.float64), "e": torch.full((3, 4), 0.9, dtype=torch.float64)}
    project = snapfm.Projector(LAWS["pinned"], SHAPE, params)
    start = torch.rand(3, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    weight = torch.ones(3, *SHAPE, dtype=torch.float64)
    (clean,) = torch.autograd.grad((weight * project(start, params).u).sum(), start)
    weight[1, 0, 0] = torch.nan
    (spoilt,) = torch.autograd.grad((weight * project(start, params).u).sum(), start)
    assert torch.equal(clean[[0, 2]], spoilt[[0, 2]])
    assert torch.isnan(spoilt[1]).all()


def test_a_sample_that_overflows_while_it_is_substituted_spares_params_that_all_share():
    laws = [
        snapfm.Equality("first", lambda u, p: u[:, 0] - p["a"]),
        snapfm.Equality("explicit", lambda u, p: u[:, 1:] - p["rate"] * u[:, :-1].square()),
    ]
    u_hat, a = torch.zeros(3, *SHAPE, dtype=torch.float64), torch.full((3, 3), 0.5, dtype=torch.float64)
    project = snapfm.Projector(laws, SHAPE, {"a": a, "rate": torch.ones(1, dtype=torch.float64)})
    found = []
    for size in (0.5, 1e200):
        a[1], rate = size, torch.ones(1, dtype=torch.float64, requires_grad=True)
        project(u_hat, {"a": a.clone(), "rate": rate}).u[[0, 2]].sum().backward()
        found.append(rate.grad)
    assert torch.equal(*found)
    assert torch.isfinite(found[0]).all()
