"""The adjoint system of many samples at once, against dense linear algebra."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

import snapfm
from snapfm.solve.budget import LIMIT, SECONDS, Budget

SHAPE = (3, 5)


def _energy(u: Tensor, p: dict[str, Tensor]) -> Tensor:
    return u.square().sum(0)[1:] - p["e"]


LAWS = {
    "pinned": [
        snapfm.Equality("first", lambda u, p: 2.0 * u[:, 0] - p["a"]),
        snapfm.Equality("energy", _energy),
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
}


@pytest.mark.parametrize("name", LAWS)
def test_solutions_are_those_of_the_dense_system(name: str):
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.rand, generator=generator, dtype=torch.float64)
    true = 0.5 + draw(4, *SHAPE)
    params = {"a": 0.2 + 0.5 * draw(4, 3), "e": 0.5 + draw(4, 4), "m": true.sum(1), "c": (true**3).sum(2)}
    project = snapfm.Projector(LAWS[name], SHAPE, params)
    start = true + 0.1 * draw(4, *SHAPE) if name == "redundant" else 2.0 * draw(4, *SHAPE) - 0.8
    result = project(start, params).raise_for_status()
    gradient = torch.randn(4, *SHAPE, generator=generator, dtype=torch.float64)
    multipliers = torch.cat([result.multipliers[law.name] for law in project.structure.laws], dim=1)
    budget = Budget.of(LIMIT, SECONDS)
    with torch.no_grad():
        solved = project.method.solve(start, params, project.tolerance, None, budget)
        found = project.method.adjoint(solved, params, gradient, in_params=True)
    w, nu = found.w, found.nu
    assert torch.isfinite(w).all()
    jacobian = project.structure.jacobian(result.u, params).numpy()
    hessian = project.structure.hessian(result.u, params, multipliers)
    assert project.structure.hessian_pattern is not None
    for i in range(4):  # ν itself is not unique where rows repeat each other; its pull on the field is
        point = result.u[i].flatten().numpy()
        free = (project.limits.lower < point) & (point < project.limits.upper)
        active = project.structure.equality_rows | (multipliers[i].numpy() > 1e-9)
        matrix = project.structure.pattern.csr(jacobian[i]).toarray()[active][:, free]
        curved = np.eye(free.sum()) + project.structure.hessian_pattern.csr(hessian[i]).toarray()[free][:, free]
        dense = np.block([[curved, matrix.T], [matrix, np.zeros((len(matrix), len(matrix)))]])
        right = np.concatenate([gradient[i].flatten().numpy()[free], np.zeros(len(matrix))])
        expected = np.linalg.lstsq(dense, right, rcond=1e-12)[0]
        assert np.allclose(w[i].flatten().numpy()[free], expected[: free.sum()], rtol=1e-8, atol=1e-8)
        assert not w[i].flatten().numpy()[~free].any()
        pull = matrix.T @ nu[i].numpy()[active]
        assert np.allclose(pull, matrix.T @ expected[free.sum() :], rtol=1e-7, atol=1e-7)


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
